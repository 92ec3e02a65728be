//! Every golden event decodes to its recorded fields and encodes again to the same bytes.

use mqb_core::compress::Inflater;
use mqb_core::control::{self, Authentication, ControlMessage, Document, Encoding, Negotiation};
use mqb_core::data::{self, Contents};
use mqb_core::properties::{PropertiesBuilder, PropertyKind};
use mqb_core::wire::*;
use mqb_core::{Compression, DataFormat, Guid, PropertiesStyle, checksum};
use serde_json::{Map, Value, json};

const KINDS: [(&str, EventKind); 9] = [
    ("CONTROL", EventKind::Control),
    ("PUT", EventKind::Put),
    ("CONFIRM", EventKind::Confirm),
    ("PUSH", EventKind::Push),
    ("ACK", EventKind::Ack),
    ("HEARTBEAT_REQ", EventKind::HeartbeatRequest),
    ("HEARTBEAT_RSP", EventKind::HeartbeatResponse),
    ("REJECT", EventKind::Reject),
    ("AUTHENTICATION", EventKind::Authentication),
];

#[test]
fn official_sdk_vectors() {
    check_file(include_str!("data/wire-vectors.json"), 70, 1);
}

#[test]
fn reference_broker_vectors() {
    check_file(include_str!("data/wire-vectors-broker.json"), 124, 0);
}

/// `python_json`: how many JSON documents with a `/` were written by Python, which leaves it unescaped.
fn check_file(text: &str, count: usize, python_json: usize) {
    let file: Value = serde_json::from_str(text).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), count);
    let mut unescaped = 0;
    for vector in vectors {
        let name = vector["name"].as_str().unwrap();
        let frame = unhex(vector["hex"].as_str().unwrap());
        unescaped += usize::from(check_event(
            name,
            &frame,
            &vector["decoded"],
            python_json > 0,
        ));
    }
    assert_eq!(
        unescaped, python_json,
        "documents that differ in the spelling of a slash"
    );
}

/// Returns whether this was a JSON document by Python.
fn check_event(name: &str, frame: &[u8], decoded: &Value, python_json: bool) -> bool {
    let limits = if frame[4] & 0x3F == 4 {
        FrameLimits::CLIENT
    } else {
        FrameLimits::BROKER
    };
    assert_eq!(
        frame_length(frame, &limits),
        Ok(Some(frame.len())),
        "{name}"
    );
    let event = Event::parse(frame).unwrap();
    assert_eq!(event.header.length, decoded["length"], "{name}");
    assert_eq!(event.header.version, decoded["pv"], "{name}");
    assert_eq!(
        event.header.type_specific, decoded["typeSpecific"],
        "{name}"
    );
    let kind = KINDS
        .iter()
        .find(|(name, _)| decoded["type"] == *name)
        .expect(name)
        .1;
    assert_eq!(event.header.kind, kind, "{name}");
    match kind {
        EventKind::Control if decoded["message"].get("clientIdentity").is_some() => {
            return check_document::<Negotiation>(name, frame, &event, decoded, python_json);
        }
        EventKind::Control if decoded["message"].get("brokerResponse").is_some() => {
            return check_document::<Negotiation>(name, frame, &event, decoded, python_json);
        }
        EventKind::Control => {
            return check_document::<ControlMessage>(name, frame, &event, decoded, python_json);
        }
        EventKind::Authentication => {
            return check_document::<Authentication>(name, frame, &event, decoded, python_json);
        }
        EventKind::Put => check_put(name, frame, &event, decoded),
        EventKind::Push => check_push(name, frame, &event, decoded),
        EventKind::Ack => check_ack(name, frame, &event, decoded),
        EventKind::Confirm => check_confirm(name, frame, &event, decoded),
        EventKind::HeartbeatRequest => assert_eq!(frame, HEARTBEAT_REQUEST),
        EventKind::HeartbeatResponse => assert_eq!(frame, HEARTBEAT_RESPONSE),
        EventKind::Reject | EventKind::Other(_) => panic!("{name}: nobody captured one of these"),
    }
    false
}

fn check_document<M: Document + PartialEq + std::fmt::Debug>(
    name: &str,
    frame: &[u8],
    event: &Event<'_>,
    decoded: &Value,
    python_json: bool,
) -> bool {
    let encoding = Encoding::from_type_specific(event.header.type_specific).unwrap();
    assert_eq!(
        format!("{encoding:?}").to_uppercase(),
        decoded["encoding"],
        "{name}"
    );
    let document: M =
        control::decode_event(event).unwrap_or_else(|error| panic!("{name}: {error}"));

    // The recorded fields, and nothing else: compared through our JSON, which leaves no field out.
    let mut json = Vec::new();
    control::encode(Encoding::Json, &document, &mut json);
    let ours: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(ours, normalised(&decoded["message"]), "{name}");

    // Either encoding carries the same document.
    for other in [Encoding::Ber, Encoding::Json] {
        let mut bytes = Vec::new();
        let length = control::encode_event(other, &document, &mut bytes);
        assert_eq!(length, bytes.len());
        assert_eq!(
            control::decode_event::<M>(&Event::parse(&bytes).unwrap()).as_ref(),
            Ok(&document),
            "{name}"
        );
    }

    let mut again = Vec::new();
    control::encode_event(encoding, &document, &mut again);
    if again == frame {
        return false;
    }
    assert!(
        python_json && encoding == Encoding::Json,
        "{name} is encoded differently"
    );
    let text = String::from_utf8(json).unwrap().replace("\\/", "/");
    let body = &event.body[..event.body.len() - usize::from(*event.body.last().unwrap())];
    assert_eq!(text.as_bytes(), body, "{name}");
    true
}

/// Empty arrays are left out in our JSON, byte strings are in base64 there and in hex in the file.
fn normalised(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members
                .iter()
                .filter(|(_, value)| value.as_array().is_none_or(|items| !items.is_empty()));
            let map = kept.map(|(key, value)| match value.as_str() {
                Some("616c6963653a736563726574") if key == "data" => {
                    (key.clone(), json!("YWxpY2U6c2VjcmV0"))
                }
                _ => (key.clone(), normalised(value)),
            });
            Value::Object(map.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(normalised).collect(),
        other => other.clone(),
    }
}

fn check_put(name: &str, frame: &[u8], event: &Event<'_>, decoded: &Value) {
    let mut out = Vec::new();
    let mut builder = PutBuilder::begin(&mut out);
    let messages = decoded["messages"].as_array().unwrap();
    assert_eq!(PutIter::new(event).count(), messages.len(), "{name}");
    for (put, want) in PutIter::new(event).zip(messages) {
        let put = put.unwrap();
        assert_eq!(put.flags.0, want["flags"], "{name}");
        assert_eq!(put.queue.0, want["queueId"], "{name}");
        assert_eq!(put.guid, guid(want), "{name}");
        assert_eq!(put.schema, want["schemaId"], "{name}");
        assert_eq!(format!("{:08x}", put.crc), want["crc32c"], "{name}");
        assert_eq!(put.options.len(), 0, "{name}");
        assert_eq!(
            put.data,
            &frame[put.data_offset..][..put.data.len()],
            "{name}"
        );
        assert_eq!(put.crc, checksum::crc32c(put.data), "{name}");
        let format = put.validate(&mut Inflater::new(), &mut Vec::new()).unwrap();
        assert_eq!(put.format(), Ok(format), "{name}");
        check_data(name, format, put.data, want);
        let head = PutHead {
            queue: put.queue,
            guid: put.guid,
            flags: PutFlags::of(put.flags.ack_requested(), format),
            compression: format.compression(),
            schema: put.schema,
            crc: checksum::crc32c(put.data),
        };
        builder.append_copy(&mut out, &head, put.data).unwrap();
    }
    assert_eq!(builder.finish(&mut out), frame.len(), "{name}");
    assert_eq!(out, frame, "{name}");
}

fn check_push(name: &str, frame: &[u8], event: &Event<'_>, decoded: &Value) {
    let (mut copied, mut gathered) = (Vec::new(), Vec::new());
    let mut copying = PushBuilder::begin(&mut copied);
    let mut gathering = PushBuilder::begin(&mut gathered);
    let mut splices: Vec<(usize, &[u8])> = Vec::new();
    let mut all_old_ids = true;
    let messages = decoded["messages"].as_array().unwrap();
    assert_eq!(PushIter::new(event).count(), messages.len(), "{name}");
    for (push, want) in PushIter::new(event).zip(messages) {
        let push = push.unwrap();
        assert_eq!(push.flags.0, want["flags"], "{name}");
        assert_eq!(push.queue.0, want["queueId"], "{name}");
        assert_eq!(push.guid, guid(want), "{name}");
        assert_eq!(push.schema, want["schemaId"], "{name}");
        assert_eq!(
            push.data,
            &frame[push.data_offset..][..push.data.len()],
            "{name}"
        );
        let format = push.format().unwrap();
        check_data(name, format, push.data, want);
        let options = check_options(name, &push, want);
        let out_of_order = push.flags.contains(PushFlags::OUT_OF_ORDER);
        let head = PushHead {
            schema: push.schema,
            ..PushHead::new(push.queue, push.guid, format, out_of_order)
        };
        let at = gathering
            .append_options(&mut gathered, &head, &options, push.data.len())
            .unwrap();
        splices.push((at, push.data));
        let ids: Vec<_> = push
            .options()
            .unwrap()
            .subscriptions()
            .map(|(id, _)| id)
            .collect();
        copying
            .append_copy(&mut copied, &head, &ids, push.data)
            .unwrap();
        all_old_ids &= push
            .raw_options
            .first()
            .is_some_and(|first| first >> 2 == 1);
    }
    // Payloads gathered from elsewhere, options of any kind.
    assert_eq!(gathering.finish(&mut gathered), frame.len(), "{name}");
    let mut whole = Vec::new();
    let mut from = 0;
    for (at, data) in splices {
        whole.extend_from_slice(&gathered[from..at]);
        whole.extend_from_slice(data);
        from = at;
    }
    whole.extend_from_slice(&gathered[from..]);
    assert_eq!(whole, frame, "{name}");
    // Payloads copied, the one option that a broker sends to SDKs.
    let length = copying.finish(&mut copied);
    assert_eq!(length, copied.len());
    assert_eq!(copied == frame, all_old_ids, "{name}");
}

/// Compares the options with the recorded ones and writes them anew.
fn check_options(name: &str, push: &Push<'_>, want: &Value) -> Vec<u8> {
    let want = want["options"].as_array().unwrap();
    let raw: Vec<_> = RawOptionIter::new(push.raw_options)
        .map(Result::unwrap)
        .collect();
    assert_eq!(raw.len(), want.len(), "{name}");
    for (option, want) in raw.iter().zip(want) {
        assert_eq!(option.kind, want["type"], "{name}");
        assert_eq!(u8::from(option.packed), want["packed"], "{name}");
        assert_eq!(option.type_specific, want["ts"], "{name}");
        assert_eq!(option.words, want["words"], "{name}");
        assert_eq!(
            option.content,
            unhex(want["content"].as_str().unwrap_or("")),
            "{name}"
        );
    }
    let subscriptions: Vec<_> = push.options().unwrap().subscriptions().collect();
    let mut out = Vec::new();
    match raw.first().map(|option| (option.kind, option.packed)) {
        None => assert_eq!(subscriptions.len(), 1, "{name}"),
        Some((1, false)) => write_sub_queue_ids(
            &mut out,
            &subscriptions.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        ),
        Some((3, false)) => write_sub_queue_infos(&mut out, &subscriptions),
        Some((3, true)) => write_sub_queue_info_packed(&mut out, subscriptions[0].1),
        other => panic!("{name}: option {other:?}"),
    }
    assert_eq!(out, push.raw_options, "{name}");
    out
}

/// Compares properties and payload with the recorded ones and writes the properties anew.
fn check_data(name: &str, format: DataFormat, app: &[u8], want: &Value) {
    assert_eq!(format.compression() as u8, want["cat"], "{name}");
    assert_eq!(
        app.len(),
        want["appLen"].as_u64().unwrap_or(0) as usize,
        "{name}"
    );
    let mut scratch = Vec::new();
    let mut inflater = Inflater::new();
    let Contents {
        properties,
        payload,
    } = data::unpack(format, app, 1 << 20, &mut inflater, &mut scratch).unwrap();
    check_payload(name, payload, want);
    let Some(properties) = properties else {
        assert!(want.get("props").is_none(), "{name}");
        return;
    };
    let style = if want["style"] == "new" {
        PropertiesStyle::New
    } else {
        PropertiesStyle::Old
    };
    assert_eq!(format.properties(), Some(style), "{name}");
    let want = &want["props"];
    assert_eq!(properties.area_length(), want["areaBytes"], "{name}");
    assert_eq!(properties.count(), want["numProps"], "{name}");
    let mut builder = PropertiesBuilder::new();
    for (property, want) in properties.iter().zip(want["props"].as_array().unwrap()) {
        assert_eq!(
            property.name,
            want["name"].as_str().unwrap().as_bytes(),
            "{name}"
        );
        assert_eq!(
            format!("{:?}", property.kind).to_uppercase(),
            want["type"],
            "{name}"
        );
        assert_eq!(
            property.value,
            unhex(want["value"].as_str().unwrap()),
            "{name}"
        );
        let kind: PropertyKind = property.kind;
        builder.set(property.name, kind, property.value).unwrap();
    }
    let mut area = Vec::new();
    builder.write(style, &mut area);
    match (format.compression(), style) {
        (Compression::Zlib, PropertiesStyle::Old) => {
            let mut plain = Vec::new();
            inflater.inflate(app, 1 << 20, &mut plain).unwrap();
            assert!(plain.starts_with(&area), "{name}");
        }
        _ => assert!(app.starts_with(&area), "{name}"),
    }
}

/// Long payloads are recorded by their first 40 bytes and their length.
fn check_payload(name: &str, payload: &[u8], want: &Value) {
    let Some(want) = want["payload"].as_str() else {
        assert!(payload.is_empty(), "{name}");
        return;
    };
    match want.split_once("...(") {
        None => assert_eq!(payload, unhex(want), "{name}"),
        Some((start, length)) => {
            assert!(payload.starts_with(&unhex(start)), "{name}");
            assert_eq!(format!("{})", payload.len()), length, "{name}");
        }
    }
}

fn check_ack(name: &str, frame: &[u8], event: &Event<'_>, decoded: &Value) {
    let mut out = Vec::new();
    let mut builder = AckBuilder::begin(&mut out);
    let messages = decoded["messages"].as_array().unwrap();
    assert_eq!(AckIter::new(event).count(), messages.len(), "{name}");
    for (ack, want) in AckIter::new(event).zip(messages) {
        let ack = ack.unwrap();
        assert_eq!(ack.status as u8, want["status"], "{name}");
        assert_eq!(ack.correlation, want["corrId"], "{name}");
        assert_eq!(ack.guid, guid(want), "{name}");
        assert_eq!(ack.queue.0, want["queueId"], "{name}");
        builder.append(&mut out, &ack).unwrap();
    }
    assert_eq!(builder.finish(&mut out), frame.len(), "{name}");
    assert_eq!(out, frame, "{name}");
}

fn check_confirm(name: &str, frame: &[u8], event: &Event<'_>, decoded: &Value) {
    let mut out = Vec::new();
    let mut builder = ConfirmBuilder::begin(&mut out);
    let messages = decoded["messages"].as_array().unwrap();
    assert_eq!(ConfirmIter::new(event).count(), messages.len(), "{name}");
    for (confirm, want) in ConfirmIter::new(event).zip(messages) {
        let confirm = confirm.unwrap();
        assert_eq!(confirm.queue.0, want["queueId"], "{name}");
        assert_eq!(confirm.guid, guid(want), "{name}");
        assert_eq!(confirm.sub_id.0, want["subQueueId"], "{name}");
        builder.append(&mut out, &confirm).unwrap();
    }
    assert_eq!(builder.finish(&mut out), frame.len(), "{name}");
    assert_eq!(out, frame, "{name}");
}

fn guid(message: &Value) -> Guid {
    message["guid"].as_str().unwrap().parse().unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}
