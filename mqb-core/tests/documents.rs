//! What control documents forgive and what they do not, claim by claim.

use mqb_core::control::{
    AdminCommand, Authentication, AuthenticationRequest, ControlBody, ControlMessage, Empty,
    Encoding, Negotiation, Status, decode, encode,
};
use mqb_core::error::SchemaError;
use mqb_core::limits::{SCHEMA_DEPTH_MAX, SCHEMA_ELEMENTS_MAX, SUBSCRIPTIONS_MAX};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| *byte != b' ')
        .map(|byte| char::from(byte).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn ber(hex: &str) -> Result<ControlMessage, SchemaError> {
    decode(Encoding::Ber, &unhex(hex))
}

fn json(text: &str) -> Result<ControlMessage, SchemaError> {
    decode(Encoding::Json, text.as_bytes())
}

fn disconnect(rid: impl Into<Option<i32>>) -> Result<ControlMessage, SchemaError> {
    Ok(ControlMessage {
        rid: rid.into(),
        body: ControlBody::Disconnect(Empty {}),
    })
}

#[test]
fn both_length_forms_of_ber_are_read() {
    assert_eq!(ber("3080 800107 a180 a180 0000 0000 0000"), disconnect(7));
    assert_eq!(ber("3007 800107 a102 a100"), disconnect(7));
    assert_eq!(ber("308107 800107 a102 a100"), disconnect(7));
    assert_eq!(ber("3080 800107 a102 a100 0000"), disconnect(7));
    assert_eq!(ber("3009 800107 a104 a180 0000 04040404"), disconnect(7));
}

#[test]
fn unknown_fields_are_skipped() {
    assert_eq!(
        ber("3080 9e80 0000 800107 a180 a180 0000 0000 0000"),
        Err(SchemaError::Malformed(2)),
        "indefinite, yet primitive"
    );
    assert_eq!(
        ber(
            "3080 be80 0401 05 be03 040105 0000 800107 bf8148 00 5f8148 01ff a180 a180 0000 0000 0000"
        ),
        disconnect(7)
    );
    assert_eq!(
        json(r#"{"x":[1,{"y":null}],"rId":7,"z":"}","disconnect":{"w":1}}"#),
        disconnect(7)
    );
    // A field's number means nothing in another class.
    assert_eq!(
        ber("3080 020109 800107 010100 a180 a180 0000 0000 0000"),
        disconnect(7)
    );
}

#[test]
fn absent_fields_have_their_defaults() {
    let opened = ber("3080 800101 a180 ab80 0000 0000 0000").unwrap();
    let ControlBody::OpenQueueResponse(opened) = opened.body else {
        panic!("{opened:?}")
    };
    assert_eq!(opened.deduplication_time_ms, 300_000);
    let identity: Negotiation = decode(Encoding::Json, br#"{"clientIdentity":{}}"#).unwrap();
    let Negotiation::ClientIdentity(identity) = identity else {
        panic!("{identity:?}")
    };
    assert_eq!(
        (
            identity.sdk_version,
            identity.session_id,
            identity.cluster_node_id
        ),
        (999_999, 1, -1)
    );
    assert_eq!(
        json(r#"{"status":{}}"#).unwrap().body,
        ControlBody::Status(Status::default())
    );
    assert_eq!(json(r#"{"rId":null,"disconnect":{}}"#), disconnect(None));
    assert_eq!(ber("3080 a180 a180 0000 0000 0000"), disconnect(None));
}

#[test]
fn of_two_selections_the_last_counts() {
    assert_eq!(
        json(r#"{"rId":1,"closeQueueResponse":{},"disconnect":{}}"#),
        disconnect(1)
    );
    assert_eq!(
        ber("3080 800101 a180 a280 0000 a180 0000 0000 0000"),
        disconnect(1)
    );
    assert_eq!(
        ber("3080 800101 a180 a280 0000 0000 a180 a180 0000 0000 0000"),
        disconnect(1)
    );
}

#[test]
fn what_has_no_known_selection_keeps_its_request_id() {
    let unknown = |rid| {
        Ok(ControlMessage {
            rid: Some(rid),
            body: ControlBody::Unknown,
        })
    };
    assert_eq!(
        ber("3080 800109 a180 a980 a080 a080 0000 0000 0000 0000 0000"),
        unknown(9),
        "a cluster message"
    );
    assert_eq!(ber("3080 800109 a180 0000 0000"), unknown(9));
    assert_eq!(ber("3080 800109 0000"), unknown(9));
    assert_eq!(json(r#"{"rId":9,"clusterMessage":{}}"#), unknown(9));
    assert_eq!(
        decode::<Negotiation>(Encoding::Json, b"{}"),
        Err(SchemaError::NoSelection)
    );
    assert_eq!(
        decode::<Negotiation>(Encoding::Ber, &unhex("3080 a080 a980 0000 0000 0000")),
        Err(SchemaError::NoSelection)
    );
}

#[test]
fn numbers_are_checked_against_their_fields() {
    for (contents, value) in [
        ("0100", 0),
        ("01ff", -1),
        ("027fff", 32767),
        ("0480000000", i32::MIN),
        ("090000000000000000 7f", 127),
    ] {
        assert_eq!(
            ber(&format!("3080 80{contents} a180 a180 0000 0000 0000")),
            disconnect(value)
        );
    }
    for contents in [
        "00",
        "050080000000",
        "0500ffffffff",
        "0a00000000000000000001",
    ] {
        let result = ber(&format!("3080 80{contents} a180 a180 0000 0000 0000"));
        assert!(
            matches!(result, Err(SchemaError::Range(_))),
            "{contents}: {result:?}"
        );
    }
    for (text, value) in [
        ("3", 3),
        ("\"3\"", 3),
        ("-0", 0),
        ("2147483647", i32::MAX),
        ("\"-2147483648\"", i32::MIN),
    ] {
        assert_eq!(
            json(&format!(r#"{{"rId":{text},"disconnect":{{}}}}"#)),
            disconnect(value)
        );
    }
    for text in [
        "2147483648",
        "1.0",
        "1e3",
        "\"\"",
        "\" 3\"",
        "-",
        "+3",
        "99999999999999999999999",
        "true",
        "[]",
        "{}",
    ] {
        assert!(
            json(&format!(r#"{{"rId":{text},"disconnect":{{}}}}"#)).is_err(),
            "{text}"
        );
    }
    // Unsigned 64 bits, with and without the top bit.
    let flags = |contents: &str| {
        ber(&format!(
            "3080 800101 a180 aa80 a080 83{contents} 0000 0000 0000 0000"
        ))
    };
    for (contents, value) in [
        ("0900ffffffffffffffff", u64::MAX),
        ("087fffffffffffffff", u64::MAX >> 1),
    ] {
        let ControlBody::OpenQueue(open) = flags(contents).unwrap().body else {
            panic!("not an open")
        };
        assert_eq!(open.handle_parameters.flags, value);
    }
    assert!(
        matches!(flags("08ffffffffffffffff"), Err(SchemaError::Range(_))),
        "negative"
    );
}

#[test]
fn enumerations_have_no_other_values() {
    assert!(matches!(
        ber("3080 a180 a080 800109 0000 0000 0000"),
        Err(SchemaError::Range(_))
    ));
    assert!(matches!(
        json(r#"{"status":{"category":"E_NOPE"}}"#),
        Err(SchemaError::Range(_))
    ));
    assert!(matches!(
        json(r#"{"status":{"category":7}}"#),
        Err(SchemaError::Range(_))
    ));
}

#[test]
fn text_that_is_not_utf8_is_kept_in_length_and_valid_nowhere() {
    let command = |document: ControlMessage| match document.body {
        ControlBody::AdminCommand(AdminCommand { command }) => command,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        command(ber("3080 a180 a780 8005 41ff c3 80 42 0000 0000 0000").unwrap()),
        "A\u{1A}\u{C0}B"
    );
    let json: ControlMessage = decode(
        Encoding::Json,
        b"{\"adminCommand\":{\"command\":\"A\xff\xc3\\n\\ud800B\"}}",
    )
    .unwrap();
    assert_eq!(command(json), "A\u{1A}\u{1A}\n\u{1A}B");
    assert!(!mqb_core::uri::is_app_id("A\u{1A}"));
}

#[test]
fn json_escapes_are_read_and_written() {
    let text = "\u{1F600}é/\\\"\u{8}\u{c}\n\r\t\0\u{1f}";
    let document = ControlMessage {
        rid: None,
        body: ControlBody::AdminCommand(AdminCommand {
            command: text.into(),
        }),
    };
    let mut out = Vec::new();
    encode(Encoding::Json, &document, &mut out);
    let expected = r#"{"adminCommand":{"command":"😀é\/\\\"\b\f\n\r\t\u0000\u001F"}}"#;
    assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
    assert_eq!(decode(Encoding::Json, &out).as_ref(), Ok(&document));
    assert_eq!(
        json(
            &expected
                .replace("\\/", "/")
                .replace('😀', "\\uD83D\\ude00")
                .replace('é', "\\u00e9")
        ),
        Ok(document)
    );
    assert_eq!(
        json(r#"{"\u0072Id":7,"disconne\u0063t":{}}"#),
        disconnect(7)
    );
    for bad in [r#""\x""#, r#""\u12""#, r#""\u12g4""#, r#""\"#, r#""abc"#] {
        assert!(
            json(&format!(r#"{{"adminCommand":{{"command":{bad}}}}}"#)).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn json_must_be_whole_and_alone() {
    assert_eq!(
        json(" \n{ \"rId\" :\t7 , \"disconnect\" : { } }\r\n"),
        disconnect(7)
    );
    for bad in [
        "",
        "{",
        "{}x",
        "{}{}",
        "[]",
        "null",
        "{\"disconnect\"}",
        "{\"disconnect\":{},}",
        "{,}",
        "{\"disconnect\":{}",
        "{'a':1}",
    ] {
        assert!(json(bad).is_err(), "{bad}");
    }
    // Padding is only padding if it says so.
    assert_eq!(
        decode(Encoding::Json, b"{\"disconnect\":{}}\x03\x03\x03"),
        disconnect(None)
    );
    assert!(decode::<ControlMessage>(Encoding::Json, b"{\"disconnect\":{}}\x03\x03").is_err());
}

#[test]
fn byte_strings_are_base64_in_json() {
    let request = |data: &[u8]| {
        Authentication::Request(AuthenticationRequest {
            mechanism: "M".into(),
            data: Some(data.into()),
        })
    };
    for (text, data) in [
        ("", &b""[..]),
        ("YQ==", b"a"),
        ("YQ", b"a"),
        ("YWI=", b"ab"),
        ("YWJj", b"abc"),
        ("\\/+8=", b"\xff\xef"),
    ] {
        let document =
            format!(r#"{{"authenticationRequest":{{"mechanism":"M","data":"{text}"}}}}"#);
        assert_eq!(
            decode(Encoding::Json, document.as_bytes()),
            Ok(request(data)),
            "{text}"
        );
        let mut out = Vec::new();
        encode(Encoding::Json, &request(data), &mut out);
        assert!(text.len() % 4 != 0 || out == document.as_bytes(), "{text}");
    }
    for text in ["a", "YQ=", "Y!==", "YWJjZ"] {
        let document = format!(r#"{{"authenticationRequest":{{"data":"{text}"}}}}"#);
        let result = decode::<Authentication>(Encoding::Json, document.as_bytes());
        assert_eq!(result.is_ok(), text == "YQ=", "{text}");
    }
}

#[test]
fn depth_is_capped_whether_a_field_is_known_or_not() {
    let nested = |depth: usize| {
        [
            unhex("3080"),
            unhex("be80").repeat(depth),
            vec![0; 2 * depth],
            unhex("800107a102a100 0000"),
        ]
        .concat()
    };
    assert_eq!(
        decode(Encoding::Ber, &nested(SCHEMA_DEPTH_MAX)),
        disconnect(7)
    );
    assert_eq!(
        decode::<ControlMessage>(Encoding::Ber, &nested(SCHEMA_DEPTH_MAX + 1)),
        Err(SchemaError::Depth)
    );
    assert_eq!(
        decode::<ControlMessage>(Encoding::Ber, &nested(100_000)),
        Err(SchemaError::Depth)
    );
    let arrays = |depth| {
        format!(
            "{{\"x\":{}{},\"rId\":7,\"disconnect\":{{}}}}",
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert_eq!(json(&arrays(SCHEMA_DEPTH_MAX - 1)), disconnect(7));
    assert_eq!(json(&arrays(SCHEMA_DEPTH_MAX)), Err(SchemaError::Depth));
    assert_eq!(json(&arrays(100_000)), Err(SchemaError::Depth));
}

#[test]
fn elements_are_capped() {
    let flat = |count: usize| [unhex("3080"), unhex("9e00").repeat(count), unhex("0000")].concat();
    assert!(decode::<ControlMessage>(Encoding::Ber, &flat(SCHEMA_ELEMENTS_MAX - 1)).is_ok());
    assert_eq!(
        decode::<ControlMessage>(Encoding::Ber, &flat(SCHEMA_ELEMENTS_MAX)),
        Err(SchemaError::Elements)
    );
    let list = |count: usize| format!("{{\"x\":[{}0]}}", "0,".repeat(count));
    assert!(json(&list(SCHEMA_ELEMENTS_MAX - 3)).is_ok());
    assert_eq!(json(&list(SCHEMA_ELEMENTS_MAX)), Err(SchemaError::Elements));
}

#[test]
fn subscriptions_are_capped() {
    let configure = |count: usize| {
        let items = vec!["{}"; count].join(",");
        json(&format!(
            r#"{{"configureStream":{{"streamParameters":{{"subscriptions":[{items}]}}}}}}"#
        ))
    };
    assert!(configure(SUBSCRIPTIONS_MAX).is_ok());
    assert_eq!(configure(SUBSCRIPTIONS_MAX + 1), Err(SchemaError::Elements));
}

#[test]
fn lengths_cannot_leave_their_container() {
    for bad in [
        "3004 8003 0000",
        "3080 8004 01",
        "3084ffffffff",
        "30850000000001",
        "3005 800107 a102 a100",
        "3080 a105 a180 0000 0000",
        "3004 0000 0000",
        "0000",
        "",
        "30",
    ] {
        assert!(ber(bad).is_err(), "{bad}");
    }
}
