//! What the dispatcher tells: handlers that panic or are stuck, processors that overflow.

use std::sync::{Arc, OnceLock};

use mqb_dispatcher::{EventKind, Handle, Hooks};

use crate::event::{CLUSTER, Event, PARTITION};

/// Addresses that are known only after the dispatcher has started.
#[derive(Default)]
pub(super) struct Addresses {
    pub(super) known: OnceLock<(Handle<Event>, Vec<Handle<Event>>)>,
}

/// `lost` is called when a client has gone that nothing works without.
pub(super) fn hooks(
    addresses: Arc<Addresses>,
    lost: impl Fn(String) + Send + Sync + 'static,
) -> Hooks<Event> {
    Hooks {
        on_panic: Arc::new(move |report| {
            let handler = &report.handler;
            tracing::error!(
                event = "handler.panicked", processor = %handler.processor, client = %handler.name,
                activity = ?handler.activity, handled = handler.event, reason = %report.message,
                "a defect; the client was dropped"
            );
            match handler.kind {
                Some(kind) if kind == CLUSTER => lost(handler.name.to_string()),
                Some(kind) if kind == PARTITION => tell_registry(&addresses, &handler.name),
                _ => {}
            }
        }),
        on_stuck: Arc::new(|report| {
            let handler = &report.handler;
            tracing::warn!(
                event = "handler.stuck", processor = %handler.processor, client = %handler.name,
                activity = ?handler.activity, handled = handler.event, turn_for = ?report.turn_for,
                "a handler has not returned"
            );
        }),
        on_overflow: Arc::new(|report| {
            tracing::error!(
                event = "processor.overflow", processor = %report.processor, depth = report.depth,
                "more events wait than ever should"
            );
        }),
        event_kind: Some(kind_of),
        event_name: |kind| NAMES.get(usize::from(kind.0)).copied().unwrap_or("event"),
    }
}

/// A partition is dropped with its log: its sessions have to hear that no answer will come.
fn tell_registry(addresses: &Addresses, name: &str) {
    let Some((registry, partitions)) = addresses.known.get() else {
        return;
    };
    let number = name
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse::<usize>().ok());
    if let Some(partition) = number.and_then(|number| partitions.get(number)) {
        registry.post(Event::PartitionLost {
            partition: partition.clone(),
        });
    }
}

const NAMES: [&str; 22] = [
    "SessionUp",
    "SessionDown",
    "Superseded",
    "Open",
    "Place",
    "Opened",
    "Puts",
    "Confirms",
    "Configure",
    "Close",
    "Acks",
    "Pushes",
    "Configured",
    "Closed",
    "Paused",
    "Resumed",
    "SessionEnded",
    "SessionGone",
    "PartitionLost",
    "Query",
    "Wake",
    "other",
];

fn kind_of(event: &Event) -> EventKind {
    EventKind(match event {
        Event::SessionUp(_) => 0,
        Event::SessionDown { .. } => 1,
        Event::Superseded { .. } => 2,
        Event::Open(_) => 3,
        Event::Place(_) => 4,
        Event::Opened(_) => 5,
        Event::Puts(_) => 6,
        Event::Confirms(_) => 7,
        Event::Configure(_) => 8,
        Event::Close(_) => 9,
        Event::Acks(_) => 10,
        Event::Pushes(_) => 11,
        Event::Configured(_) => 12,
        Event::Closed(_) => 13,
        Event::Paused { .. } => 14,
        Event::Resumed { .. } => 15,
        Event::SessionEnded { .. } => 16,
        Event::SessionGone { .. } => 17,
        Event::PartitionLost { .. } => 18,
        Event::Query(_) => 19,
        Event::Wake => 20,
        _ => 21,
    })
}
