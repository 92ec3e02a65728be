//! The first exchange of a connection: who the peer is, what it can do, and whether it may stay. Pure.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use mqb_core::control::{
    BrokerResponse, Category, ClientIdentity, ClientKind, Encoding, Negotiation, SdkLanguage,
    Status,
};
use mqb_core::features::{self, Features};

use super::settings::SessionSettings;

/// Oldest C++ SDK (1.5.0) that the protocol still fits.
const SDK_VERSION_MIN_CPP: i32 = 10_500;
/// Characters of a peer's string that are kept for people to read.
const DESCRIPTION_CHARS_MAX: usize = 128;

/// What a negotiated peer is and can do.
#[derive(Clone, Debug)]
pub struct Peer {
    /// An operator's tool, as opposed to a producer or consumer.
    pub is_admin: bool,
    /// How it wants its control documents.
    pub encoding: Encoding,
    /// It understands new-style properties.
    pub takes_new_properties: bool,
    /// It answers HEARTBEAT_REQ.
    pub answers_heartbeats: bool,
    /// It gives its messages GUIDs.
    pub makes_guids: bool,
    /// Equal for two connections exactly if the second is a reconnect of the first; `None` if it does not say enough.
    pub identity: Option<String>,
    /// For people: program, process and host, escaped.
    pub description: Arc<str>,
}

/// What becomes of a peer.
#[derive(Debug)]
pub enum Verdict {
    /// It may stay; answer with this.
    Welcome(Peer, Box<Negotiation>),
    /// It is told why not, in this encoding, and has to go.
    Refuse(Encoding, Box<Negotiation>, &'static str),
    /// It has to go without an answer.
    Drop(&'static str),
}

/// Judges a peer's first document. `session_count` numbers this broker's connections.
pub fn judge(
    identity: &ClientIdentity,
    address: IpAddr,
    session_count: u64,
    settings: &SessionSettings,
) -> Verdict {
    let features = Features::parse(&identity.features);
    let encoding = features.encoding;
    let refuse = |category, is_deprecated_sdk, text: &'static str| {
        let status = Status {
            category,
            code: -1,
            message: text.into(),
        };
        Verdict::Refuse(
            encoding,
            Box::new(response(
                status,
                is_deprecated_sdk,
                false,
                session_count,
                settings,
            )),
            text,
        )
    };
    match identity.kind {
        ClientKind::Client | ClientKind::Admin => {}
        ClientKind::Broker => return refuse(Category::Refused, false, "brokers are not served"),
        ClientKind::Unknown => return Verdict::Drop("no kind of peer given"),
    }
    if identity.sdk_language == SdkLanguage::Cpp && identity.sdk_version < SDK_VERSION_MIN_CPP {
        return refuse(Category::NotSupported, true, "the SDK is too old");
    }
    let answers_heartbeats =
        identity.sdk_language != SdkLanguage::Java && !settings.heartbeat_interval.is_zero();
    let peer = Peer {
        is_admin: identity.kind == ClientKind::Admin,
        encoding,
        takes_new_properties: features.new_properties,
        answers_heartbeats,
        makes_guids: !identity.guid_info.client_id.is_empty(),
        identity: identity_key(identity, address),
        description: describe(identity, address).into(),
    };
    let status = Status {
        category: Category::Success,
        code: 0,
        message: String::new(),
    };
    Verdict::Welcome(
        peer,
        Box::new(response(
            status,
            false,
            answers_heartbeats,
            session_count,
            settings,
        )),
    )
}

fn response(
    result: Status,
    is_deprecated_sdk: bool,
    monitors: bool,
    session_count: u64,
    settings: &SessionSettings,
) -> Negotiation {
    let interval_ms = i32::try_from(settings.heartbeat_interval.as_millis()).unwrap_or(i32::MAX);
    let misses = i32::try_from(settings.heartbeat_misses).unwrap_or(i32::MAX);
    Negotiation::BrokerResponse(BrokerResponse {
        result,
        protocol_version: 1,
        broker_version: settings.broker_version,
        is_deprecated_sdk,
        broker_identity: ClientIdentity {
            protocol_version: 1,
            sdk_version: settings.broker_version,
            kind: ClientKind::Broker,
            process_name: "mqb-broker".into(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            session_id: i32::try_from(session_count).unwrap_or(i32::MAX),
            host_name: settings.host_name.clone(),
            features: features::BROKER.into(),
            user_agent: Some(concat!("mqb-broker:", env!("CARGO_PKG_VERSION")).into()),
            ..ClientIdentity::default()
        },
        // Peers that monitor the broker do so at the pace at which it monitors them.
        heartbeat_interval_ms: if interval_ms > 0 { interval_ms } else { 3000 },
        max_missed_heartbeats: if monitors { misses } else { 0 },
    })
}

/// A reconnecting SDK sends the same identity again. The address keeps one peer from ending another's connection by
/// naming a client id that it saw in a message's GUID.
fn identity_key(identity: &ClientIdentity, address: IpAddr) -> Option<String> {
    let client_id = &identity.guid_info.client_id;
    let says_enough =
        !client_id.is_empty() || (identity.pid != 0 && !identity.host_name.is_empty());
    says_enough.then(|| {
        let ClientIdentity {
            process_name,
            pid,
            session_id,
            host_name,
            ..
        } = identity;
        format!("{address}\0{client_id}\0{host_name}\0{process_name}\0{pid}\0{session_id}")
    })
}

fn describe(identity: &ClientIdentity, address: IpAddr) -> String {
    let mut text = String::new();
    let program = identity.process_name.rsplit('/').next().unwrap_or_default();
    push_escaped(&mut text, if program.is_empty() { "?" } else { program });
    // Writing to a string cannot fail.
    let _ = write!(text, ":{}.{}@", identity.pid, identity.session_id);
    if identity.host_name.is_empty() {
        let _ = write!(text, "{address}");
    } else {
        push_escaped(&mut text, &identity.host_name);
    }
    text
}

fn push_escaped(text: &mut String, raw: &str) {
    text.extend(
        raw.chars()
            .flat_map(char::escape_debug)
            .take(DESCRIPTION_CHARS_MAX),
    );
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use mqb_core::control::GuidInfo;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn python() -> ClientIdentity {
        ClientIdentity {
            protocol_version: 1,
            kind: ClientKind::Client,
            process_name: "/usr/bin/python3".into(),
            pid: 4711,
            features: "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX".into(),
            guid_info: GuidInfo {
                client_id: "0123456789AB".into(),
                nanoseconds_from_epoch: 1,
            },
            ..ClientIdentity::default()
        }
    }

    fn java() -> ClientIdentity {
        ClientIdentity {
            features: "PROTOCOL_ENCODING:JSON;MPS:MESSAGE_PROPERTIES_EX".into(),
            sdk_language: SdkLanguage::Java,
            host_name: "box".into(),
            guid_info: GuidInfo::default(),
            ..python()
        }
    }

    fn welcome(identity: &ClientIdentity) -> (Peer, BrokerResponse) {
        match judge(identity, ADDRESS, 1, &SessionSettings::default()) {
            Verdict::Welcome(peer, response) => match *response {
                Negotiation::BrokerResponse(response) => (peer, response),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn python_peer_gets_ber_heartbeats_and_new_properties() {
        let (peer, response) = welcome(&python());
        assert_eq!(peer.encoding, Encoding::Ber);
        assert!(
            peer.takes_new_properties
                && peer.answers_heartbeats
                && peer.makes_guids
                && !peer.is_admin
        );
        assert_eq!(&*peer.description, "python3:4711.1@127.0.0.1");
        assert_eq!(response.result.category, Category::Success);
        assert_eq!(
            (
                response.heartbeat_interval_ms,
                response.max_missed_heartbeats
            ),
            (3000, 10)
        );
        assert!(
            response
                .broker_identity
                .features
                .contains("MPS:MESSAGE_PROPERTIES_EX")
        );
    }

    #[test]
    fn java_peer_gets_json_no_heartbeats_and_guids_from_the_broker() {
        let (peer, response) = welcome(&java());
        assert_eq!(peer.encoding, Encoding::Json);
        assert!(!peer.answers_heartbeats && !peer.makes_guids);
        assert_eq!(response.max_missed_heartbeats, 0);
    }

    #[test]
    fn nothing_said_about_features_means_ber_and_old_properties() {
        let (peer, _) = welcome(&ClientIdentity {
            features: String::new(),
            ..python()
        });
        assert_eq!(peer.encoding, Encoding::Ber);
        assert!(!peer.takes_new_properties);
    }

    #[test]
    fn a_reconnect_has_the_same_identity_and_nobody_else_has() {
        let (first, _) = welcome(&python());
        assert_eq!(first.identity, welcome(&python()).0.identity);
        let mut others = vec![java(), python(), python(), python()];
        others[1].guid_info.client_id = "0123456789AC".into();
        others[2].session_id = 2;
        others[3].pid = 1;
        for other in others {
            assert_ne!(first.identity, welcome(&other).0.identity);
        }
        let vague = ClientIdentity {
            host_name: String::new(),
            ..java()
        };
        assert_eq!(welcome(&vague).0.identity, None);
    }

    #[test]
    fn old_sdks_are_told_so_and_unknown_peers_are_dropped() {
        let old = ClientIdentity {
            sdk_version: 10_499,
            ..python()
        };
        match judge(&old, ADDRESS, 1, &SessionSettings::default()) {
            Verdict::Refuse(Encoding::Ber, response, _) => match *response {
                Negotiation::BrokerResponse(response) => {
                    assert_eq!(
                        (response.result.category, response.result.code),
                        (Category::NotSupported, -1)
                    );
                    assert!(response.is_deprecated_sdk);
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
        let unknown = ClientIdentity {
            kind: ClientKind::Unknown,
            ..python()
        };
        assert!(matches!(
            judge(&unknown, ADDRESS, 1, &SessionSettings::default()),
            Verdict::Drop(_)
        ));
    }

    #[test]
    fn a_peers_strings_are_escaped_and_shortened() {
        let nasty = ClientIdentity {
            process_name: format!("a\nb\u{1b}[2J{}", "x".repeat(1000)),
            ..python()
        };
        let (peer, _) = welcome(&nasty);
        assert!(peer.description.starts_with("a\\nb\\u{1b}[2J"));
        assert!(peer.description.len() < 200 && !peer.description.contains('\n'));
    }
}
