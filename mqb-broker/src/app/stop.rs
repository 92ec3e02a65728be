//! From a broker that serves to the end of the process, within the deadline.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mqb_dispatcher::StopError;

use super::start::Broker;
use crate::event::Event;
use crate::failure::Failure;

/// Sessions get this part of the deadline, partitions at least the rest.
const SESSIONS_SHARE: f64 = 0.7;
/// How often the number of open connections is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// What threads that wait for a disk get beyond the deadline before the process ends without them.
const GRACE: Duration = Duration::from_secs(5);

/// Stops in order. **Errors**: partitions could not finish: what was acknowledged is safe, the next start takes longer.
pub(super) fn stop(broker: Broker, deadline: Duration) -> Result<(), Failure> {
    let begun = Instant::now();
    end_at(deadline + GRACE);
    broker.listener.post(Event::Drain);
    let open = || broker.connections.open.load(Ordering::Acquire);
    let sessions_end = begun + deadline.mul_f64(SESSIONS_SHARE);
    while open() > 0 && Instant::now() < sessions_end {
        std::thread::sleep(LOOK);
    }
    let cut = open();
    if cut > 0 {
        tracing::warn!(
            event = "broker.sessions_cut",
            connections = cut,
            "did not end in time"
        );
    }
    let Broker {
        dispatcher,
        environment,
        dir,
        ..
    } = broker;
    let left = deadline.saturating_sub(begun.elapsed());
    // Sessions that ignore everything wait for nothing any more.
    let result = dispatcher.stop(if cut > 0 {
        left.min(deadline / 5)
    } else {
        left
    });
    drop(environment);
    drop(dir);
    match result {
        // Only those that were cut: partitions, registry and listener are told before them.
        Err(StopError::Unfinished { clients }) if clients <= cut => {}
        Err(error) => {
            return Err(Failure::Runtime(
                anyhow::Error::new(error).context("stopping in time"),
            ));
        }
        Ok(()) => {}
    }
    tracing::info!(
        event = "broker.stopped",
        seconds = begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// A disk that does not answer must not keep the process for ever.
fn end_at(time: Duration) {
    let run = move || {
        std::thread::sleep(time);
        eprintln!(
            "mqb-broker: stopping takes longer than {time:?}: ended without waiting for the disk"
        );
        std::process::exit(1);
    };
    // Without the thread the end is only less certain.
    let _ = std::thread::Builder::new()
        .name("mqb-deadline".into())
        .spawn(run);
}
