//! One producer: a session, a queue, a thread that posts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mqb_client::{Ack, Error, OpenOptions, Put, Queue, Session};

use super::clock::{now_ns, sharpen_sleeps, sleep_until};
use super::payload::{Head, template};
use super::tally::{Tally, record};
use super::{Mode, Plan};

/// From this size on messages are posted without copying.
const SHARE_BYTES: usize = 32 * 1024;
/// Producers look this often whether they are too far ahead of the consumers.
const BACKLOG_CHECK: u64 = 64;

pub(crate) fn open(
    session: &Session,
    plan: &Plan,
    tally: &Arc<Tally>,
    producer: u32,
) -> anyhow::Result<Queue> {
    let (counted, skip) = (tally.clone(), plan.warmup / u64::from(plan.args.producers));
    let mut seen = 0u64;
    let on_acks = move |acks: &[Ack]| {
        let now = now_ns();
        let mut histogram = counted
            .acknowledgement
            .lock()
            .expect("nothing panics under the lock");
        let mut good = 0;
        for ack in acks {
            seen += 1;
            if ack.status.is_success() {
                good += 1;
                if seen > skip {
                    record(&mut histogram, now.saturating_sub(ack.tag));
                }
            }
        }
        drop(histogram);
        counted.add_acks(good, acks.len() as u64 - good, now);
    };
    Ok(session.open(
        &plan.uri(producer % plan.args.queues),
        OpenOptions::new().write().on_acks(on_acks),
    )?)
}

/// Posts this producer's share of the messages and waits for their answers.
pub(crate) fn run(
    session: Session,
    queue: Queue,
    plan: &Plan,
    tally: &Tally,
    producer: u32,
    start_ns: u64,
) -> anyhow::Result<()> {
    let result = post_all(&queue, plan, tally, producer, start_ns);
    if result.is_err() {
        tally.give_up();
    }
    result?;
    while !session.flush(Duration::from_millis(100))? {
        if tally.is_finished() && plan.args.mode == Mode::Put {
            break;
        }
    }
    queue.close()?;
    session.disconnect()?;
    Ok(())
}

fn post_all(
    queue: &Queue,
    plan: &Plan,
    tally: &Tally,
    producer: u32,
    start_ns: u64,
) -> Result<(), Error> {
    let mut messages = Messages::new(template(plan.run, producer, plan.args.size));
    let period_ns = plan
        .args
        .rate
        .map(|rate| 1e9 * f64::from(plan.args.producers) / rate);
    // Producers of one rate take turns instead of sending at the same moment.
    let phase_ns = period_ns.map_or(0.0, |period| {
        period * f64::from(producer) / f64::from(plan.args.producers)
    });
    if period_ns.is_some() {
        sharpen_sleeps();
    }
    let mut now = now_ns();
    for number in 0..plan.share(producer) {
        let intended_ns = match period_ns {
            Some(period) => {
                let at = start_ns + (phase_ns + period * number as f64) as u64;
                if now < at {
                    now = sleep_until(at);
                }
                at
            }
            None => {
                if number % BACKLOG_CHECK == 0 && plan.args.mode == Mode::Both {
                    wait_for_consumers(plan, tally);
                }
                now_ns()
            }
        };
        let head = Head {
            run: plan.run,
            producer,
            number,
            intended_ns,
        };
        queue.post_tagged(messages.with(&head), intended_ns)?;
        tally.posted.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn wait_for_consumers(plan: &Plan, tally: &Tally) {
    while tally.posted.load(Ordering::Relaxed) > tally.done() + plan.max_backlog
        && !tally.is_finished()
    {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Makes messages without allocating one each.
enum Messages {
    /// Small: one buffer, copied by the client.
    Small(Vec<u8>),
    /// Large: buffers that the client lets go of when they are acknowledged.
    Large {
        template: Vec<u8>,
        lent: VecDeque<Bytes>,
    },
}

impl Messages {
    fn new(template: Vec<u8>) -> Messages {
        if template.len() < SHARE_BYTES {
            Messages::Small(template)
        } else {
            Messages::Large {
                template,
                lent: VecDeque::new(),
            }
        }
    }

    fn with(&mut self, head: &Head) -> Put<'_> {
        match self {
            Messages::Small(message) => {
                head.write(message);
                Put::new(&*message)
            }
            Messages::Large { template, lent } => {
                let free = if lent.front().is_some_and(Bytes::is_unique) {
                    lent.pop_front()
                } else {
                    None
                };
                let mut message = match free.map(Bytes::try_into_mut) {
                    Some(Ok(buffer)) => buffer,
                    _ => BytesMut::from(template.as_slice()),
                };
                head.write(&mut message);
                let message = message.freeze();
                lent.push_back(message.clone());
                Put::new(message)
            }
        }
    }
}
