//! The official Python SDK (PyPI `blazingmq`) in processes of their own.
//!
//! A virtual environment is made once per target directory. Each script is a process whose exit status is asserted: the
//! SDK crashes on what a broker must not send, so a dead interpreter is the broker's fault. Scripts talk to the test in
//! JSON lines, one object per line on stdout, one command per line on stdin.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;

use crate::broker;
use crate::wait::{self, PATIENCE};

/// The pinned version. A new SDK is a change of its own, with its own run of these tests.
pub const VERSION: &str = "1.2.2";

/// The interpreter of the virtual environment, made on first use.
///
/// **Panics** with the reason when Python or the package index cannot be had: without the SDK the tests prove nothing.
pub fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let dir = broker::target_dir().join(format!("sdk-{VERSION}"));
        let python = dir.join("bin/python");
        let lock = std::fs::File::create(broker::target_dir().join("sdk.lock"))
            .expect("the target directory is writable");
        lock.lock().expect("the file can be locked");
        // The marker is written last: an interrupted installation is made again from the start.
        let marker = dir.join("installed");
        if !marker.exists() {
            // It may not exist; if it cannot be removed, making it anew says so.
            _ = std::fs::remove_dir_all(&dir);
            install(&dir, &python);
            std::fs::write(&marker, VERSION).expect("the environment is writable");
        }
        python
    })
}

fn install(dir: &Path, python: &Path) {
    let host = std::env::var_os("MQB_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    run(
        Command::new(&host).args(["-m", "venv"]).arg(dir),
        "making a virtual environment (python3 with venv is needed)",
    );
    let package = format!("blazingmq=={VERSION}");
    run(
        Command::new(python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            &package,
        ]),
        "installing the official SDK from PyPI",
    );
    run(
        Command::new(python).args(["-c", "import blazingmq"]),
        "importing the official SDK",
    );
}

#[track_caller]
fn run(command: &mut Command, what: &str) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{what}: {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{what}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A running script.
#[derive(Debug)]
pub struct Script {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: mpsc::Receiver<String>,
    stderr: Arc<Mutex<String>>,
}

impl Script {
    /// Starts `tests/sdk/NAME.py BROKER ARGS…`.
    #[track_caller]
    pub fn start(name: &str, broker: &str, args: &[&str]) -> Script {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("sdk")
            .join(format!("{name}.py"));
        let mut child = Command::new(python())
            .arg("-u")
            .arg(path)
            .arg(broker)
            .args(args)
            .env_remove("BMQ_BROKER_URI")
            .env("PYTHONFAULTHANDLER", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let (lines, stdout) = mpsc::channel();
        let out = child.stdout.take().expect("stdout is piped");
        std::thread::spawn(move || {
            // A receiver that is gone only means that the test has what it wanted.
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| _ = lines.send(line));
        });
        let stderr = Arc::new(Mutex::new(String::new()));
        let (err, sink) = (
            child.stderr.take().expect("stderr is piped"),
            Arc::clone(&stderr),
        );
        std::thread::spawn(move || {
            for line in BufReader::new(err).split(b'\n').map_while(Result::ok) {
                let mut text = sink.lock().expect("no holder panics");
                text.push_str(&String::from_utf8_lossy(&line));
                text.push('\n');
            }
        });
        let stdin = child.stdin.take();
        Script {
            name: name.to_owned(),
            child,
            stdin,
            stdout,
            stderr,
        }
    }

    /// Starts a script, lets it run to its end, and returns what it printed.
    #[track_caller]
    pub fn run(name: &str, broker: &str, args: &[&str]) -> Vec<Value> {
        Script::start(name, broker, args).finish()
    }

    /// The next JSON line.
    #[track_caller]
    pub fn line(&mut self) -> Value {
        match self.stdout.recv_timeout(PATIENCE * 2) {
            Ok(line) => self.parse(&line),
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} says nothing; stderr:\n{}", self.name, self.stderr())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = wait::until("the script's exit", PATIENCE, || {
                    self.child.try_wait().expect("a child")
                });
                panic!(
                    "{} ended early ({status}); stderr:\n{}",
                    self.name,
                    self.stderr()
                );
            }
        }
    }

    /// Reads on to the first line whose member `event` is `event`.
    #[track_caller]
    pub fn expect(&mut self, event: &str) -> Value {
        loop {
            let line = self.line();
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Sends a command.
    #[track_caller]
    pub fn command(&mut self, command: &str) {
        let stdin = self.stdin.as_mut().expect("open until finish");
        writeln!(stdin, "{command}")
            .unwrap_or_else(|error| panic!("{}: {error}; stderr:\n{}", self.name, self.stderr()));
    }

    /// Closes stdin, waits for the end, asserts success, and returns the lines not yet read.
    #[track_caller]
    pub fn finish(mut self) -> Vec<Value> {
        self.stdin = None;
        let mut lines = Vec::new();
        loop {
            match self.stdout.recv_timeout(PATIENCE * 4) {
                Ok(line) => lines.push(self.parse(&line)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "{} does not end; last lines {lines:?}; stderr:\n{}",
                        self.name,
                        self.stderr()
                    )
                }
            }
        }
        let status = wait::until("the script's exit", PATIENCE, || {
            self.child.try_wait().expect("a child")
        });
        assert!(
            status.success(),
            "{}: {status}; lines {lines:?}; stderr:\n{}",
            self.name,
            self.stderr()
        );
        lines
    }

    /// Stops the process without letting it know (SIGSTOP), or lets it go on (SIGCONT).
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .expect("a process id");
        rustix::process::kill_process(pid, signal)
            .expect("the child takes signals until it is waited for");
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
    }

    #[track_caller]
    fn parse(&self, line: &str) -> Value {
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{}: {error}: {line:?}", self.name))
    }

    fn stderr(&self) -> String {
        // The line that tells of a crash may still be in the pipe; a moment of grace costs only a failing test.
        std::thread::sleep(Duration::from_millis(50));
        let text = self.stderr.lock().expect("no holder panics");
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
