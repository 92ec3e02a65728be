//! The programs under test, each as a process of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

/// Where the programs are.
pub(crate) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Builds broker and tool as users do, with the release profile, next to this benchmark's own helper.
    pub(crate) fn build() -> anyhow::Result<Programs> {
        let dir = Path::new(env!("CARGO_BIN_EXE_mqb-bench-echo"))
            .parent()
            .context("a program lies in a directory")?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the package lies in the workspace")?;
        let target = dir
            .parent()
            .context("programs lie in the target directory")?;
        let status = Command::new(cargo)
            .args([
                "build",
                "--release",
                "-p",
                "mqb-broker",
                "-p",
                "mqb-tool",
                "--target-dir",
            ])
            .arg(target)
            .current_dir(workspace)
            .status()?;
        anyhow::ensure!(status.success(), "broker and tool do not build");
        Ok(Programs {
            dir: target.join("release"),
        })
    }

    /// Runs `mqb bench` and returns its figures. Fails if the contents were not right.
    pub(crate) fn bench(&self, broker: &Broker, args: &[&str]) -> anyhow::Result<Value> {
        let pid = broker.child.id().to_string();
        let output = Command::new(self.dir.join("mqb"))
            .args([
                "--broker",
                &broker.address,
                "--quiet",
                "--answer-timeout",
                "30s",
                "bench",
                "--json",
                "--broker-pid",
                &pid,
            ])
            .args(args)
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        anyhow::ensure!(
            output.status.success(),
            "mqb bench {args:?} ended with {}: {text}",
            output.status
        );
        serde_json::from_str(text.lines().next().unwrap_or(""))
            .with_context(|| format!("mqb bench printed {text}"))
    }

    /// Latencies of the echo at a rate. **Units**: microseconds.
    pub(crate) fn echo(&self, size: usize, rate: u32, messages: u64) -> anyhow::Result<Value> {
        let mut server = Command::new(env!("CARGO_BIN_EXE_mqb-bench-echo"))
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(server.stdout.take().context("standard output is a pipe")?)
            .read_line(&mut address)?;
        let output = Command::new(env!("CARGO_BIN_EXE_mqb-bench-echo"))
            .args([
                "load",
                address.trim(),
                &size.to_string(),
                &rate.to_string(),
                &messages.to_string(),
            ])
            .stderr(Stdio::inherit())
            .output()?;
        drop(server.stdin.take());
        server.wait()?;
        anyhow::ensure!(
            output.status.success(),
            "the echo's load ended with {}",
            output.status
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Starts a broker on a data directory and waits until it is ready.
    pub(crate) fn start(&self, data: &Path, durability: &str) -> anyhow::Result<Broker> {
        let started = Instant::now();
        let mut child = Command::new(self.dir.join("mqb-broker"))
            .args([
                "--listen",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--log-level",
                "warn",
                "--durability",
                durability,
                "--data-dir",
            ])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting mqb-broker")?;
        let mut lines =
            BufReader::new(child.stdout.take().context("standard output is a pipe")?).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.starts_with("mqb ready"));
        let ready_after = started.elapsed();
        // Whatever else it prints must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        let address = ready.as_deref().and_then(|line| {
            let from = line.find("tcp://")?;
            let rest = &line[from..];
            Some(rest[..rest.find([',', ' ']).unwrap_or(rest.len())].to_owned())
        });
        match address {
            Some(address) => Ok(Broker {
                child,
                address,
                ready_after,
            }),
            None => {
                // It has said what is wrong on standard error; it may be gone already.
                let _ = child.kill();
                anyhow::bail!("the broker did not become ready: {:?}", child.wait()?)
            }
        }
    }
}

/// A running broker; killed when dropped.
pub(crate) struct Broker {
    child: Child,
    pub(crate) address: String,
    /// From its start to its ready line.
    pub(crate) ready_after: Duration,
}

impl Broker {
    /// Stops it in order and waits for its end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the broker ended with {status}");
        Ok(())
    }

    /// Anonymous resident memory. **Units**: bytes.
    pub(crate) fn anonymous_bytes(&self) -> anyhow::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .context("the kernel tells RssAnon")?;
        Ok(line
            .split_whitespace()
            .next()
            .context("a number")?
            .parse::<u64>()?
            * 1024)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Gone already if it was stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
