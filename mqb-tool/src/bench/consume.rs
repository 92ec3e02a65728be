//! One consumer: a session whose callback checks, counts and confirms.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqb_client::{ConsumerOptions, Error, Message, OpenOptions, Queue, Session};

use super::Plan;
use super::clock::now_ns;
use super::payload::{HEAD_BYTES, Head, template};
use super::tally::{Tally, record};

/// Owned by: the consumer's session thread, inside its callback.
struct Checker {
    plan: Arc<Plan>,
    tally: Arc<Tally>,
    /// What each producer's messages must look like behind their head.
    templates: Vec<Vec<u8>>,
    /// Number expected next at least, by producer.
    next: Vec<u64>,
    /// Messages up to this number of each producer are warm-up.
    skip: u64,
}

pub(crate) fn open(
    session: &Session,
    plan: &Arc<Plan>,
    tally: &Arc<Tally>,
    consumer: u32,
) -> anyhow::Result<Queue> {
    let producers = plan.args.producers;
    let mut checker = Checker {
        plan: plan.clone(),
        tally: tally.clone(),
        templates: (0..producers)
            .map(|producer| template(plan.run, producer, plan.args.size))
            .collect(),
        next: vec![0; producers as usize],
        skip: plan.warmup / u64::from(producers),
    };
    // Room for whole windows also of the largest messages.
    let bytes = (plan.args.size as u64 * u64::from(plan.max_unconfirmed)).clamp(32 << 20, 1 << 30);
    let options = ConsumerOptions::new()
        .max_unconfirmed_messages(plan.max_unconfirmed)
        .max_unconfirmed_bytes(bytes);
    let options = OpenOptions::new()
        .read(options)
        .on_messages(move |queue, batch| {
            checker.take(batch);
            match queue.confirm_all(batch) {
                // They will come again, and be counted as what they are: duplicates.
                Ok(()) | Err(Error::NotConnected | Error::Closed) => {}
                Err(error) => eprintln!("mqb: cannot confirm: {error}"),
            }
        });
    Ok(session.open(&plan.uri(consumer % plan.args.queues), options)?)
}

impl Checker {
    fn take(&mut self, batch: &[Message]) {
        let now = now_ns();
        let tally = self.tally.clone();
        let mut histogram = tally
            .delivery
            .lock()
            .expect("nothing panics under the lock");
        let mut good = 0;
        for message in batch {
            let Some(head) = self.check(message) else {
                tally.corrupt.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            match tally.mark(head.producer, head.number) {
                Some(true) => good += 1,
                Some(false) => {
                    tally.duplicates.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                None => {
                    tally.corrupt.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            let next = &mut self.next[head.producer as usize];
            if head.number < *next && !message.is_out_of_order() {
                tally.reordered.fetch_add(1, Ordering::Relaxed);
            }
            *next = (*next).max(head.number + 1);
            if head.number >= self.skip {
                record(&mut histogram, now.saturating_sub(head.intended_ns));
            }
        }
        drop(histogram);
        tally.add_received(good, now);
    }

    /// The head of a message whose every byte is right.
    #[inline]
    fn check(&self, message: &Message) -> Option<Head> {
        let data = message.data();
        let head = Head::read(data)?;
        let template = self.templates.get(head.producer as usize)?;
        let right = head.run == self.plan.run
            && data.len() == template.len()
            && data[HEAD_BYTES..] == template[HEAD_BYTES..];
        right.then_some(head)
    }
}
