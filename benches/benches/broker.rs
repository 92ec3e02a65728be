//! How fast is the broker, compared with what the machine can do?
//!
//! ```sh
//! cargo bench -p mqb-benches --bench broker              # about four minutes
//! cargo bench -p mqb-benches --bench broker -- --quick   # about one, figures less steady
//! cargo bench -p mqb-benches --bench broker -- --dir /mnt/disk
//! ```
//!
//! Broker, load (`mqb bench`) and echo are processes of their own. Data lies on a real file system (default: the target
//! directory). Every message that arrives is checked. The duplicate window is on, as by default. Yardsticks are measured in
//! the same run, in turn with what they are compared with. The last line is one JSON object.

#[path = "broker/programs.rs"]
mod programs;
#[path = "broker/raw.rs"]
mod raw;
#[path = "broker/table.rs"]
mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;
use mqb_benches::{machine, median};
use programs::Programs;
use serde_json::Value;
use table::Table;

/// How much is done.
struct Scale {
    rounds: usize,
    /// Messages of 1 KiB per throughput run; the others are derived from it.
    messages: u64,
    /// Seconds per latency run.
    seconds: u64,
    waiting: u64,
}

/// One group of rows.
type Part = fn(&mut Bench) -> anyhow::Result<()>;

struct Bench {
    programs: Programs,
    dir: PathBuf,
    scale: Scale,
    table: Table,
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let dir = args
        .iter()
        .position(|arg| arg == "--dir")
        .and_then(|at| args.get(at + 1))
        .map_or(env!("CARGO_TARGET_TMPDIR"), String::as_str);
    let only = args
        .iter()
        .position(|arg| arg == "--only")
        .and_then(|at| args.get(at + 1))
        .cloned();
    let scale = if quick {
        Scale {
            rounds: 1,
            messages: 100_000,
            seconds: 2,
            waiting: 100_000,
        }
    } else {
        Scale {
            rounds: 3,
            messages: 500_000,
            seconds: 4,
            waiting: 1_000_000,
        }
    };
    let scratch = tempfile::tempdir_in(dir)?;
    let mut bench = Bench {
        programs: Programs::build()?,
        dir: scratch.path().to_owned(),
        scale,
        table: Table::default(),
    };
    println!("{}", machine());
    println!(
        "data on {} ({}), duplicate window on, contents verified\n",
        dir,
        raw::file_system(Path::new(dir))
    );
    bench
        .table
        .note("file_system", raw::file_system(Path::new(dir)).into());
    bench.table.note("quick", quick.into());
    let parts: [(&str, Part); 5] = [
        ("throughput", Bench::throughput),
        ("large", Bench::large),
        ("latency", Bench::latency),
        ("sync-latency", Bench::sync_latency),
        ("waiting", Bench::waiting),
    ];
    for (name, part) in parts {
        if only.as_ref().is_none_or(|only| only == name) {
            // One part that cannot be measured must not hide the others.
            if let Err(error) = part(&mut bench) {
                bench.table.failed(name, &error);
            }
        }
    }
    bench.table.print();
    println!("{}", bench.table.json());
    Ok(())
}

fn number(figures: &Value, pointer: &str) -> anyhow::Result<f64> {
    figures
        .pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("mqb bench tells {pointer}"))
}

impl Bench {
    /// A fresh data directory.
    fn data(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path)?;
        }
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// One run of a load on a fresh broker.
    fn run(&self, durability: &str, args: &[&str]) -> anyhow::Result<Value> {
        let data = self.data("data")?;
        let broker = self.programs.start(&data, durability)?;
        let figures = self.programs.bench(&broker, args)?;
        broker.stop()?;
        std::fs::remove_dir_all(data)?;
        Ok(figures)
    }

    /// 1 KiB and 64 B, publish and deliver and confirm at once.
    fn throughput(&mut self) -> anyhow::Result<()> {
        let kib = self.scale.messages.to_string();
        let small = (self.scale.messages * 3).to_string();
        let (mut flush, mut sync, mut tiny, mut cpu, mut append) =
            (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..self.scale.rounds {
            append.push(raw::append(&self.dir, self.scale.messages * 1024)? / 1024.0);
            let figures = self.run("flush", &["--messages", &kib, "--size", "1024"])?;
            flush.push(number(&figures, "/messages_per_s")?);
            cpu.push(number(&figures, "/broker_cpu_us_per_message")?);
            let figures = self.run("sync", &["--messages", &kib, "--size", "1024"])?;
            sync.push(number(&figures, "/messages_per_s")?);
            let figures = self.run("flush", &["--messages", &small, "--size", "64"])?;
            tiny.push(number(&figures, "/messages_per_s")?);
        }
        let (append, flush, sync) = (median(&mut append), median(&mut flush), median(&mut sync));
        let wanted = f64::min(250_000.0, append / 2.0);
        self.table
            .at_least("1 KiB, flush", "msg/s", flush, wanted, "raw append", append);
        self.table.at_least(
            "1 KiB, sync as a share of flush",
            "",
            sync / flush,
            0.6,
            "sync, msg/s",
            sync,
        );
        self.table.at_most(
            "1 KiB, flush: broker CPU",
            "us/msg",
            median(&mut cpu),
            4.0,
            "",
            f64::NAN,
        );
        self.table.at_least(
            "64 B, flush",
            "msg/s",
            median(&mut tiny),
            500_000.0,
            "",
            f64::NAN,
        );
        Ok(())
    }

    /// 1 MiB messages against copying the same bytes.
    fn large(&mut self) -> anyhow::Result<()> {
        let messages = (self.scale.messages / 250).max(200);
        let bytes = messages << 20;
        let (mut ours, mut loopback, mut append) = (vec![], vec![], vec![]);
        for _ in 0..self.scale.rounds {
            loopback.push(raw::loopback(bytes)?);
            append.push(raw::append(&self.dir, bytes)?);
            let figures = self.run(
                "flush",
                &[
                    "--messages",
                    &messages.to_string(),
                    "--size",
                    "1m",
                    "--warmup",
                    "50",
                ],
            )?;
            ours.push(number(&figures, "/mib_per_s")?);
        }
        const MIB: f64 = 1048576.0;
        let bound = f64::min(median(&mut loopback), median(&mut append)) / MIB;
        self.table
            .note("loopback_mib_per_s", (median(&mut loopback) / MIB).into());
        self.table
            .note("append_mib_per_s", (median(&mut append) / MIB).into());
        self.table.at_least(
            "1 MiB, flush",
            "MiB/s",
            median(&mut ours),
            bound / 2.0,
            "loopback or append",
            bound,
        );
        Ok(())
    }

    /// From the intended send time to arrival, against an echo at the same rate.
    fn latency(&mut self) -> anyhow::Result<()> {
        const RATE: u32 = 20_000;
        let messages = u64::from(RATE) * self.scale.seconds;
        let (mut ours, mut echo) = ([vec![], vec![]], [vec![], vec![]]);
        for _ in 0..self.scale.rounds {
            let figures = self.programs.echo(1024, RATE, messages)?;
            echo[0].push(number(&figures, "/p50")?);
            echo[1].push(number(&figures, "/p99")?);
            let figures = self.run(
                "flush",
                &[
                    "--messages",
                    &messages.to_string(),
                    "--size",
                    "1024",
                    "--rate",
                    &RATE.to_string(),
                ],
            )?;
            ours[0].push(number(&figures, "/delivery_us/p50")?);
            ours[1].push(number(&figures, "/delivery_us/p99")?);
        }
        for (name, ours, echo) in ["p50", "p99"]
            .into_iter()
            .zip(&mut ours)
            .zip(&mut echo)
            .map(|((name, ours), echo)| (name, median(ours), median(echo)))
        {
            self.table.at_most(
                &format!("latency {name} at 20,000/s, flush"),
                "us",
                ours,
                echo * 4.0,
                "echo",
                echo,
            );
        }
        Ok(())
    }

    /// Acknowledgement at `sync` against the sync of as many bytes as arrive during one.
    fn sync_latency(&mut self) -> anyhow::Result<()> {
        const RATE: u32 = 5_000;
        let messages = (u64::from(RATE) * self.scale.seconds).to_string();
        // What comes in while a sync runs makes the next batch: start with one message and let it settle.
        let mut batch = 1024;
        for _ in 0..2 {
            let (p50_us, _) = raw::fdatasync(&self.dir, batch, 50)?;
            batch = ((p50_us * 1e-6 * f64::from(RATE)) as usize).clamp(1, 1024) * 1024;
        }
        let (mut ours, mut yardstick) = (vec![], vec![]);
        for _ in 0..self.scale.rounds {
            yardstick.push(raw::fdatasync(&self.dir, batch, 500)?.1);
            let figures = self.run(
                "sync",
                &[
                    "--messages",
                    &messages,
                    "--size",
                    "1024",
                    "--rate",
                    &RATE.to_string(),
                ],
            )?;
            ours.push(number(&figures, "/ack_us/p99")?);
        }
        let yardstick = median(&mut yardstick);
        self.table.note("sync_batch_bytes", batch.into());
        self.table.at_most(
            "ack p99 at 5,000/s, sync",
            "us",
            median(&mut ours),
            yardstick * 3.0,
            "fdatasync p99",
            yardstick,
        );
        Ok(())
    }

    /// Many messages in the broker: memory, restart, and that all of them come out.
    fn waiting(&mut self) -> anyhow::Result<()> {
        let messages = self.scale.waiting.to_string();
        let data = self.data("waiting")?;
        let broker = self.programs.start(&data, "flush")?;
        let common = ["--messages", &messages, "--size", "1024", "--run", "7"];
        let put = [&common[..], &["--mode", "put"]].concat();
        self.programs.bench(&broker, &put)?;
        let memory = broker.anonymous_bytes()? as f64 / 1048576.0;
        let limit = 400.0 * (self.scale.waiting as f64 / 1e6).max(0.5);
        self.table.at_most(
            &format!("{messages} x 1 KiB waiting: anonymous memory"),
            "MiB",
            memory,
            limit,
            "",
            f64::NAN,
        );
        broker.stop()?;
        let (bytes, _) = raw::read_files(&data)?;
        let (_, warm_s) = raw::read_files(&data)?;
        let broker = self.programs.start(&data, "flush")?;
        let restart_s = broker.ready_after.as_secs_f64();
        self.table.note("waiting_file_bytes", bytes.into());
        self.table.at_most(
            "the same: restart",
            "s",
            restart_s,
            warm_s * 3.0,
            "reading the files",
            warm_s,
        );
        let memory = broker.anonymous_bytes()? as f64 / 1048576.0;
        self.table.at_most(
            "the same: anonymous memory after restart",
            "MiB",
            memory,
            limit,
            "",
            f64::NAN,
        );
        let get = [&common[..], &["--mode", "get"]].concat();
        let figures = self.programs.bench(&broker, &get)?;
        self.table.at_least(
            "the same: drained",
            "msg",
            number(&figures, "/received")?,
            self.scale.waiting as f64,
            "msg/s",
            number(&figures, "/messages_per_s")?,
        );
        broker.stop()?;
        Ok(())
    }
}
