//! The numbers that a peer chose, and the rules about them: queue numbers (`qId`), streams (`subId` and app id) and
//! subscriptions (`sId`) of one connection.
//!
//! Pure: no clock, no I/O, no handles (`T` is where an opened queue lives). All maps are sparse and capped, since every
//! number in them is a peer's. Checks come in the order, and answer with the categories, of the reference broker; where it
//! aborts or corrupts itself (numbers that clash, limits below zero, app ids outside the grammar) the request is refused.

use hashbrown::HashMap;
use mqb_core::control::schema::{DEFAULT_APP_ID, NO_PRIORITY, queue_flags};
use mqb_core::control::{
    Category, ConfigureQueueStream, ConfigureStream, ExpressionVersion, QueueHandleParameters,
    SubQueueIdInfo, Subscription,
};
use mqb_core::limits::RESERVED_QUEUE_ID_MIN;
use mqb_core::uri::{Uri, is_app_id};
use mqb_core::{SubId, SubscriptionId, WireQueueId};
use smallvec::SmallVec;

use super::settings::SessionSettings;
use crate::event::{CloseScope, Refusal, SubscriptionParameters};

/// One stream of a queue.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The peer's number; 0 is the default stream.
    pub sub_id: SubId,
    /// `None` for the default stream.
    pub app_id: Option<String>,
    /// Readers opened and not closed.
    pub read_count: u32,
    /// Writers opened and not closed.
    pub write_count: u32,
    /// What a PUSH may carry at this point of the output.
    subscriptions: SmallVec<[SubscriptionId; 2]>,
}

/// An opened queue.
#[derive(Clone, Debug)]
pub struct OpenQueue<T> {
    /// Canonical URI.
    pub uri: String,
    /// Where it lives.
    pub target: T,
    streams: SmallVec<[Stream; 1]>,
    /// All of it is being closed: nothing new is taken.
    pub is_closing: bool,
}

impl<T> OpenQueue<T> {
    fn stream(&self, sub_id: SubId) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.sub_id == sub_id)
    }

    fn stream_mut(&mut self, sub_id: SubId) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.sub_id == sub_id)
    }

    /// Whether the peer may PUT to it.
    pub fn is_writable(&self) -> bool {
        !self.is_closing
            && self
                .stream(SubId(0))
                .is_some_and(|stream| stream.write_count > 0)
    }

    /// Whether the peer may confirm on this stream.
    pub fn is_readable(&self, sub_id: SubId) -> bool {
        self.stream(sub_id)
            .is_some_and(|stream| stream.read_count > 0)
    }

    /// Whether a PUSH may carry `subscription` now.
    pub fn is_subscribed(&self, subscription: SubscriptionId) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.subscriptions.contains(&subscription))
    }
}

/// A valid open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenPlan {
    /// Canonical URI.
    pub uri: String,
    /// The queue number.
    pub queue: WireQueueId,
    /// The stream.
    pub sub_id: SubId,
    /// `None` for the default stream.
    pub app_id: Option<String>,
    /// Readers to add.
    pub read_count: u32,
    /// Writers to add.
    pub write_count: u32,
}

/// A valid configure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurePlan {
    /// The queue number.
    pub queue: WireQueueId,
    /// The stream.
    pub sub_id: SubId,
    /// Its new subscriptions.
    pub subscriptions: Vec<SubscriptionParameters>,
    /// The stream has no reader: there is nobody to tell.
    pub is_trivial: bool,
}

/// A valid close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosePlan {
    /// The queue number.
    pub queue: WireQueueId,
    /// What ends.
    pub scope: CloseScope,
}

/// The opened queues of one connection.
#[derive(Clone, Debug)]
pub struct Queues<T> {
    open: HashMap<WireQueueId, OpenQueue<T>>,
    streams: usize,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            open: HashMap::new(),
            streams: 0,
        }
    }
}

impl<T> Queues<T> {
    /// An opened queue.
    #[inline]
    pub fn get(&self, queue: WireQueueId) -> Option<&OpenQueue<T>> {
        self.open.get(&queue)
    }

    /// How many queue numbers are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Judges an openQueue.
    ///
    /// **Errors**: the refusal to answer with.
    pub fn check_open(
        &self,
        request: &QueueHandleParameters,
        settings: &SessionSettings,
    ) -> Result<OpenPlan, Refusal> {
        let Ok(uri) = Uri::parse(&request.uri) else {
            return Err(Refusal::new(
                Category::Refused,
                "the queue URI is not valid",
            ));
        };
        let (read_count, write_count) = check_counts(request)?;
        if request.q_id >= RESERVED_QUEUE_ID_MIN {
            return Err(invalid("the queue id is in the reserved range"));
        }
        let (sub_id, app_id) = check_stream_name(request.sub_id_info.as_ref())?;
        if write_count > 0 && app_id.is_some() {
            return Err(invalid("a writer has no app id"));
        }
        let canonical = uri.canonical().to_owned();
        let queue_id = WireQueueId(request.q_id);
        match self.open.get(&queue_id) {
            Some(queue) => {
                if queue.uri != canonical {
                    return Err(invalid("the queue id is in use for another queue").with_code(-1));
                }
                self.check_stream(queue, sub_id, app_id.as_deref(), settings)?;
            }
            None if self.open.len() >= settings.queues_max => return Err(too_many("queues")),
            None if self.streams >= settings.streams_max => return Err(too_many("streams")),
            None => {}
        }
        Ok(OpenPlan {
            uri: canonical,
            queue: queue_id,
            sub_id,
            app_id,
            read_count,
            write_count,
        })
    }

    fn check_stream(
        &self,
        queue: &OpenQueue<T>,
        sub_id: SubId,
        app_id: Option<&str>,
        settings: &SessionSettings,
    ) -> Result<(), Refusal> {
        for stream in &queue.streams {
            match (stream.sub_id == sub_id, stream.app_id.as_deref() == app_id) {
                (true, true) => return Ok(()),
                (true, false) => {
                    return Err(invalid("the sub-queue id is in use for another app id"));
                }
                (false, true) => {
                    return Err(invalid("the app id is open under another sub-queue id"));
                }
                (false, false) => {}
            }
        }
        if self.streams >= settings.streams_max {
            Err(too_many("streams"))
        } else {
            Ok(())
        }
    }

    /// Notes that an open succeeded.
    pub fn opened(&mut self, plan: OpenPlan, target: T) {
        let queue = self.open.entry(plan.queue).or_insert_with(|| OpenQueue {
            uri: plan.uri,
            target,
            streams: SmallVec::new(),
            is_closing: false,
        });
        match queue.stream_mut(plan.sub_id) {
            Some(stream) => {
                stream.read_count = stream.read_count.saturating_add(plan.read_count);
                stream.write_count = stream.write_count.saturating_add(plan.write_count);
            }
            None => {
                self.streams += 1;
                queue.streams.push(Stream {
                    sub_id: plan.sub_id,
                    app_id: plan.app_id,
                    read_count: plan.read_count,
                    write_count: plan.write_count,
                    subscriptions: SmallVec::new(),
                });
            }
        }
    }

    /// Judges a configureStream.
    ///
    /// **Errors**: the refusal to answer with.
    pub fn check_configure(&self, request: &ConfigureStream) -> Result<ConfigurePlan, Refusal> {
        let parameters = &request.stream_parameters;
        let (queue, stream) = self.find_app(WireQueueId(request.q_id), &parameters.app_id)?;
        let mut subscriptions = Vec::with_capacity(parameters.subscriptions.len());
        for subscription in &parameters.subscriptions {
            if let Some(found) = check_subscription(subscription)? {
                subscriptions.push(found);
            }
        }
        check_ids(
            queue,
            stream,
            parameters
                .subscriptions
                .iter()
                .map(|subscription| SubscriptionId(subscription.s_id)),
        )?;
        Ok(ConfigurePlan {
            queue: WireQueueId(request.q_id),
            sub_id: stream.sub_id,
            subscriptions,
            is_trivial: stream.read_count == 0,
        })
    }

    /// Judges a configureQueueStream, which is a configureStream with one subscription that has the number of its stream.
    ///
    /// **Errors**: the refusal to answer with.
    pub fn check_configure_legacy(
        &self,
        request: &ConfigureQueueStream,
    ) -> Result<ConfigurePlan, Refusal> {
        let parameters = &request.stream_parameters;
        let (id, app_id) = match &parameters.sub_id_info {
            Some(info) => (SubscriptionId(info.sub_id), info.app_id.as_str()),
            None => (SubscriptionId(0), DEFAULT_APP_ID),
        };
        let (queue, stream) = self.find_app(WireQueueId(request.q_id), app_id)?;
        // This is how a peer of the old kind says "deliver no more".
        let is_empty =
            parameters.consumer_priority == NO_PRIORITY && parameters.consumer_priority_count == 0;
        let mut subscriptions = Vec::new();
        if !is_empty {
            subscriptions.push(check_consumer(
                id,
                parameters.max_unconfirmed_messages,
                parameters.max_unconfirmed_bytes,
                parameters.consumer_priority,
                parameters.consumer_priority_count,
            )?);
            check_ids(queue, stream, [id].into_iter())?;
        }
        Ok(ConfigurePlan {
            queue: WireQueueId(request.q_id),
            sub_id: stream.sub_id,
            subscriptions,
            is_trivial: stream.read_count == 0,
        })
    }

    fn find_app(
        &self,
        queue: WireQueueId,
        app_id: &str,
    ) -> Result<(&OpenQueue<T>, &Stream), Refusal> {
        let Some(queue) = self.open.get(&queue) else {
            return Err(unknown("no queue is open under this queue id"));
        };
        let app_id = (app_id != DEFAULT_APP_ID).then_some(app_id);
        match queue
            .streams
            .iter()
            .find(|stream| stream.app_id.as_deref() == app_id)
        {
            Some(stream) => Ok((queue, stream)),
            None => Err(unknown("the app id is not open on this queue")),
        }
    }

    /// Notes that a configure is in force: from here on a PUSH carries one of the new subscriptions.
    pub fn configured(&mut self, plan: &ConfigurePlan) {
        if let Some(stream) = self
            .open
            .get_mut(&plan.queue)
            .and_then(|queue| queue.stream_mut(plan.sub_id))
        {
            stream.subscriptions = plan
                .subscriptions
                .iter()
                .map(|subscription| subscription.id)
                .collect();
        }
    }

    /// Judges a closeQueue. Its URI is not compared: the numbers decide.
    ///
    /// **Errors**: the refusal to answer with.
    pub fn check_close(
        &self,
        request: &QueueHandleParameters,
        is_final: bool,
    ) -> Result<ClosePlan, Refusal> {
        let counts = [request.read_count, request.write_count, request.admin_count];
        if counts.iter().all(|count| *count == 0) {
            return Err(invalid("nothing is to be closed: all counts are zero"));
        }
        let (Ok(read_count), Ok(write_count), 0) = (
            u32::try_from(request.read_count),
            u32::try_from(request.write_count),
            request.admin_count,
        ) else {
            return Err(invalid("a count is below zero, or one of administrators"));
        };
        let queue_id = WireQueueId(request.q_id);
        let Some(queue) = self.open.get(&queue_id).filter(|queue| !queue.is_closing) else {
            return Err(unknown("no queue is open under this queue id"));
        };
        let sub_id = request
            .sub_id_info
            .as_ref()
            .map_or(SubId(0), |info| SubId(info.sub_id));
        let Some(stream) = queue.stream(sub_id) else {
            return Err(unknown("no stream is open under this sub-queue id"));
        };
        if read_count > stream.read_count || write_count > stream.write_count {
            return Err(unknown("more is to be closed than is open"));
        }
        let scope = if is_final {
            CloseScope::Queue
        } else {
            CloseScope::Stream {
                sub_id,
                read_count,
                write_count,
            }
        };
        Ok(ClosePlan {
            queue: queue_id,
            scope,
        })
    }

    /// Notes that a close is on its way to the queue: if it ends all of it, no more PUTs are taken.
    pub fn closing(&mut self, plan: &ClosePlan) {
        if let Some(queue) = self.open.get_mut(&plan.queue) {
            queue.is_closing = match plan.scope {
                CloseScope::Queue => true,
                CloseScope::Stream {
                    read_count,
                    write_count,
                    ..
                } => {
                    matches!(&queue.streams[..], [only] if only.read_count == read_count && only.write_count == write_count)
                }
            };
        }
    }

    /// Notes that a close is done.
    pub fn closed(&mut self, plan: &ClosePlan) {
        let Some(queue) = self.open.get_mut(&plan.queue) else {
            return;
        };
        let before = queue.streams.len();
        match plan.scope {
            CloseScope::Queue => queue.streams.clear(),
            CloseScope::Stream {
                sub_id,
                read_count,
                write_count,
            } => {
                if let Some(stream) = queue.stream_mut(sub_id) {
                    stream.read_count = stream.read_count.saturating_sub(read_count);
                    stream.write_count = stream.write_count.saturating_sub(write_count);
                    if stream.read_count == 0 {
                        stream.subscriptions.clear();
                    }
                }
                queue
                    .streams
                    .retain(|stream| stream.read_count > 0 || stream.write_count > 0);
            }
        }
        self.streams -= before - queue.streams.len();
        if queue.streams.is_empty() {
            self.open.remove(&plan.queue);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn check_counts(request: &QueueHandleParameters) -> Result<(u32, u32), Refusal> {
    let (Ok(read_count), Ok(write_count)) = (
        u32::try_from(request.read_count),
        u32::try_from(request.write_count),
    ) else {
        return Err(invalid("a count is below zero"));
    };
    if read_count == 0 && write_count == 0 {
        return Err(invalid("neither readers nor writers"));
    }
    if request.admin_count != 0 {
        return Err(invalid("administrators cannot open queues"));
    }
    if request.flags & queue_flags::ADMIN != 0 {
        return Err(invalid("administrators cannot open queues").with_code(-1));
    }
    if (request.flags & queue_flags::READ != 0) != (read_count > 0) {
        return Err(invalid("the read flag and the number of readers disagree"));
    }
    if (request.flags & queue_flags::WRITE != 0) != (write_count > 0) {
        return Err(invalid("the write flag and the number of writers disagree"));
    }
    Ok((read_count, write_count))
}

/// Only the default stream has number 0, and only it has no app id: a CONFIRM names its stream by number alone.
fn check_stream_name(info: Option<&SubQueueIdInfo>) -> Result<(SubId, Option<String>), Refusal> {
    let Some(info) = info else {
        return Ok((SubId(0), None));
    };
    if info.app_id == DEFAULT_APP_ID {
        return if info.sub_id == 0 {
            Ok((SubId(0), None))
        } else {
            Err(invalid("the default stream has sub-queue id 0"))
        };
    }
    if !is_app_id(&info.app_id) {
        return Err(invalid("the app id is not valid"));
    }
    if info.sub_id == 0 {
        return Err(invalid("sub-queue id 0 is the default stream"));
    }
    Ok((SubId(info.sub_id), Some(info.app_id.clone())))
}

/// A subscription that delivers something, or `None` if it has no consumer.
fn check_subscription(
    subscription: &Subscription,
) -> Result<Option<SubscriptionParameters>, Refusal> {
    let expression = &subscription.expression;
    if !expression.text.is_empty() {
        // Never taken for "everything": that would hand out messages that the peer meant to leave to others.
        return Err(match expression.version {
            ExpressionVersion::Undefined => invalid("an expression without a version"),
            ExpressionVersion::Version1 => Refusal::new(
                Category::NotSupported,
                "subscription expressions are not supported yet",
            ),
        });
    }
    match subscription.consumers.as_slice() {
        [] => Ok(None),
        [consumer] => check_consumer(
            SubscriptionId(subscription.s_id),
            consumer.max_unconfirmed_messages,
            consumer.max_unconfirmed_bytes,
            consumer.consumer_priority,
            consumer.consumer_priority_count,
        )
        .map(Some),
        _ => Err(invalid("several priorities in one subscription")),
    }
}

fn check_consumer(
    id: SubscriptionId,
    messages: i64,
    bytes: i64,
    priority: i32,
    priority_count: i32,
) -> Result<SubscriptionParameters, Refusal> {
    let (Ok(max_unconfirmed_messages), Ok(max_unconfirmed_bytes)) =
        (u64::try_from(messages), u64::try_from(bytes))
    else {
        return Err(invalid("a limit is below zero"));
    };
    if priority == NO_PRIORITY {
        return Err(unknown("the consumer priority is not valid").with_code(-1));
    }
    match u32::try_from(priority_count) {
        Ok(priority_count) if priority_count > 0 => Ok(SubscriptionParameters {
            id,
            max_unconfirmed_messages,
            max_unconfirmed_bytes,
            priority,
            priority_count,
        }),
        _ => Err(unknown("the consumer priority count is not valid").with_code(-1)),
    }
}

/// Subscription ids are unique within the queue number, whichever stream they belong to: a PUSH names nothing else.
fn check_ids<T>(
    queue: &OpenQueue<T>,
    stream: &Stream,
    ids: impl Iterator<Item = SubscriptionId>,
) -> Result<(), Refusal> {
    let mut seen = SmallVec::<[SubscriptionId; 8]>::new();
    for id in ids {
        let elsewhere = queue
            .streams
            .iter()
            .any(|other| other.sub_id != stream.sub_id && other.subscriptions.contains(&id));
        if elsewhere {
            return Err(invalid(
                "a subscription id is in use by another stream of the queue",
            ));
        }
        seen.push(id);
    }
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(invalid("a subscription id is used twice"));
    }
    Ok(())
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(Category::InvalidArgument, message)
}

fn unknown(message: &str) -> Refusal {
    Refusal::new(Category::Unknown, message)
}

fn too_many(what: &str) -> Refusal {
    Refusal::new(
        Category::Refused,
        format!("too many {what} on one connection"),
    )
}

#[cfg(test)]
mod tests {
    use mqb_core::control::{ConsumerInfo, Expression, QueueStreamParameters, StreamParameters};

    use super::*;

    fn parameters(uri: &str, q_id: u32, flags: u64) -> QueueHandleParameters {
        QueueHandleParameters {
            uri: uri.into(),
            q_id,
            flags,
            read_count: i32::from(flags & queue_flags::READ != 0),
            write_count: i32::from(flags & queue_flags::WRITE != 0),
            ..QueueHandleParameters::default()
        }
    }

    fn reader(q_id: u32, sub_id: u32, app_id: &str) -> QueueHandleParameters {
        let sub_id_info = Some(SubQueueIdInfo {
            sub_id,
            app_id: app_id.into(),
        });
        QueueHandleParameters {
            sub_id_info,
            ..parameters("bmq://d/q", q_id, queue_flags::READ)
        }
    }

    fn check(
        queues: &Queues<()>,
        request: &QueueHandleParameters,
    ) -> Result<OpenPlan, (Category, i32)> {
        queues
            .check_open(request, &SessionSettings::default())
            .map_err(|refusal| (refusal.category, refusal.code))
    }

    fn open(queues: &mut Queues<()>, request: &QueueHandleParameters) {
        let plan = check(queues, request).unwrap();
        queues.opened(plan, ());
    }

    fn subscribe(q_id: u32, app_id: &str, ids: &[u32]) -> ConfigureStream {
        let consumer = ConsumerInfo {
            consumer_priority: 0,
            consumer_priority_count: 1,
            ..ConsumerInfo::default()
        };
        let subscription = |s_id: &u32| Subscription {
            s_id: *s_id,
            consumers: vec![consumer.clone()],
            ..Subscription::default()
        };
        let subscriptions = ids.iter().map(subscription).collect();
        ConfigureStream {
            q_id,
            stream_parameters: StreamParameters {
                app_id: app_id.into(),
                subscriptions,
            },
        }
    }

    fn configure(
        queues: &mut Queues<()>,
        request: &ConfigureStream,
    ) -> Result<ConfigurePlan, (Category, i32)> {
        let plan = queues
            .check_configure(request)
            .map_err(|refusal| (refusal.category, refusal.code))?;
        queues.configured(&plan);
        Ok(plan)
    }

    #[test]
    fn opens_are_refused_as_the_reference_does() {
        use Category::{InvalidArgument, Refused};
        let good = parameters("bmq://d/q", 0, queue_flags::READ);
        let writer_app = QueueHandleParameters {
            write_count: 1,
            flags: 6,
            ..reader(0, 1, "a")
        };
        for (request, category, code) in [
            (parameters("bmq:/d/q", 0, 2), Refused, 0),
            (
                parameters(&format!("bmq://d/{}", "q".repeat(65)), 0, 2),
                Refused,
                0,
            ),
            (parameters("bmq://d/q", 0, 0), InvalidArgument, 0),
            (
                QueueHandleParameters {
                    read_count: -1,
                    write_count: 2,
                    flags: 4,
                    ..good.clone()
                },
                InvalidArgument,
                0,
            ),
            (
                QueueHandleParameters {
                    admin_count: 1,
                    ..good.clone()
                },
                InvalidArgument,
                0,
            ),
            (
                QueueHandleParameters {
                    flags: 3,
                    ..good.clone()
                },
                InvalidArgument,
                -1,
            ),
            (
                QueueHandleParameters {
                    flags: 6,
                    ..good.clone()
                },
                InvalidArgument,
                0,
            ),
            (
                QueueHandleParameters {
                    flags: 4,
                    ..good.clone()
                },
                InvalidArgument,
                0,
            ),
            (parameters("bmq://d/q", 0xffff_fff6, 2), InvalidArgument, 0),
            (writer_app, InvalidArgument, 0),
            (reader(0, 1, ""), InvalidArgument, 0),
            (reader(0, 1, "a~b"), InvalidArgument, 0),
            (reader(0, 1, "a\0b"), InvalidArgument, 0),
            (reader(0, 1, DEFAULT_APP_ID), InvalidArgument, 0),
            (reader(0, 0, "a"), InvalidArgument, 0),
        ] {
            assert_eq!(
                check(&Queues::default(), &request),
                Err((category, code)),
                "{request:?}"
            );
        }
        assert!(check(&Queues::default(), &good).is_ok());
        // Bits without a meaning here pass.
        assert!(
            check(
                &Queues::default(),
                &QueueHandleParameters {
                    flags: 2 | 8 | 1 << 40,
                    ..good
                }
            )
            .is_ok()
        );
    }

    #[test]
    fn numbers_that_clash_are_refused_and_huge_ones_cost_nothing() {
        let mut queues = Queues::default();
        open(&mut queues, &reader(0, u32::MAX, "a"));
        open(&mut queues, &reader(0, u32::MAX, "a"));
        for clash in [reader(0, 1, "a"), reader(0, u32::MAX, "b")] {
            assert_eq!(check(&queues, &clash), Err((Category::InvalidArgument, 0)));
        }
        assert_eq!(
            check(&queues, &parameters("bmq://d/r", 0, 4)),
            Err((Category::InvalidArgument, -1))
        );
        // The same queue under another number, and its writer beside the readers.
        open(&mut queues, &parameters("bmq://d/q", 1, 4));
        open(&mut queues, &parameters("bmq://d/q?id=ignored", 0, 4));
        assert!(queues.get(WireQueueId(0)).unwrap().is_writable());
    }

    #[test]
    fn queues_and_streams_are_capped_and_come_back() {
        let settings = SessionSettings {
            queues_max: 2,
            streams_max: 3,
            ..SessionSettings::default()
        };
        let mut queues = Queues::default();
        let try_open = |queues: &mut Queues<()>, request: &QueueHandleParameters| {
            let plan = queues.check_open(request, &settings)?;
            queues.opened(plan, ());
            Ok::<(), Refusal>(())
        };
        try_open(&mut queues, &reader(0, 1, "a")).unwrap();
        try_open(&mut queues, &reader(1, 1, "a")).unwrap();
        assert_eq!(
            try_open(&mut queues, &reader(2, 1, "a"))
                .unwrap_err()
                .category,
            Category::Refused
        );
        try_open(&mut queues, &reader(1, 2, "b")).unwrap();
        assert_eq!(
            try_open(&mut queues, &reader(1, 3, "c"))
                .unwrap_err()
                .category,
            Category::Refused
        );
        let plan = queues.check_close(&reader(1, 1, "a"), true).unwrap();
        queues.closed(&plan);
        assert_eq!((queues.len(), queues.streams), (1, 1));
        try_open(&mut queues, &reader(2, 1, "a")).unwrap();
    }

    #[test]
    fn subscriptions_hold_from_one_configure_to_the_next() {
        let mut queues = Queues::default();
        open(&mut queues, &parameters("bmq://d/q", 0, 2));
        let holds = |queues: &Queues<()>, id| {
            queues
                .get(WireQueueId(0))
                .unwrap()
                .is_subscribed(SubscriptionId(id))
        };
        assert!(!holds(&queues, 1));
        configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[1, 2])).unwrap();
        assert!(holds(&queues, 1) && holds(&queues, 2) && !holds(&queues, 0));
        configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[3])).unwrap();
        assert!(holds(&queues, 3) && !holds(&queues, 1));
        configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[])).unwrap();
        assert!(!holds(&queues, 3));
    }

    #[test]
    fn configures_are_refused_as_they_must_be() {
        use Category::{InvalidArgument, NotSupported, Unknown};
        let mut queues = Queues::default();
        open(&mut queues, &reader(0, 1, "a"));
        open(&mut queues, &reader(0, 2, "b"));
        configure(&mut queues, &subscribe(0, "a", &[1])).unwrap();
        let changed = |change: &dyn Fn(&mut Subscription)| {
            let mut request = subscribe(0, "b", &[5]);
            change(&mut request.stream_parameters.subscriptions[0]);
            request
        };
        let expression = |version, text: &str| Expression {
            version,
            text: text.into(),
        };
        for (request, refusal) in [
            (subscribe(9, "a", &[5]), (Unknown, 0)),
            (subscribe(0, "c", &[5]), (Unknown, 0)),
            (subscribe(0, DEFAULT_APP_ID, &[5]), (Unknown, 0)),
            (subscribe(0, "b", &[5, 6, 5]), (InvalidArgument, 0)),
            (subscribe(0, "b", &[1]), (InvalidArgument, 0)),
            (
                changed(&|s| s.consumers[0].max_unconfirmed_messages = -1),
                (InvalidArgument, 0),
            ),
            (
                changed(&|s| s.consumers[0].max_unconfirmed_bytes = i64::MIN),
                (InvalidArgument, 0),
            ),
            (
                changed(&|s| s.consumers[0].consumer_priority = NO_PRIORITY),
                (Unknown, -1),
            ),
            (
                changed(&|s| s.consumers[0].consumer_priority_count = 0),
                (Unknown, -1),
            ),
            (
                changed(&|s| s.expression = expression(ExpressionVersion::Version1, "x > 1")),
                (NotSupported, 0),
            ),
            (
                changed(&|s| s.expression = expression(ExpressionVersion::Undefined, "x > 1")),
                (InvalidArgument, 0),
            ),
        ] {
            assert_eq!(
                configure(&mut queues, &request),
                Err(refusal),
                "{request:?}"
            );
        }
        let plan = configure(&mut queues, &changed(&|s| s.consumers.clear())).unwrap();
        assert!(plan.subscriptions.is_empty());
        configure(
            &mut queues,
            &changed(&|s| s.expression = expression(ExpressionVersion::Version1, "")),
        )
        .unwrap();
    }

    #[test]
    fn old_style_configures_use_the_number_of_their_stream() {
        let mut queues = Queues::default();
        open(&mut queues, &parameters("bmq://d/q", 0, 2));
        let mut request = ConfigureQueueStream {
            q_id: 0,
            stream_parameters: QueueStreamParameters {
                consumer_priority: 1,
                consumer_priority_count: 1,
                ..QueueStreamParameters::default()
            },
        };
        let plan = queues.check_configure_legacy(&request).unwrap();
        assert_eq!(
            plan.subscriptions
                .iter()
                .map(|found| found.id.0)
                .collect::<Vec<_>>(),
            [0]
        );
        request.stream_parameters = QueueStreamParameters::default();
        assert!(
            queues
                .check_configure_legacy(&request)
                .unwrap()
                .subscriptions
                .is_empty()
        );
    }

    #[test]
    fn closes_are_matched_by_number_and_count() {
        use Category::{InvalidArgument, Unknown};
        let mut queues = Queues::default();
        open(&mut queues, &parameters("bmq://d/q", 0, 2));
        open(&mut queues, &parameters("bmq://d/q", 0, 6));
        let refused = |queues: &Queues<()>, request: &QueueHandleParameters, is_final| {
            queues.check_close(request, is_final).unwrap_err().category
        };
        assert_eq!(
            refused(&queues, &parameters("bmq://d/q", 0, 0), true),
            InvalidArgument
        );
        assert_eq!(
            refused(&queues, &parameters("bmq://d/q", 1, 2), true),
            Unknown
        );
        assert_eq!(refused(&queues, &reader(0, 1, "a"), false), Unknown);
        let more = QueueHandleParameters {
            read_count: 3,
            ..parameters("bmq://d/q", 0, 2)
        };
        assert_eq!(refused(&queues, &more, true), Unknown);
        // The URI does not matter; one reader and the writer go, one reader stays.
        let plan = queues
            .check_close(&parameters("bmq://other/q", 0, 6), false)
            .unwrap();
        queues.closing(&plan);
        queues.closed(&plan);
        assert!(!queues.get(WireQueueId(0)).unwrap().is_writable());
        assert!(queues.get(WireQueueId(0)).unwrap().is_readable(SubId(0)));
        // The last one frees the number, final or not; nothing is taken meanwhile.
        let plan = queues
            .check_close(&parameters("bmq://d/q", 0, 2), false)
            .unwrap();
        queues.closing(&plan);
        assert_eq!(
            refused(&queues, &parameters("bmq://d/q", 0, 2), true),
            Unknown
        );
        queues.closed(&plan);
        assert!(queues.is_empty());
    }
}
