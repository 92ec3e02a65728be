//! The figures of a run.

use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::Tally;
use super::{Mode, Observed, Plan};
use crate::output::{bytes, say, thousands};

/// Quantiles of a latency. **Units**: microseconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Latency {
    count: u64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Latency {
    fn new(histogram: &Histogram<u64>) -> Option<Latency> {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Latency {
            count: histogram.len(),
            mean: histogram.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1000.0,
        })
    }
}

/// All figures; serialises to the JSON that scripts read.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    mode: &'static str,
    run: u64,
    messages: u64,
    size_bytes: usize,
    queues: u32,
    producers: u32,
    consumers: u32,
    window: usize,
    rate: Option<f64>,
    warmup: u64,
    /// Of the measured part.
    elapsed_s: f64,
    messages_per_s: f64,
    mib_per_s: f64,
    delivery_us: Option<Latency>,
    ack_us: Option<Latency>,
    /// Of the measured part, to 10 ms in all.
    broker_cpu_us_per_message: Option<f64>,
    client_cpu_us_per_message: Option<f64>,
    broker_pid: Option<u32>,
    broker_rss_anon_bytes: Option<u64>,
    broker_rss_bytes: Option<u64>,
    acked: u64,
    refused: u64,
    received: u64,
    missing: u64,
    duplicates: u64,
    corrupt: u64,
    reordered: u64,
    reconnects: u64,
    /// After a reconnect messages may come again, and out of their order.
    verified: bool,
}

impl Report {
    pub(crate) fn new(plan: &Plan, tally: &Tally, observed: &Observed, start_ns: u64) -> Report {
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let args = &plan.args;
        let (from_ns, from_done) = match get(&tally.warm_ns) {
            0 => (start_ns, 0),
            at => (at, get(&tally.warm_done)),
        };
        let elapsed_s = (get(&tally.end_ns).saturating_sub(from_ns)) as f64 / 1e9;
        let measured = tally.done().saturating_sub(from_done);
        let messages_per_s = if elapsed_s > 0.0 {
            measured as f64 / elapsed_s
        } else {
            0.0
        };
        let (refused, missing, corrupt, reordered) = (
            get(&tally.refused),
            tally.missing(),
            get(&tally.corrupt),
            get(&tally.reordered),
        );
        let (duplicates, reconnects) = (get(&tally.duplicates), get(&tally.reconnects));
        let per_message = |which: fn(&super::Sample) -> Option<u64>| -> Option<f64> {
            let (warm, end) = (observed.warm.as_ref()?, observed.end.as_ref()?);
            let messages = end
                .done
                .checked_sub(warm.done)
                .filter(|messages| *messages > 0)?;
            Some((which(end)?.saturating_sub(which(warm)?)) as f64 / messages as f64)
        };
        Report {
            mode: match args.mode {
                Mode::Both => "both",
                Mode::Put => "put",
                Mode::Get => "get",
            },
            run: plan.run,
            messages: args.messages,
            size_bytes: args.size,
            queues: args.queues,
            producers: args.producers,
            consumers: args.consumers,
            window: plan.window,
            rate: args.rate,
            warmup: plan.warmup,
            elapsed_s,
            messages_per_s,
            mib_per_s: messages_per_s * args.size as f64 / f64::from(1 << 20),
            delivery_us: Latency::new(
                &tally
                    .delivery
                    .lock()
                    .expect("nothing panics under the lock"),
            ),
            ack_us: Latency::new(
                &tally
                    .acknowledgement
                    .lock()
                    .expect("nothing panics under the lock"),
            ),
            broker_cpu_us_per_message: per_message(|sample| sample.broker_us),
            client_cpu_us_per_message: per_message(|sample| sample.own_us),
            broker_pid: plan.broker_pid,
            broker_rss_anon_bytes: observed.memory.map(|(anonymous, _)| anonymous),
            broker_rss_bytes: observed.memory.map(|(_, all)| all),
            acked: get(&tally.acked),
            refused,
            received: get(&tally.received),
            missing,
            duplicates,
            corrupt,
            reordered,
            reconnects,
            verified: refused + missing + corrupt == 0
                && (reconnects > 0 || reordered + duplicates == 0),
        }
    }

    /// **Errors**: standard output is gone.
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            say!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        say!(
            "{} messages of {} ({}), {} queue(s), {} producer(s), {} consumer(s), run {}",
            thousands(self.messages),
            bytes(self.size_bytes as u64),
            self.rate
                .map_or(format!("window {}", self.window), |rate| format!(
                    "{rate:.0} per second"
                )),
            self.queues,
            self.producers,
            self.consumers,
            self.run
        );
        say!(
            "throughput    {} messages/s, {:.1} MiB/s, measured for {:.2} s",
            thousands(self.messages_per_s as u64),
            self.mib_per_s,
            self.elapsed_s
        );
        for (name, latency) in [
            ("delivery", self.delivery_us),
            ("acknowledged", self.ack_us),
        ] {
            if let Some(l) = latency {
                say!(
                    "{name:<13} p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, p99.9 {:.0} us, max {:.0} us",
                    l.p50,
                    l.p90,
                    l.p99,
                    l.p999,
                    l.max
                );
            }
        }
        for (name, cpu) in [
            ("broker CPU", self.broker_cpu_us_per_message),
            ("client CPU", self.client_cpu_us_per_message),
        ] {
            if let Some(cpu) = cpu {
                say!("{name:<13} {cpu:.2} us/message");
            }
        }
        if let (Some(anonymous), Some(all)) = (self.broker_rss_anon_bytes, self.broker_rss_bytes) {
            say!(
                "broker memory {} anonymous, {} resident",
                bytes(anonymous),
                bytes(all)
            );
        }
        if self.verified {
            say!("contents      verified");
        }
        Ok(())
    }

    /// **Errors**: something arrived wrong, twice, out of order, or not at all.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.verified,
            "{} refused, {} missing, {} corrupt, {} out of order, {} duplicates",
            self.refused,
            self.missing,
            self.corrupt,
            self.reordered,
            self.duplicates
        );
        Ok(())
    }
}
