//! The broker's command line: help, configuration from file and flags, what is printed where, and exit codes.

use std::path::Path;
use std::process::{Command, Output};

use mqb_tests::broker::{Setup, broker_binary};
use mqb_tests::raw::Peer;

/// Runs the broker to its end in a directory of its own; for invocations that do not serve.
fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(broker_binary())
        .args(args)
        .current_dir(dir)
        .output()
        .expect("the broker's binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory with an `mqb.toml`.
fn with_config(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("mqb.toml"), text).expect("writable");
    dir
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("readable").next().is_none()
}

#[test]
fn help_names_every_flag_and_every_exit_code() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = run(dir.path(), &["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    let flags = [
        "--config",
        "--listen",
        "--http",
        "--data-dir",
        "--durability",
        "--processors",
        "--check-config",
        "--print-config",
        "--log-format",
        "--log-level",
    ];
    for word in flags
        .into_iter()
        .chain(["Exit codes:", "Examples:", "SIGTERM", "30114"])
    {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
    assert!(stdout(&run(dir.path(), &["--version"])).starts_with("mqb-broker "));
    assert!(is_empty(dir.path()), "asking for help makes nothing");
}

#[test]
fn wrong_usage_is_exit_code_2_and_names_the_flag() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cases: [(&[&str], &str); 8] = [
        (&["--no-such-flag"], "--no-such-flag"),
        (&["extra"], "extra"),
        (&["--listen", "nonsense"], "--listen"),
        (&["--durability", "fsync"], "--durability"),
        (&["--processors=-1"], "--processors"),
        (&["--processors", "many"], "--processors"),
        (&["--log-level", "loud=="], "log.level"),
        (&["--config", "missing.toml"], "missing.toml"),
    ];
    for (args, named) in cases {
        let output = run(dir.path(), args);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(named),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(!stderr(&output).contains("panicked"));
    }
    assert!(is_empty(dir.path()), "nothing was begun");
}

#[test]
fn a_good_file_is_said_to_be_good_and_nothing_is_started() {
    let dir = with_config("[storage]\nsegment_size = \"8MiB\"\n");
    let output = run(dir.path(), &["--config", "mqb.toml", "--check-config"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    assert!(!dir.path().join("mqb-data").exists());
}

#[test]
fn printed_values_name_their_source_and_flags_beat_the_file() {
    let dir = with_config(
        "processors = 3\n\n[storage]\nsegment_size = \"8MiB\"\n[defaults]\ndurability = \"flush\"\n[[domain]]\nname = \"lab.*\"\nttl = \"5m\"\n",
    );
    let args = [
        "--config",
        "mqb.toml",
        "--print-config",
        "--processors",
        "2",
        "--durability",
        "memory",
    ];
    let output = run(dir.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = stdout(&output);
    for line in [
        "processors = 2  # command line",
        "segment_size = \"8MiB\"  # file, line 4",
        "durability = \"memory\"  # command line",
        "ttl = \"5m\"  # file, line 9",
        "address = \"127.0.0.1:30114\"  # default",
        "durability = \"memory\"  # as [defaults]",
    ] {
        assert!(
            printed.lines().any(|printed| printed == line),
            "{line} is missing in:\n{printed}"
        );
    }
    // What is printed is a configuration.
    let again = with_config(&printed);
    let output = run(again.path(), &["--config", "mqb.toml", "--check-config"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// The ready line is for people and scripts; data goes to ./mqb-data unless told otherwise.
#[test]
fn without_configuration_it_serves_from_the_current_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = Setup::processors(1)
        .data_dir(dir.path().join("mqb-data"))
        .start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://any.domain/at-first-use", 0);
    assert_eq!(peer.put_and_wait(0, b"hello"), 0);
    let printed = stdout(&run(dir.path(), &["--print-config"]));
    assert!(
        printed.contains("data_dir = \"./mqb-data\"  # default"),
        "{printed}"
    );
    assert!(
        printed.contains("durability = \"sync\"  # default"),
        "{printed}"
    );
}

#[test]
fn json_logs_are_one_object_per_line() {
    let mut broker = Setup::processors(1).arg("--log-format").arg("json").start();
    let mut peer = Peer::connect(broker.address());
    peer.open_write("bmq://logs/q", 0);
    assert_eq!(broker.stop().code(), Some(0));
    let log = broker.log();
    let events: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let names: Vec<&str> = events
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    for name in [
        "broker.starting",
        "broker.ready",
        "session.opened",
        "queue.created",
        "broker.stopping",
        "broker.stopped",
    ] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    for event in &events {
        let time = event["time"].as_str().expect("every line has its time");
        assert!(
            time.ends_with('Z') && time.len() == "2026-01-31T09:30:00.123456Z".len(),
            "{time}"
        );
        assert!(
            event["level"].is_string() && event["target"].is_string(),
            "{event}"
        );
    }
}

#[test]
fn text_logs_have_a_time_a_level_and_a_stable_name() {
    let mut broker = Setup::processors(1).arg("--log-level").arg("info").start();
    assert_eq!(broker.stop().code(), Some(0));
    let log = broker.log();
    let starting = log
        .lines()
        .find(|line| line.contains("event=broker.starting"))
        .expect("it says that it starts");
    let words: Vec<&str> = starting.split_whitespace().take(3).collect();
    assert!(
        words[0].ends_with('Z') && words[1] == "INFO" && words[2] == "event=broker.starting",
        "{starting}"
    );
}

#[test]
fn a_higher_log_level_is_quiet() {
    let mut broker = Setup::processors(1).arg("--log-level").arg("error").start();
    assert_eq!(broker.stop().code(), Some(0));
    assert_eq!(broker.log(), "");
}

/// A supervisor's soft limit of descriptors is raised to what the system allows.
#[test]
fn the_limit_of_descriptors_is_raised() {
    let broker = Setup::processors(1).start();
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", broker.pid())).expect("the broker runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("Linux tells it");
    let numbers: Vec<&str> = line["Max open files".len()..]
        .split_whitespace()
        .take(2)
        .collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

/// The number of partitions is a fact of the data, not of the configuration.
#[test]
fn a_data_directory_keeps_its_number_of_partitions() {
    let partitions = |count: u32| format!("[storage]\npartitions = {count}\n");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let start = |count| {
        Setup::processors(2)
            .data_dir(dir.path().join("data"))
            .config(partitions(count))
            .start()
    };
    let numbers = |broker: &mqb_tests::broker::Broker| {
        broker
            .metrics()
            .sum("mqb_partition_queues", &["partition=\"2\""])
    };
    let mut broker = start(3);
    let mut peer = Peer::connect(broker.address());
    for queue in 0..6 {
        peer.open_write(&format!("bmq://kept/{queue}"), queue);
    }
    assert_eq!(numbers(&broker), Some(2.0));
    assert_eq!(broker.stop().code(), Some(0));
    drop(broker);
    for count in [1, 7] {
        let mut broker = start(count);
        assert_eq!(numbers(&broker), Some(2.0), "with {count} configured");
        assert_eq!(broker.stop().code(), Some(0));
    }
}
