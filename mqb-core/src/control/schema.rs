//! Every type of the control documents, each field with its BER number and JSON name.
//!
//! Names are the protocol's in Rust's spelling. A field's default is what an absent one means.

use super::codec::{
    Decoder, Encoder, Item, Key, NO_KEY, Root, Shape, Slot, Value, choice, enumeration, sequence,
};
use crate::error::SchemaError;
use crate::limits;

/// The implicit app id.
pub const DEFAULT_APP_ID: &str = "__default";
/// A consumer priority that means "none".
pub const NO_PRIORITY: i32 = i32::MIN;

enumeration! {
    /// Outcome of a request.
    Category {
        /// Done.
        Success = 0 "E_SUCCESS",
        /// Anything else; also an unknown queue, domain, or too many producers or consumers.
        Unknown = -1 "E_UNKNOWN",
        /// Took too long.
        Timeout = -2 "E_TIMEOUT",
        /// No connection.
        NotConnected = -3 "E_NOT_CONNECTED",
        /// Canceled. Never an answer to an open: the official SDK takes it for its own and hangs.
        Canceled = -4 "E_CANCELED",
        /// Not offered.
        NotSupported = -5 "E_NOT_SUPPORTED",
        /// Not allowed.
        Refused = -6 "E_REFUSED",
        /// The request makes no sense.
        InvalidArgument = -7 "E_INVALID_ARGUMENT",
        /// Not now.
        NotReady = -8 "E_NOT_READY",
    }
}

enumeration! {
    /// What a peer is.
    ClientKind {
        /// Not said; refused.
        Unknown = 0 "E_UNKNOWN",
        /// A producer or consumer.
        Client = 1 "E_TCPCLIENT",
        /// Another broker.
        Broker = 2 "E_TCPBROKER",
        /// An operator's tool.
        Admin = 3 "E_TCPADMIN",
    }
}

enumeration! {
    /// A peer's SDK.
    SdkLanguage {
        /// Not said.
        Unknown = 0 "E_UNKNOWN",
        /// C++, and Python on top of it.
        Cpp = 1 "E_CPP",
        /// Java. Knows no heartbeats.
        Java = 2 "E_JAVA",
    }
}

enumeration! {
    /// Language of a subscription's expression.
    ExpressionVersion {
        /// No expression.
        Undefined = 0 "E_UNDEFINED",
        /// The first.
        Version1 = 1 "E_VERSION_1",
    }
}

sequence! {
    /// A document's part without fields.
    Empty {}
}

sequence! {
    /// Outcome of a request.
    Status {
        /// The kind of outcome.
        0 category "category": Category = Category::Success,
        /// Detail for machines.
        1 code "code": i32 = 0,
        /// Detail for people.
        2 message "message": String = String::new(),
    }
}

sequence! {
    /// How a peer makes its message GUIDs.
    GuidInfo {
        /// Bytes 10 to 15 of each, 12 hex digits; empty: the broker makes them.
        0 client_id "clientId": String = String::new(),
        /// What the GUIDs' nanoseconds count from.
        1 nanoseconds_from_epoch "nanoSecondsFromEpoch": i64 = 0,
    }
}

sequence! {
    /// Who a peer is: a client's first document, and part of a broker's answer.
    ClientIdentity {
        /// 1.
        0 protocol_version "protocolVersion": i32 = 0,
        /// major x 10000 + minor x 100 + patch; 999999: development.
        1 sdk_version "sdkVersion": i32 = 999_999,
        /// What it is.
        2 kind "clientType": ClientKind = ClientKind::Unknown,
        /// Its program.
        3 process_name "processName": String = String::new(),
        /// Its process.
        4 pid "pid": i32 = 0,
        /// Counts the sessions of the process, from 1.
        5 session_id "sessionId": i32 = 1,
        /// Its host; empty: known from the connection.
        6 host_name "hostName": String = String::new(),
        /// What it can do; see [`crate::features`].
        7 features "features": String = String::new(),
        /// Brokers only.
        8 cluster_name "clusterName": String = String::new(),
        /// Brokers only; -1: no member.
        9 cluster_node_id "clusterNodeId": i32 = -1,
        /// Its SDK.
        10 sdk_language "sdkLanguage": SdkLanguage = SdkLanguage::Cpp,
        /// How it makes GUIDs. Java leaves it out.
        11 guid_info "guidInfo": GuidInfo = GuidInfo::default(),
        /// Newer peers only; absent and empty mean the same.
        12 user_agent "userAgent": Option<String> = None,
    }
}

sequence! {
    /// A broker's answer to a [`ClientIdentity`].
    BrokerResponse {
        /// Whether the session stands.
        0 result "result": Status = Status::default(),
        /// 1.
        1 protocol_version "protocolVersion": i32 = 0,
        /// As `sdk_version`.
        2 broker_version "brokerVersion": i32 = 0,
        /// The client should be replaced by a newer one.
        3 is_deprecated_sdk "isDeprecatedSdk": bool = false,
        /// Who the broker is. Java insists on it.
        4 broker_identity "brokerIdentity": ClientIdentity = ClientIdentity::default(),
        /// For the client's monitoring of the broker. **Units**: ms.
        5 heartbeat_interval_ms "heartbeatIntervalMs": i32 = 3000,
        /// 0: none.
        6 max_missed_heartbeats "maxMissedHeartbeats": i32 = 10,
    }
}

choice! {
    /// The first documents of a connection (behind authentication, if there is any).
    Negotiation {
        /// From the client.
        0 ClientIdentity "clientIdentity": ClientIdentity,
        /// From the broker.
        1 BrokerResponse "brokerResponse": BrokerResponse,
        /// Retired.
        2 Placeholder "placeHolder": Empty,
    }
}

sequence! {
    /// Credentials.
    AuthenticationRequest {
        /// Compared without regard to case.
        0 mechanism "mechanism": String = String::new(),
        /// Of the mechanism's own form.
        1 data "data": Option<Vec<u8>> = None,
    }
}

sequence! {
    /// Answer to credentials.
    AuthenticationResponse {
        /// Success, or refused.
        0 status "status": Status = Status::default(),
        /// To be renewed within. **Units**: ms.
        1 lifetime_ms "lifetimeMs": Option<u64> = None,
    }
}

choice! {
    /// Documents of AUTHENTICATION events.
    Authentication {
        /// From the client.
        0 Request "authenticationRequest": AuthenticationRequest,
        /// From the broker.
        1 Response "authenticationResponse": AuthenticationResponse,
    }
}

sequence! {
    /// A sub-stream of a queue: one app id.
    SubQueueIdInfo {
        /// The peer's number for it.
        0 sub_id "subId": u32 = 0,
        /// The app id.
        1 app_id "appId": String = DEFAULT_APP_ID.into(),
    }
}

sequence! {
    /// What a peer opens or closes.
    QueueHandleParameters {
        /// The queue's URI, as the application wrote it.
        0 uri "uri": String = String::new(),
        /// The peer's number for the queue.
        1 q_id "qId": u32 = 0,
        /// Present for a URI with an app id.
        2 sub_id_info "subIdInfo": Option<SubQueueIdInfo> = None,
        /// Bits of [`queue_flags`].
        3 flags "flags": u64 = 0,
        /// Handles for reading, opened or closed by this request.
        4 read_count "readCount": i32 = 0,
        /// Handles for writing.
        5 write_count "writeCount": i32 = 0,
        /// Handles for administration.
        6 admin_count "adminCount": i32 = 0,
    }
}

/// Bits of [`QueueHandleParameters::flags`].
pub mod queue_flags {
    /// Refused from clients.
    pub const ADMIN: u64 = 1;
    /// Consume.
    pub const READ: u64 = 2;
    /// Produce.
    pub const WRITE: u64 = 4;
    /// A hint without meaning for the wire.
    pub const ACK: u64 = 8;
}

/// Bits of [`RoutingConfiguration::flags`].
pub mod routing_flags {
    /// Consumers need not confirm.
    pub const AT_MOST_ONCE: u64 = 1;
    /// By consumers' priorities.
    pub const DELIVER_CONSUMER_PRIORITY: u64 = 2;
    /// To all consumers.
    pub const DELIVER_ALL: u64 = 4;
    /// Several app ids.
    pub const HAS_MULTIPLE_SUB_STREAMS: u64 = 8;

    /// What the reference announces for a priority queue.
    pub const PRIORITY: u64 = DELIVER_CONSUMER_PRIORITY;
    /// What the reference announces for a fan-out queue.
    pub const FANOUT: u64 = DELIVER_CONSUMER_PRIORITY | HAS_MULTIPLE_SUB_STREAMS;
    /// What the reference announces for a broadcast queue.
    pub const BROADCAST: u64 = AT_MOST_ONCE | DELIVER_CONSUMER_PRIORITY | DELIVER_ALL;
}

sequence! {
    /// Opens a queue.
    OpenQueue {
        /// What and how.
        0 handle_parameters "handleParameters": QueueHandleParameters = QueueHandleParameters::default(),
    }
}

sequence! {
    /// How messages of a queue find consumers.
    RoutingConfiguration {
        /// Bits of [`routing_flags`].
        0 flags "flags": u64 = 0,
    }
}

sequence! {
    /// The queue is open.
    OpenQueueResponse {
        /// The request, unchanged.
        0 original_request "originalRequest": OpenQueue = OpenQueue::default(),
        /// How its messages find consumers.
        1 routing_configuration "routingConfiguration": RoutingConfiguration = RoutingConfiguration::default(),
        /// For how long a repeated GUID is recognised. **Units**: ms.
        2 deduplication_time_ms "deduplicationTimeMs": i32 = 300_000,
    }
}

sequence! {
    /// Closes a queue, or one sub-stream of it.
    CloseQueue {
        /// As in the open.
        0 handle_parameters "handleParameters": QueueHandleParameters = QueueHandleParameters::default(),
        /// No sub-stream of the queue stays open.
        1 is_final "isFinal": bool = false,
    }
}

sequence! {
    /// Parameters of a consumer, old form: one per sub-stream.
    QueueStreamParameters {
        /// Present for a URI with an app id.
        0 sub_id_info "subIdInfo": Option<SubQueueIdInfo> = None,
        /// Window in messages; 0: no delivery.
        1 max_unconfirmed_messages "maxUnconfirmedMessages": i64 = 0,
        /// Window in bytes; 0: no delivery.
        2 max_unconfirmed_bytes "maxUnconfirmedBytes": i64 = 0,
        /// Higher first; [`NO_PRIORITY`]: none.
        3 consumer_priority "consumerPriority": i32 = NO_PRIORITY,
        /// Weight among consumers of one priority.
        4 consumer_priority_count "consumerPriorityCount": i32 = 0,
    }
}

sequence! {
    /// Starts, changes or stops delivery, old form.
    ConfigureQueueStream {
        /// The peer's number for the queue.
        0 q_id "qId": u32 = 0,
        /// How to deliver.
        1 stream_parameters "streamParameters": QueueStreamParameters = QueueStreamParameters::default(),
    }
}

sequence! {
    /// Delivery is as asked.
    ConfigureQueueStreamResponse {
        /// The request with the values in force.
        0 request "request": ConfigureQueueStream = ConfigureQueueStream::default(),
    }
}

sequence! {
    /// Which messages a subscription wants.
    Expression {
        /// Language of the text.
        0 version "version": ExpressionVersion = ExpressionVersion::Undefined,
        /// A condition on properties; empty: all.
        1 text "text": String = String::new(),
    }
}

sequence! {
    /// Window, priority and weight of a subscription.
    ConsumerInfo {
        /// Window in messages; 0: no delivery.
        0 max_unconfirmed_messages "maxUnconfirmedMessages": i64 = 0,
        /// Window in bytes; 0: no delivery.
        1 max_unconfirmed_bytes "maxUnconfirmedBytes": i64 = 0,
        /// Higher first; [`NO_PRIORITY`]: none.
        2 consumer_priority "consumerPriority": i32 = NO_PRIORITY,
        /// Weight among consumers of one priority.
        3 consumer_priority_count "consumerPriorityCount": i32 = 0,
    }
}

sequence! {
    /// One subscription of a sub-stream.
    Subscription {
        /// The peer's number for it; what a PUSH carries.
        0 s_id "sId": u32 = 0,
        /// What it wants.
        1 expression "expression": Expression = Expression::default(),
        /// One entry from clients.
        2 consumers "consumers": Vec<ConsumerInfo> = Vec::new(),
    }
}

sequence! {
    /// Parameters of a consumer.
    StreamParameters {
        /// Which sub-stream.
        0 app_id "appId": String = DEFAULT_APP_ID.into(),
        /// None: no delivery.
        1 subscriptions "subscriptions": Vec<Subscription> = Vec::new(),
    }
}

sequence! {
    /// Starts, changes or stops delivery.
    ConfigureStream {
        /// The peer's number for the queue.
        0 q_id "qId": u32 = 0,
        /// How to deliver.
        1 stream_parameters "streamParameters": StreamParameters = StreamParameters::default(),
    }
}

sequence! {
    /// Delivery is as asked.
    ConfigureStreamResponse {
        /// The request with the values in force.
        0 request "request": ConfigureStream = ConfigureStream::default(),
    }
}

sequence! {
    /// An operator's command.
    AdminCommand {
        /// A line of text.
        0 command "command": String = String::new(),
    }
}

sequence! {
    /// Answer to an operator's command.
    AdminResponse {
        /// For people, or JSON.
        0 text "text": String = String::new(),
    }
}

impl Item for Subscription {
    const MAX: usize = limits::SUBSCRIPTIONS_MAX;
}

impl Item for ConsumerInfo {
    const MAX: usize = limits::CONSUMERS_PER_SUBSCRIPTION_MAX;
}

choice! {
    /// What a control message asks or answers.
    ControlBody {
        /// Failure of any request (or success, if a broker so pleases).
        0 Status "status": Status,
        /// The client leaves.
        1 Disconnect "disconnect": Empty,
        /// The last document of a session.
        2 DisconnectResponse "disconnectResponse": Empty,
        /// From an operator.
        7 AdminCommand "adminCommand": AdminCommand,
        /// To an operator.
        8 AdminResponse "adminCommandResponse": AdminResponse,
        /// Opens a queue.
        10 OpenQueue "openQueue": OpenQueue,
        /// It is open.
        11 OpenQueueResponse "openQueueResponse": OpenQueueResponse,
        /// Closes a queue.
        12 CloseQueue "closeQueue": CloseQueue,
        /// It is closed.
        13 CloseQueueResponse "closeQueueResponse": Empty,
        /// Configures delivery, old form.
        14 ConfigureQueueStream "configureQueueStream": ConfigureQueueStream,
        /// It is configured.
        15 ConfigureQueueStreamResponse "configureQueueStreamResponse": ConfigureQueueStreamResponse,
        /// Configures delivery.
        16 ConfigureStream "configureStream": ConfigureStream,
        /// It is configured.
        17 ConfigureStreamResponse "configureStreamResponse": ConfigureStreamResponse,
    }
    /// None of these: a message between brokers, or from the future. Encodes as no selection.
    Unknown,
}

/// A request or answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlMessage {
    /// Ties an answer to its request. A request without one gets no answer.
    pub rid: Option<i32>,
    /// What it asks or answers.
    pub body: ControlBody,
}

const R_ID: Key = Key { id: 0, name: "rId" };
const BODY: u8 = 1;

impl Root for ControlMessage {
    fn encode_root<E: Encoder>(&self, encoder: &mut E) {
        encoder.sequence(NO_KEY, |encoder| {
            self.rid.encode(R_ID, encoder);
            encoder.choice(BODY, |encoder| self.body.encode_selection(encoder));
        });
    }

    fn decode_root<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
        const SHAPE: Shape = Shape {
            fields: &[R_ID],
            selections: ControlBody::SELECTIONS,
            wrap: BODY,
        };
        let mut message = ControlMessage {
            rid: None,
            body: ControlBody::Unknown,
        };
        decoder.sequence(&SHAPE, &mut |slot, decoder| {
            match slot {
                Slot::Field(_) => message.rid = Value::decode(decoder)?,
                Slot::Selection(index) => {
                    message.body = ControlBody::decode_selection(index, decoder)?
                }
            }
            Ok(())
        })?;
        Ok(message)
    }
}

macro_rules! named_choice_root {
    ($($name:ident),*) => {$(
        impl Root for $name {
            fn encode_root<E: Encoder>(&self, encoder: &mut E) {
                encoder.sequence(NO_KEY, |encoder| encoder.choice(0, |encoder| self.encode_selection(encoder)));
            }

            fn decode_root<D: Decoder>(decoder: &mut D) -> Result<Self, SchemaError> {
                const SHAPE: Shape = Shape { fields: &[], selections: $name::SELECTIONS, wrap: 0 };
                let mut selected = None;
                decoder.sequence(&SHAPE, &mut |slot, decoder| {
                    if let Slot::Selection(index) = slot {
                        selected = Some($name::decode_selection(index, decoder)?);
                    }
                    Ok(())
                })?;
                selected.ok_or(SchemaError::NoSelection)
            }
        }
    )*};
}
named_choice_root!(Negotiation, Authentication);
