//! `mqb bench`: the load generator.
//!
//! Closed loop: each producer keeps a window of unacknowledged messages full; measures throughput. Open loop (`--rate`):
//! messages have a time at which they are meant to be sent, and latency counts from that time whether or not the producer
//! was able to keep to it, so a stall shows up in every message that it delays. Every message that arrives is checked: bytes,
//! order, exactly once, nothing missing.

mod clock;
mod consume;
mod payload;
mod process;
mod produce;
mod report;
mod tally;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use mqb_client::{Queue, Session};

use crate::context::Context;
use crate::failure::{Failure, with_hint};
use crate::value::{parse_duration, parse_size};
use tally::Tally;

/// Which half of the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// Post, receive and confirm at the same time
    Both,
    /// Post only; the messages stay
    Put,
    /// Receive and confirm what an earlier run posted
    Get,
}

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Messages in all
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    pub(crate) messages: u64,
    /// Size of a payload, such as 1024, 64k or 1m; at least 32
    #[arg(long, default_value = "1024", value_name = "BYTES", value_parser = parse_size)]
    pub(crate) size: usize,
    #[arg(long, value_enum, default_value = "both")]
    pub(crate) mode: Mode,
    /// Queues; producers and consumers take them in turn
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) queues: u32,
    /// Producers, each with a session of its own
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) producers: u32,
    /// Consumers, each with a session of its own
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) consumers: u32,
    /// Open loop: messages per second of all producers together
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Closed loop: unacknowledged messages per producer [default: as many as make 16 MiB, at most 16384]
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<usize>,
    /// Messages a consumer may have unconfirmed [default: twice the window]
    #[arg(long, value_name = "N")]
    pub(crate) max_unconfirmed: Option<u32>,
    /// Closed loop: producers pause while more than this many messages wait for consumers [default: four windows]
    #[arg(long, value_name = "N")]
    pub(crate) max_backlog: Option<u64>,
    /// Messages at the start that are not measured [default: a tenth, at most 100000]
    #[arg(long, value_name = "N")]
    pub(crate) warmup: Option<u64>,
    /// Domain of the queues
    #[arg(long, default_value = "mqb.bench")]
    pub(crate) domain: String,
    /// Number of the run, part of the queues' names [default: a new one; needed with --mode get]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) run: Option<u64>,
    /// Process id of the broker [default: the local process that listens on its port]
    #[arg(long, value_name = "PID")]
    pub(crate) broker_pid: Option<u32>,
    /// Fail when nothing happens for this long
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) stall_timeout: Duration,
    /// As --output json
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments with everything decided.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) args: Args,
    pub(crate) run: u64,
    pub(crate) window: usize,
    pub(crate) max_unconfirmed: u32,
    pub(crate) max_backlog: u64,
    pub(crate) warmup: u64,
    pub(crate) broker_pid: Option<u32>,
}

impl Plan {
    fn new(mut args: Args, broker: &str) -> anyhow::Result<Plan> {
        let usage = |text: &str| Err(Failure::Usage(text.to_owned()).into());
        if args.size < payload::HEAD_BYTES {
            return usage("--size is at least 32: messages carry what is needed to check them");
        }
        if args.messages == 0 || args.queues == 0 || args.producers == 0 || args.consumers == 0 {
            return usage("there must be at least one message, queue, producer and consumer");
        }
        if args
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return usage("--rate is a number of messages per second");
        }
        if args.mode == Mode::Get && args.run.is_none() {
            return usage("--mode get needs --run, the number that --mode put printed");
        }
        // A queue that nobody writes or reads would be of no use.
        args.producers = args.producers.max(args.queues);
        args.consumers = args.consumers.max(args.queues);
        let window = args
            .window
            .unwrap_or(((16 << 20) / args.size).clamp(8, 16_384))
            .max(1);
        let run = args
            .run
            .unwrap_or_else(|| clock::now_ns() ^ (u64::from(std::process::id()) << 40));
        Ok(Plan {
            run,
            window,
            max_unconfirmed: args
                .max_unconfirmed
                .unwrap_or(u32::try_from(window * 2).unwrap_or(u32::MAX)),
            max_backlog: args
                .max_backlog
                .unwrap_or(window as u64 * u64::from(args.producers) * 4),
            warmup: args
                .warmup
                .unwrap_or((args.messages / 10).min(100_000))
                .min(args.messages - 1),
            broker_pid: args.broker_pid.or_else(|| process::listener(broker)),
            args,
        })
    }

    /// Name of a queue.
    pub(crate) fn uri(&self, queue: u32) -> String {
        format!("bmq://{}/bench-{:x}-{queue}", self.args.domain, self.run)
    }

    /// How many messages a producer sends.
    pub(crate) fn share(&self, producer: u32) -> u64 {
        let producers = u64::from(self.args.producers);
        self.args.messages / producers
            + u64::from(u64::from(producer) < self.args.messages % producers)
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> anyhow::Result<()> {
    let plan = Arc::new(Plan::new(args.clone(), &context.broker)?);
    let tally = Arc::new(Tally::new(&plan));
    let connect = |session: mqb_client::SessionOptions| {
        Session::connect(&context.broker, session)
            .map_err(|error| with_hint(error, &context.broker))
    };
    // Consumers first: then no message has to wait for one.
    let mut sessions: Vec<(Session, Queue)> = Vec::new();
    if plan.args.mode != Mode::Put {
        for consumer in 0..plan.args.consumers {
            let session = connect(context.session_options())?;
            let queue = consume::open(&session, &plan, &tally, consumer)?;
            sessions.push((session, queue));
        }
    }
    let mut producers = Vec::new();
    if plan.args.mode != Mode::Get {
        for producer in 0..plan.args.producers {
            let session = connect(
                context
                    .session_options()
                    .max_in_flight(plan.window, 256 << 20),
            )?;
            let queue = produce::open(&session, &plan, &tally, producer)?;
            producers.push((session, queue, producer));
        }
    }
    let start_ns = clock::now_ns();
    let threads: Vec<_> = producers
        .into_iter()
        .map(|(session, queue, producer)| {
            let (plan, tally) = (plan.clone(), tally.clone());
            std::thread::spawn(move || {
                produce::run(session, queue, &plan, &tally, producer, start_ns)
            })
        })
        .collect();
    let outcome = watch(context, &plan, &tally, start_ns);
    let lost = sessions
        .iter()
        .map(|(session, _)| session.stats().connections.saturating_sub(1))
        .sum();
    tally.reconnects.store(lost, Ordering::Relaxed);
    let report = report::Report::new(&plan, &tally, &outcome?, start_ns);
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a producer thread panicked"))??;
    }
    for (session, queue) in sessions {
        // Its answer comes when the confirms have been taken care of.
        queue.close()?;
        session.disconnect()?;
    }
    report.print(context.is_json() || args.json)?;
    report.verdict()
}

/// Figures taken while the run went on.
#[derive(Default)]
pub(crate) struct Observed {
    /// Processor times, and how many messages were done, behind the warm-up and at the end.
    pub(crate) warm: Option<Sample>,
    pub(crate) end: Option<Sample>,
    /// Of the broker, at the end.
    pub(crate) memory: Option<(u64, u64)>,
}

#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) done: u64,
    pub(crate) broker_us: Option<u64>,
    pub(crate) own_us: Option<u64>,
}

fn sample(plan: &Plan, tally: &Tally) -> Sample {
    Sample {
        done: tally.done(),
        broker_us: plan.broker_pid.and_then(process::cpu_us),
        own_us: process::cpu_us(std::process::id()),
    }
}

/// Waits for the end of the run, showing progress.
fn watch(context: &Context, plan: &Plan, tally: &Tally, start_ns: u64) -> anyhow::Result<Observed> {
    let progress = if context.is_chatty() && !plan.args.json {
        ProgressBar::new(plan.args.messages)
    } else {
        ProgressBar::hidden()
    };
    progress.set_style(
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len}  {per_sec}  {elapsed}")
            .expect("the template is a constant"),
    );
    let mut observed = Observed::default();
    let (mut last_done, mut last_change) = (0, start_ns);
    loop {
        let finished = tally.wait(Duration::from_millis(20));
        let (done, now) = (tally.done(), clock::now_ns());
        progress.set_position(done);
        if observed.warm.is_none() && (done >= plan.warmup || finished) {
            observed.warm = Some(sample(plan, tally));
        }
        if finished {
            observed.end = Some(sample(plan, tally));
            observed.memory = plan.broker_pid.and_then(process::memory);
            progress.finish_and_clear();
            return Ok(observed);
        }
        if done != last_done {
            (last_done, last_change) = (done, now);
        } else if Duration::from_nanos(now - last_change) > plan.args.stall_timeout {
            progress.finish_and_clear();
            anyhow::bail!(
                "nothing happened for {:?}: {}",
                plan.args.stall_timeout,
                tally.describe()
            );
        }
    }
}
