//! Configuration files that cannot be used: refused before anything is touched, with the line and what would be right.

use std::process::Command;

use mqb_tests::broker::broker_binary;

/// A file, and what its refusal must say beside the file's name.
const CASES: &[(&str, &str, &str)] = &[
    (
        "misspelled key of a section",
        "[listen]\naddres = \"127.0.0.1:1\"\n",
        "mqb.toml:2: unknown key `listen.addres`, did you mean `listen.address`?",
    ),
    (
        "misspelled key of a domain",
        "\n[[domain]]\nname = \"a\"\ndurabilty = \"sync\"\n",
        "mqb.toml:4: unknown key `durabilty`, did you mean `durability`?",
    ),
    (
        "misspelled section",
        "[storge]\ndata_dir = \"x\"\n",
        "mqb.toml:1: unknown section `storge`, did you mean `storage`?",
    ),
    (
        "key of nothing",
        "zzzzzzzzzzzzzzzzzzzz = 1\n",
        "mqb.toml:1: unknown key",
    ),
    ("not TOML", "[listen\naddress = 1\n", "mqb.toml:1:"),
    (
        "key twice",
        "processors = 1\nprocessors = 2\n",
        "mqb.toml:2:",
    ),
    (
        "text for a number",
        "processors = \"two\"\n",
        "mqb.toml:1: processors: expected a whole number",
    ),
    (
        "number for a duration",
        "[shutdown]\ndeadline = 10\n",
        "mqb.toml:2: shutdown.deadline: expected a duration",
    ),
    (
        "duration without unit",
        "[shutdown]\ndeadline = \"10\"\n",
        "write for example 100ms",
    ),
    (
        "size with a decimal unit",
        "[storage]\ncache_size = \"1GB\"\n",
        "write for example 4096, 64KiB",
    ),
    (
        "too many processors",
        "processors = 5000\n",
        "out of range: 0 to 1024",
    ),
    (
        "no partition",
        "[storage]\npartitions = 0\n",
        "out of range",
    ),
    (
        "segment too small",
        "[storage]\nsegment_size = \"1KiB\"\n",
        "out of range",
    ),
    (
        "segment too large",
        "[storage]\nsegment_size = \"100GiB\"\n",
        "out of range",
    ),
    (
        "no patience",
        "[limits]\nhandshake_timeout = \"0\"\n",
        "must not be 0",
    ),
    (
        "no deadline",
        "[shutdown]\ndeadline = \"0\"\n",
        "must not be 0",
    ),
    (
        "no room for output",
        "[limits]\noutput = \"1KiB\"\n",
        "limits.output must be at least",
    ),
    (
        "unknown level",
        "[defaults]\ndurability = \"fsync\"\n",
        "choose sync, flush or memory",
    ),
    (
        "mode of another version",
        "[[domain]]\nname = \"a\"\nmode = \"broadcast\"\n",
        "mqb.toml:3: mode: mode `broadcast` is not available",
    ),
    (
        "log format",
        "[log]\nformat = \"xml\"\n",
        "choose text or json",
    ),
    ("log level", "[log]\nlevel = \"mqb=loud\"\n", "log.level"),
    (
        "domain without name",
        "[[domain]]\ndurability = \"sync\"\n",
        "mqb.toml:1: a [[domain]] needs a `name`",
    ),
    (
        "domain named twice",
        "[[domain]]\nname = \"a\"\n[[domain]]\nname = \"a\"\n",
        "named twice",
    ),
    (
        "name that cannot be",
        "[[domain]]\nname = \"a b\"\n",
        "is not a domain name or pattern",
    ),
    (
        "domain as a table",
        "[domain]\nname = \"a\"\n",
        "write [[domain]]",
    ),
    (
        "no domain at all",
        "[domains]\nauto_create = false\n",
        "no queue could ever be opened",
    ),
    (
        "too many attempts",
        "[defaults]\nmax_delivery_attempts = 1000\n",
        "out of range: 0 to 63",
    ),
    (
        "an address of letters",
        "[listen]\naddress = \"somewhere\"\n",
        "is not an address",
    ),
    (
        "two of one address",
        "[listen]\naddress = \"127.0.0.1:5\"\n[http]\naddress = \"127.0.0.1:5\"\n",
        "must differ",
    ),
];

#[test]
fn each_is_refused_with_the_line_and_what_would_be_right() {
    let mut wrong = Vec::new();
    for (what, text, expected) in CASES {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("mqb.toml"), text).expect("writable");
        // Without --check-config: a broker must not start with it either.
        let output = Command::new(broker_binary())
            .args(["--config", "mqb.toml"])
            .current_dir(dir.path())
            .output()
            .expect("the broker's binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_refused = output.status.code() == Some(2) && stderr.contains(expected);
        if !is_refused || stderr.trim_end().lines().count() != 1 || !output.stdout.is_empty() {
            wrong.push(format!("{what}: {}: {stderr}", output.status));
        }
        assert!(
            !dir.path().join("mqb-data").exists(),
            "{what}: data was touched"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file of any bytes is refused or accepted, never a crash.
#[test]
fn bytes_that_are_no_text() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("mqb.toml"), [0xff, 0xfe, 0, 1, 2]).expect("writable");
    let output = Command::new(broker_binary())
        .args(["--config", "mqb.toml", "--check-config"])
        .current_dir(dir.path())
        .output()
        .expect("the broker's binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("mqb.toml") && !stderr.contains("panicked"),
        "{stderr}"
    );
}
