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
mod tests;
