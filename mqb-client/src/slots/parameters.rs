//! A queue's parameters as requests carry them.

use mqb_core::control::schema::{DEFAULT_APP_ID, NO_PRIORITY, queue_flags};
use mqb_core::control::{
    ConsumerInfo, Expression, ExpressionVersion, QueueHandleParameters, QueueStreamParameters,
    StreamParameters, SubQueueIdInfo, Subscription,
};

use super::{Key, Slot, State};
use crate::options::ConsumerOptions;

impl Slot {
    /// Whether the broker has, or may have, a stream open for it that no close is on its way for.
    pub(super) fn is_held(&self) -> bool {
        !self.close_sent && !matches!(self.state, State::Failed)
    }

    pub(super) fn app_id(&self) -> &str {
        self.uri.app_id().unwrap_or(DEFAULT_APP_ID)
    }

    pub(super) fn sub_id_info(&self) -> Option<SubQueueIdInfo> {
        self.uri.app_id().map(|app_id| SubQueueIdInfo {
            sub_id: self.sub_id,
            app_id: app_id.to_owned(),
        })
    }

    pub(super) fn handle_parameters(&self) -> QueueHandleParameters {
        // A reader stays one while it is paused.
        let read =
            !self.consumers.is_empty() || self.queue.as_ref().is_some_and(|queue| queue.inner.read);
        QueueHandleParameters {
            uri: self.uri.to_string(),
            q_id: self.qid,
            sub_id_info: self.sub_id_info(),
            flags: if read { queue_flags::READ } else { 0 }
                | if self.write { queue_flags::WRITE } else { 0 },
            read_count: i32::from(read),
            write_count: i32::from(self.write),
            admin_count: 0,
        }
    }

    pub(super) fn stream_parameters(
        &self,
        next_subscription: &mut u32,
    ) -> (StreamParameters, Vec<Key>) {
        let mut routes = Vec::new();
        let subscriptions = self.consumers.iter().map(|consumer| {
            *next_subscription = next_subscription.wrapping_add(1);
            routes.push((self.qid, *next_subscription));
            consumer.subscription(*next_subscription)
        });
        let subscriptions = subscriptions.collect();
        (
            StreamParameters {
                app_id: self.app_id().to_owned(),
                subscriptions,
            },
            routes,
        )
    }

    /// The old form knows one subscription without an expression.
    pub(super) fn queue_stream_parameters(&self) -> QueueStreamParameters {
        let info = self
            .consumers
            .first()
            .map(ConsumerOptions::info)
            .unwrap_or_default();
        QueueStreamParameters {
            sub_id_info: self.sub_id_info(),
            max_unconfirmed_messages: info.max_unconfirmed_messages,
            max_unconfirmed_bytes: info.max_unconfirmed_bytes,
            consumer_priority: if self.consumers.is_empty() {
                NO_PRIORITY
            } else {
                info.consumer_priority
            },
            consumer_priority_count: info.consumer_priority_count,
        }
    }
}

impl ConsumerOptions {
    pub(super) fn info(&self) -> ConsumerInfo {
        ConsumerInfo {
            max_unconfirmed_messages: i64::from(self.max_unconfirmed_messages),
            max_unconfirmed_bytes: i64::try_from(self.max_unconfirmed_bytes).unwrap_or(i64::MAX),
            consumer_priority: self.priority,
            consumer_priority_count: 1,
        }
    }

    pub(super) fn subscription(&self, id: u32) -> Subscription {
        let expression = match &self.expression {
            None => Expression::default(),
            Some(text) => Expression {
                version: ExpressionVersion::Version1,
                text: text.to_string(),
            },
        };
        Subscription {
            s_id: id,
            expression,
            consumers: vec![self.info()],
        }
    }
}
