//! The real broker as a child process: built once, started on free ports in a temporary directory, killed, stopped,
//! restarted on the same port, and observed through `/proc` and HTTP.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::metrics::{self, Scrape};
use crate::wait::{self, PATIENCE};

/// The number of processors to use: `MQB_TEST_PROCESSORS` if set, else `default`.
pub fn processors_or(default: usize) -> usize {
    std::env::var("MQB_TEST_PROCESSORS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Directory that holds the binaries of the profile this test was built with, found from the running test.
fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let deps = test.parent().expect("a test lies in a directory");
    deps.parent()
        .expect("deps lies in the profile's directory")
        .to_owned()
}

/// The target directory this test was built in.
pub fn target_dir() -> PathBuf {
    profile_dir()
        .parent()
        .expect("the profile lies in the target directory")
        .to_owned()
}

/// Builds `mqb-broker` and `mqb` once per test process (cargo does nothing when they are fresh), and tells where they are.
/// `MQB_TEST_BIN_DIR` names a directory of binaries to test instead, such as a release to be shipped.
fn binaries() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        if let Some(dir) = std::env::var_os("MQB_TEST_BIN_DIR") {
            return dir.into();
        }
        let dir = profile_dir();
        let profile = match dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("tests lies in the workspace");
        let output = Command::new(cargo)
            .current_dir(workspace)
            .args([
                "build",
                "--quiet",
                "-p",
                "mqb-broker",
                "-p",
                "mqb-tool",
                "--profile",
                profile,
            ])
            .arg("--target-dir")
            .arg(target_dir())
            .output()
            .expect("cargo starts");
        assert!(
            output.status.success(),
            "building the broker:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        dir
    })
}

/// Path of the broker's binary.
pub fn broker_binary() -> PathBuf {
    binaries().join("mqb-broker")
}

/// Path of the command line tool's binary.
pub fn tool_binary() -> PathBuf {
    binaries().join("mqb")
}

/// How to start a broker. Everything has a default that suits a test.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// `--processors`.
    pub processors: Option<usize>,
    /// `--durability` of the default domain.
    pub durability: Option<&'static str>,
    /// Text of the configuration file.
    pub config: Option<String>,
    /// More flags.
    pub args: Vec<String>,
    /// Data directory; a temporary one when absent.
    pub data_dir: Option<PathBuf>,
}

impl Setup {
    /// A broker with this many processors.
    pub fn processors(processors: usize) -> Setup {
        Setup {
            processors: Some(processors),
            ..Setup::default()
        }
    }

    /// Sets the default domain's durability.
    pub fn durability(mut self, durability: &'static str) -> Setup {
        self.durability = Some(durability);
        self
    }

    /// Sets the configuration file's text.
    pub fn config(mut self, text: impl Into<String>) -> Setup {
        self.config = Some(text.into());
        self
    }

    /// Uses this data directory, which outlives the broker.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Setup {
        self.data_dir = Some(dir.into());
        self
    }

    /// Adds one flag.
    pub fn arg(mut self, arg: impl Into<String>) -> Setup {
        self.args.push(arg.into());
        self
    }

    /// Starts the broker and waits for its ready line.
    #[track_caller]
    pub fn start(self) -> Broker {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let data_dir = self
            .data_dir
            .clone()
            .unwrap_or_else(|| scratch.path().join("data"));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let process = Process::spawn(&self, scratch.path(), &data_dir, any, any);
        let mut broker = Broker {
            setup: self,
            scratch,
            data_dir,
            listen: any,
            http: any,
            process,
        };
        broker.await_ready();
        broker
    }

    /// Starts a broker that is expected to give up by itself, and returns how it ended and what it said.
    #[track_caller]
    pub fn start_expecting_exit(self, listen: SocketAddr) -> Exit {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let data_dir = self
            .data_dir
            .clone()
            .unwrap_or_else(|| scratch.path().join("data"));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Process::spawn(&self, scratch.path(), &data_dir, listen, any);
        let status = process.wait(PATIENCE);
        Exit {
            status,
            stderr: process.stderr(),
        }
    }
}

/// How a broker that ended by itself ended.
#[derive(Debug)]
pub struct Exit {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it wrote to standard error.
    pub stderr: String,
}

/// A running (or killed, and not yet restarted) broker. Killed when dropped; its log is shown when the test failed.
#[derive(Debug)]
pub struct Broker {
    setup: Setup,
    scratch: tempfile::TempDir,
    data_dir: PathBuf,
    listen: SocketAddr,
    http: SocketAddr,
    process: Process,
}

impl Broker {
    /// A broker with default settings and, unless the environment says otherwise, one processor per core.
    #[track_caller]
    pub fn start() -> Broker {
        Setup {
            processors: Some(processors_or(2)),
            ..Setup::default()
        }
        .start()
    }

    /// Where SDKs connect.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// The same as the SDK wants it.
    pub fn uri(&self) -> String {
        format!("tcp://{}", self.listen)
    }

    /// Where HTTP answers.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A directory for the test's own files, removed with the broker.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// What the broker has written to standard error since its last start.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Scrapes `/metrics`.
    pub fn metrics(&self) -> Scrape {
        Scrape::of(self.http)
    }

    /// `GET path` on the HTTP port.
    pub fn get(&self, path: &str) -> std::io::Result<metrics::Response> {
        metrics::get(self.http, path)
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a child has a process id");
        rustix::process::kill_process(pid, signal)
            .expect("the child takes signals until it is waited for");
    }

    /// SIGTERM, and waits for the exit.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(PATIENCE)
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub fn wait_exit(&mut self, patience: Duration) -> ExitStatus {
        self.process.wait(patience)
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.process.child.try_wait(), Ok(None))
    }

    /// Starts the broker again on the same data and the same ports, and waits for its ready line.
    #[track_caller]
    pub fn restart(&mut self) {
        self.restart_without_waiting();
        self.await_ready();
    }

    /// Starts the broker again without waiting for the ready line.
    #[track_caller]
    pub fn restart_without_waiting(&mut self) {
        assert!(!self.is_alive(), "restart of a broker that still runs");
        self.process = Process::spawn(
            &self.setup,
            self.scratch.path(),
            &self.data_dir,
            self.listen,
            self.http,
        );
    }

    /// Changes how the next restart starts it.
    pub fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Waits for the ready line and takes the addresses from it.
    #[track_caller]
    pub fn await_ready(&mut self) {
        let line = self.process.ready_line(PATIENCE * 2);
        let (listen, http) =
            parse_ready_line(&line).unwrap_or_else(|| panic!("not a ready line: {line:?}"));
        self.listen = listen;
        self.http = http;
    }

    /// Resident memory in bytes; anonymous pages only, because page cache of mapped files is not the broker's need.
    pub fn memory_bytes(&self) -> u64 {
        let status = self.proc("status");
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .expect("Linux tells RssAnon");
        kib.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .expect("a number")
            * 1024
    }

    /// Number of open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .expect("the broker runs")
            .count()
    }

    /// User and system CPU time so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = self.proc("stat");
        // The command's name may hold anything, but the last ')' ends it.
        let fields: Vec<&str> = stat[stat.rfind(')').expect("stat names the command") + 2..]
            .split(' ')
            .collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|text| text.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Bytes that the data directory takes on disk (allocated blocks, not file sizes).
    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.data_dir)
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid())).expect("the broker runs")
    }
}

/// Bytes that a directory takes on disk.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            // Removed between listing and looking: it takes nothing any more.
            Err(_) => 0,
        })
        .sum()
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.process.stderr();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- last lines of the broker's log ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// `mqb ready: listening on tcp://A, http://B, …` as (A, B).
fn parse_ready_line(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let address = |scheme: &str| {
        let rest = &line[line.find(scheme)? + scheme.len()..];
        let end = rest.find([',', ' ', '/']).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    line.starts_with("mqb ready").then_some(())?;
    Some((address("tcp://")?, address("http://")?))
}

/// One run of the binary, with its output drained by threads.
#[derive(Debug)]
struct Process {
    child: Child,
    stdout: mpsc::Receiver<String>,
    stderr: Arc<Mutex<String>>,
    drain: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    #[track_caller]
    fn spawn(
        setup: &Setup,
        scratch: &Path,
        data_dir: &Path,
        listen: SocketAddr,
        http: SocketAddr,
    ) -> Process {
        let mut command = Command::new(broker_binary());
        if let Some(text) = &setup.config {
            let path = scratch.join("mqb.toml");
            std::fs::write(&path, text).expect("the scratch directory is writable");
            command.arg("--config").arg(path);
        }
        command
            .arg("--listen")
            .arg(listen.to_string())
            .arg("--http")
            .arg(http.to_string());
        command.arg("--data-dir").arg(data_dir);
        if let Some(processors) = setup.processors {
            command.arg("--processors").arg(processors.to_string());
        }
        if let Some(durability) = setup.durability {
            command.arg("--durability").arg(durability);
        }
        command.args(&setup.args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the broker's binary starts");
        let (lines, stdout) = mpsc::channel();
        let out = child.stdout.take().expect("stdout is piped");
        std::thread::spawn(move || {
            // A receiver that is gone only means that the test wants no more lines; the pipe is still drained.
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| _ = lines.send(line));
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let err = child.stderr.take().expect("stderr is piped");
        let sink = Arc::clone(&stderr);
        let drain = std::thread::spawn(move || {
            for line in BufReader::new(err).split(b'\n').map_while(Result::ok) {
                let mut log = sink.lock().expect("no holder panics");
                log.push_str(&String::from_utf8_lossy(&line));
                log.push('\n');
            }
        });
        Process {
            child,
            stdout,
            stderr,
            drain: Some(drain),
        }
    }

    fn stderr(&self) -> String {
        self.stderr.lock().expect("no holder panics").clone()
    }

    #[track_caller]
    fn ready_line(&mut self, patience: Duration) -> String {
        match self.stdout.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no ready line within {patience:?}; log:\n{}", self.stderr())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait(PATIENCE);
                panic!(
                    "the broker ended ({status}) before it was ready; log:\n{}",
                    self.stderr()
                );
            }
        }
    }

    #[track_caller]
    fn wait(&mut self, patience: Duration) -> ExitStatus {
        let start = Instant::now();
        let child = &mut self.child;
        let status = wait::until("the broker's exit", patience, || {
            child.try_wait().expect("a child can be waited for")
        });
        // The pipe ends with the process, so the log is complete once the thread is done.
        if let Some(drain) = self.drain.take()
            && start.elapsed() < patience
        {
            drain.join().expect("the draining thread does not panic");
        }
        status
    }

    fn kill(&mut self) {
        // Both fail only when the process has already ended, which is what is wanted.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_line_gives_both_addresses() {
        let line = "mqb ready: listening on tcp://127.0.0.1:30114, http://127.0.0.1:8080, data in ./d (durability sync). Try: x";
        let (listen, http) = parse_ready_line(line).expect("both are there");
        assert_eq!((listen.port(), http.port()), (30114, 8080));
        assert!(parse_ready_line("something else").is_none());
    }
}
