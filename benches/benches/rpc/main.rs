//! Questions: what does a call cost end to end, what is it worth to compute its deadline once, and what happens under overload?
//!
//! Method: as Kudu's `rpc-bench`, client and server over loopback TCP in one process, so that all figures include both. Its flags and
//! defaults: `--client_threads 16 --async_call_concurrency 60 --worker_threads 1 --server_reactors 4 --run_seconds 1`. Unlike it, callers are
//! warm before the clock starts, and completed calls are counted. Ours: `--rounds 3` per mode, `--ab_rounds 30` and `--ab_ms 200` for the A/B,
//! `--only modes,ab,isolation,overload`.
//!
//! Absolute figures belong to the machine. What is compared runs in the same process, rounds alternating.

mod clients;
mod isolation;
mod ours;
mod overload;
mod reference;
mod stats;
mod wire;

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use clients::{Clients, Kind, Mode};
use mqb_benches::machine;
use ours::Handling;
use reference::{Cached, CallQueue, Kudu, Plain, Recomputed};
use serde_json::{Value, json};
use stats::{Cost, Ratio, Usage, ratio, total};

struct Flags {
    client_threads: usize,
    async_call_concurrency: usize,
    worker_threads: usize,
    server_reactors: usize,
    run_seconds: f64,
    rounds: usize,
    ab_rounds: usize,
    ab_ms: u64,
    only: Vec<String>,
}

impl Flags {
    fn parse() -> Result<Self, String> {
        let mut flags = Self {
            client_threads: 16,
            async_call_concurrency: 60,
            worker_threads: 1,
            server_reactors: 4,
            run_seconds: 1.0,
            rounds: 3,
            ab_rounds: 30,
            ab_ms: 200,
            only: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            // What cargo passes to every benchmark.
            if argument == "--bench" {
                continue;
            }
            let name = argument.trim_start_matches('-');
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (
                    name.to_owned(),
                    arguments.next().ok_or(format!("{name} needs a value"))?,
                ),
            };
            let number = || {
                value
                    .parse::<usize>()
                    .ok()
                    .filter(|number| *number > 0)
                    .ok_or(format!("{name}: {value:?} is not a number above 0"))
            };
            match name.as_str() {
                "client_threads" => flags.client_threads = number()?,
                "async_call_concurrency" => flags.async_call_concurrency = number()?,
                "worker_threads" => flags.worker_threads = number()?,
                "server_reactors" => flags.server_reactors = number()?,
                "run_seconds" => {
                    flags.run_seconds = value.parse().map_err(|_| format!("{name}: {value:?}"))?;
                }
                "rounds" => flags.rounds = number()?,
                "ab_rounds" => flags.ab_rounds = number()?,
                "ab_ms" => flags.ab_ms = number()? as u64,
                "only" => flags.only = value.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("unknown flag --{name}")),
            }
        }
        Ok(flags)
    }

    fn runs(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Reference,
    ReferencePlain,
    ReferenceRecomputed,
    Loop,
    HandedOff,
    HandedOffPlain,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference (Kudu's topology)",
            Self::ReferencePlain => "reference, one condvar queue",
            Self::ReferenceRecomputed => "reference, deadline recomputed",
            Self::Loop => "ours, on the loop",
            Self::HandedOff => "ours, handed to workers",
            Self::HandedOffPlain => "ours, one condvar queue",
        }
    }
}

impl Server {
    /// How many loops it has.
    fn reactors(self, flags: &Flags) -> usize {
        match self {
            Self::Reference | Self::ReferencePlain | Self::ReferenceRecomputed => {
                flags.server_reactors
            }
            Self::Loop | Self::HandedOff | Self::HandedOffPlain => {
                ours::processors(flags.server_reactors)
            }
        }
    }
}

enum Running {
    Reference(reference::Server<Kudu<Cached>>),
    Recomputed(reference::Server<Kudu<Recomputed>>),
    Plain(reference::Server<Plain>),
    Ours(ours::Server),
}

impl Running {
    fn start(server: Server, flags: &Flags) -> Self {
        fn reference<Q: CallQueue>(flags: &Flags) -> reference::Server<Q> {
            reference::Server::start(flags.server_reactors, flags.worker_threads)
        }
        let ours = |handling| {
            Self::Ours(ours::Server::start(
                handling,
                flags.server_reactors,
                flags.worker_threads,
            ))
        };
        match server {
            Server::Reference => Self::Reference(reference(flags)),
            Server::ReferenceRecomputed => Self::Recomputed(reference(flags)),
            Server::ReferencePlain => Self::Plain(reference(flags)),
            Server::Loop => ours(Handling::OnTheLoop),
            Server::HandedOff => ours(Handling::HandedOff),
            Server::HandedOffPlain => ours(Handling::PlainCondvar),
        }
    }

    fn accept(&mut self, stream: TcpStream) {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_nonblocking(true).expect("a socket");
        match self {
            Self::Reference(server) => server.accept(stream),
            Self::Recomputed(server) => server.accept(stream),
            Self::Plain(server) => server.accept(stream),
            Self::Ours(server) => server.accept(stream),
        }
    }

    fn stop(self) {
        match self {
            Self::Reference(server) => server.stop(),
            Self::Recomputed(server) => server.stop(),
            Self::Plain(server) => server.stop(),
            Self::Ours(server) => server.stop(),
        }
    }
}

/// One round: everything is started, connected and warm before the clock.
fn round(server: Server, kind: Kind, mode: Mode, flags: &Flags, time: Duration) -> Cost {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut running = Running::start(server, flags);
    let clients = Clients::start(
        mode,
        kind,
        flags.client_threads,
        flags.async_call_concurrency,
        address,
        || running.accept(listener.accept().expect("a connection").0),
    );
    std::thread::sleep(Duration::from_millis(100));
    let (before, completed) = (Usage::now(), clients.load.completed());
    std::thread::sleep(time);
    let (after, completed_after) = (Usage::now(), clients.load.completed());
    assert_eq!(clients.load.failed(), 0, "no call may be refused here");
    clients.stop();
    running.stop();
    Cost::between(before, after, completed_after - completed)
}

fn print_block(mode: Mode, name: &str, flags: &Flags, reactors: usize, cost: &Cost) {
    println!("Mode:            {mode:?}, {name}");
    match mode {
        Mode::Sync => println!("Client threads:   {}", flags.client_threads),
        Mode::Async => {
            println!("Client reactors:  {}", flags.client_threads);
            println!("Call concurrency: {}", flags.async_call_concurrency);
        }
    }
    println!("Worker threads:   {}", flags.worker_threads);
    println!("Server reactors:  {reactors}");
    println!("----------------------------------");
    println!("Reqs/sec:         {:.0}", cost.per_second());
    println!("User CPU per req: {:.2}us", cost.user_us);
    println!("Sys CPU per req:  {:.2}us", cost.system_us);
    println!("Ctx Sw. per req:  {:.3}\n", cost.switches);
}

fn as_json(cost: &Cost) -> Value {
    json!({
        "requests_per_second": cost.per_second().round(),
        "user_us": cost.user_us, "system_us": cost.system_us, "cpu_us": cost.cpu_us(), "switches": cost.switches,
    })
}

fn ratio_json(ratio: &Ratio) -> Value {
    json!({ "ratio": ratio.mean, "low": ratio.low, "high": ratio.high })
}

/// The modes against the reference of the same rounds.
fn modes(flags: &Flags, targets: &mut Targets) -> Value {
    let sides = [
        (Server::Reference, Kind::Reference, "reference"),
        (Server::ReferencePlain, Kind::Reference, "reference_plain"),
        (Server::Loop, Kind::Ours, "loop"),
        (Server::HandedOff, Kind::Ours, "handed_off"),
        (Server::HandedOffPlain, Kind::Ours, "handed_off_plain"),
        (Server::Loop, Kind::Reference, "loop_reference_client"),
        (
            Server::HandedOff,
            Kind::Reference,
            "handed_off_reference_client",
        ),
    ];
    let mut all = json!({});
    for mode in [Mode::Sync, Mode::Async] {
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); sides.len()];
        let time = Duration::from_secs_f64(flags.run_seconds);
        for _ in 0..flags.rounds {
            for (side, (server, kind, _)) in sides.iter().enumerate() {
                costs[side].push(round(*server, *kind, mode, flags, time));
            }
        }
        let mut section = json!({});
        for (side, (server, kind, key)) in sides.iter().enumerate() {
            let name = match (server, kind) {
                (Server::Loop | Server::HandedOff, Kind::Reference) => {
                    format!("{}, callers of the reference", server.name())
                }
                _ => server.name().to_owned(),
            };
            let cost = total(&costs[side]);
            print_block(mode, &name, flags, server.reactors(flags), &cost);
            section[key] = as_json(&cost);
        }
        println!("{mode:?}, divided by the reference in the same rounds");
        for (side, (_, _, key)) in sides.iter().enumerate().skip(1) {
            let over = |of: fn(&Cost) -> f64| {
                let pairs: Vec<_> = costs[side].iter().zip(&costs[0]).collect();
                ratio(
                    &pairs
                        .iter()
                        .map(|(a, b)| (of(a), of(b)))
                        .collect::<Vec<_>>(),
                )
            };
            let (cpu, switches, speed) = (
                over(Cost::cpu_us),
                over(|c| c.switches),
                over(Cost::per_second),
            );
            println!("  {key:<28} CPU {cpu}  switches {switches}  requests/s {speed}");
            section[key]["cpu_over_reference"] = ratio_json(&cpu);
            section[key]["switches_over_reference"] = ratio_json(&switches);
            match (mode, *key) {
                (Mode::Async, "loop") => {
                    targets.check(
                        "async, on the loop: CPU <= 0.5 of the reference",
                        cpu.mean <= 0.5,
                        cpu.mean,
                    );
                    targets.check(
                        "async, on the loop: switches <= 0.5",
                        switches.mean <= 0.5,
                        switches.mean,
                    );
                }
                (Mode::Sync, "loop") => {
                    targets.check("sync, on the loop: CPU <= 0.85", cpu.mean <= 0.85, cpu.mean)
                }
                (Mode::Async, "handed_off") => {
                    targets.check(
                        "async, handed to workers: CPU <= 0.95",
                        cpu.mean <= 0.95,
                        cpu.mean,
                    );
                    targets.check(
                        "async, handed to workers: switches <= 0.9",
                        switches.mean <= 0.9,
                        switches.mean,
                    );
                }
                (_, "reference_plain") => {
                    // The reference must be no straw man: at least as good as the simplest queue, within its noise.
                    targets.check(
                        "the reference is no slower than a condvar queue",
                        cpu.high >= 1.0,
                        cpu.mean,
                    );
                }
                _ => {}
            }
        }
        let direct: Vec<_> = costs[3]
            .iter()
            .zip(&costs[4])
            .map(|(a, b)| (a.cpu_us(), b.cpu_us()))
            .collect();
        let direct = ratio(&direct);
        println!("  direct hand-off over one mutex + condvar, same loops: CPU {direct}\n");
        section["direct_over_condvar_cpu"] = ratio_json(&direct);
        all[format!("{mode:?}").to_lowercase()] = section;
    }
    all
}

/// Deadline cached against recomputed, through the reference's queue, with two workers so that calls wait.
fn deadline(flags: &Flags) -> Value {
    let flags = Flags {
        worker_threads: 2,
        only: Vec::new(),
        ..*flags
    };
    let mut all = json!({});
    for mode in [Mode::Sync, Mode::Async] {
        let time = Duration::from_millis(flags.ab_ms);
        let run = |server| round(server, Kind::Reference, mode, &flags, time);
        let pairs: Vec<(Cost, Cost)> = (0..flags.ab_rounds)
            .map(|number| {
                // Who goes first alternates too.
                if number % 2 == 0 {
                    let recomputed = run(Server::ReferenceRecomputed);
                    (run(Server::Reference), recomputed)
                } else {
                    let cached = run(Server::Reference);
                    (cached, run(Server::ReferenceRecomputed))
                }
            })
            .collect();
        let over = |of: fn(&Cost) -> f64| {
            ratio(
                &pairs
                    .iter()
                    .map(|(a, b)| (of(a), of(b)))
                    .collect::<Vec<_>>(),
            )
        };
        let (speed, cpu, switches) = (
            over(Cost::per_second),
            over(Cost::cpu_us),
            over(|c| c.switches),
        );
        let verdict = if speed.low > 1.0 {
            "faster"
        } else if speed.high < 1.0 {
            "slower"
        } else {
            "no significant difference"
        };
        println!(
            "{mode:?}, deadline cached over recomputed, 2 workers, {} pairs of {} ms: requests/s {speed} ({verdict}), CPU {cpu}, switches {switches}",
            flags.ab_rounds, flags.ab_ms
        );
        all[format!("{mode:?}").to_lowercase()] = json!({
            "requests_per_second": ratio_json(&speed), "cpu": ratio_json(&cpu), "switches": ratio_json(&switches),
            "pairs": flags.ab_rounds, "verdict": verdict,
        });
    }
    println!();
    all
}

fn isolation(targets: &mut Targets) -> Value {
    println!(
        "{:<30} {:>8} {:>10} {:>12}  recomputed / cached",
        "push + pop, ns of CPU", "waiting", "cached", "recomputed"
    );
    let rows = isolation::run();
    let mut all = Vec::new();
    for row in &rows {
        println!(
            "{:<30} {:>8} {:>10.1} {:>12.1}  {}",
            row.structure, row.waiting, row.cached_ns, row.recomputed_ns, row.ratio
        );
        all.push(json!({
            "structure": row.structure, "waiting": row.waiting, "cached_ns": row.cached_ns, "recomputed_ns": row.recomputed_ns,
            "ratio": ratio_json(&row.ratio),
        }));
    }
    for row in rows.iter().filter(|row| row.structure != isolation::LANES) {
        let what = format!(
            "{}, {} waiting: recomputed / cached >= 2",
            row.structure, row.waiting
        );
        targets.check(&what, row.ratio.mean >= 2.0, row.ratio.mean);
    }
    for waiting in [50, 200, 2000] {
        let nanos = isolation::ready_queue(waiting);
        println!(
            "{:<30} {waiting:>8} {nanos:>10.1}",
            "the ready queue that ships"
        );
        all.push(json!({ "structure": "ready queue", "waiting": waiting, "cached_ns": nanos }));
    }
    println!();
    Value::Array(all)
}

fn overload(flags: &Flags, targets: &mut Targets) -> Value {
    let workers = flags.worker_threads.max(2) as u16;
    let capacity = overload::capacity(workers);
    println!("overload: {workers} workers, handler 1 ms, capacity {capacity:.0} calls/s");
    println!(
        "{:<28} {:>6} {:>5} {:>8} {:>6} {:>22} {:>8} {:>12}",
        "policy",
        "mix",
        "load",
        "goodput",
        "late",
        "on time 20ms/200ms/2s",
        "refused",
        "refusal age"
    );
    let mut all = Vec::new();
    let mut served_us = 0.0;
    for is_mixed in [false, true] {
        for load in [0.8, 1.2, 2.0] {
            for policy in overload::Policy::ALL {
                let row = overload::run(policy, is_mixed, load, capacity, workers);
                let share = |class: usize| match row.on_time[class] {
                    share if share.is_nan() => "-".to_owned(),
                    share => format!("{:.0}%", share * 100.0),
                };
                println!(
                    "{:<28} {:>6} {load:>5} {:>7.1}% {:>6} {:>22} {:>8} {:>9.2} ms",
                    policy.name(),
                    if row.is_mixed { "mixed" } else { "20 ms" },
                    row.goodput * 100.0,
                    row.late,
                    format!("{}/{}/{}", share(0), share(1), share(2)),
                    row.refused,
                    row.refusal_age_ms
                );
                all.push(json!({
                    "policy": policy.name(), "mixed": row.is_mixed, "load": row.load, "goodput": row.goodput, "late": row.late,
                    "on_time": row.on_time.map(|share| if share.is_nan() { Value::Null } else { json!(share) }),
                    "refused": row.refused, "refusal_age_ms_p50": row.refusal_age_ms,
                }));
                if policy == overload::Policy::Ours {
                    let mix = if is_mixed { "mixed" } else { "20 ms" };
                    if load < 1.0 {
                        served_us = row.cpu_us_per_served;
                    } else {
                        let age = row.refusal_age_ms;
                        targets.check(
                            &format!("{mix} at {load}x: refusals within 5 ms at the median"),
                            age <= 5.0,
                            age,
                        );
                    }
                    if load == 2.0 {
                        targets.check(
                            &format!("{mix} at 2x: goodput >= 95 %"),
                            row.goodput >= 0.95,
                            row.goodput,
                        );
                        let least = row
                            .on_time
                            .iter()
                            .copied()
                            .filter(|share| !share.is_nan())
                            .fold(1.0, f64::min);
                        targets.check(
                            &format!("{mix} at 2x: no class under 10 %"),
                            least >= 0.1,
                            least,
                        );
                    }
                }
            }
        }
    }
    let refusal_us = overload::refusal_us();
    println!(
        "a refusal costs {refusal_us:.2} us of CPU, a served call {served_us:.1} us (both without TCP)\n"
    );
    targets.check(
        "a refusal costs at most a tenth of a served call",
        refusal_us <= served_us / 10.0,
        refusal_us / served_us,
    );
    json!({ "capacity": capacity, "rows": all, "refusal_us": refusal_us, "served_us": served_us })
}

/// What the benchmark is expected to show on any machine, and whether it did.
#[derive(Default)]
struct Targets(Vec<(String, bool, f64)>);

impl Targets {
    fn check(&mut self, what: &str, holds: bool, value: f64) {
        self.0.push((what.to_owned(), holds, value));
    }
}

fn main() -> std::process::ExitCode {
    let flags = match Flags::parse() {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::from(2);
        }
    };
    let machine = machine();
    println!("{machine}\n");
    let mut targets = Targets::default();
    let mut result = json!({ "bench": "rpc", "machine": machine });
    if flags.runs("isolation") {
        result["isolation"] = isolation(&mut targets);
    }
    if flags.runs("modes") {
        result["modes"] = modes(&flags, &mut targets);
    }
    if flags.runs("ab") {
        result["deadline_cached_over_recomputed"] = deadline(&flags);
    }
    if flags.runs("overload") {
        result["overload"] = overload(&flags, &mut targets);
    }
    for (what, holds, value) in &targets.0 {
        println!(
            "{} {what}: {value:.3}",
            if *holds { "holds:" } else { "MISSED:" }
        );
    }
    let row = |(what, holds, value): &(String, bool, f64)| json!({ "target": what, "holds": holds, "value": value });
    result["targets"] = targets.0.iter().map(row).collect();
    println!("{result}");
    // A miss is a finding, not a failure: on a loaded machine anything may miss.
    std::process::ExitCode::SUCCESS
}
