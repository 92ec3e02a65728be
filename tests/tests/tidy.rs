//! The rules of the house that a compiler does not hold: who may import whom, where `unsafe` may stand, how long a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Workspace crate -> workspace crates that it may use at run time.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("mqb-core", &[]),
    ("mqb-dispatcher", &["mqb-core"]),
    ("mqb-queue", &["mqb-core", "mqb-dispatcher"]),
    ("mqb-broker", &["mqb-core", "mqb-dispatcher", "mqb-queue"]),
    ("mqb-client", &["mqb-core"]),
    ("mqb-tool", &["mqb-core", "mqb-client"]),
    (
        "mqb-tests",
        &[
            "mqb-core",
            "mqb-dispatcher",
            "mqb-queue",
            "mqb-broker",
            "mqb-client",
        ],
    ),
    (
        "mqb-benches",
        &[
            "mqb-core",
            "mqb-dispatcher",
            "mqb-queue",
            "mqb-broker",
            "mqb-client",
        ],
    ),
];

/// Folders of the crates whose root forbids `unsafe`.
const FORBIDS_UNSAFE: &[&str] = &[
    "mqb-core/src/lib.rs",
    "mqb-queue/src/lib.rs",
    "mqb-client/src/lib.rs",
    "mqb-tool/src/main.rs",
];

/// Files that may hold `unsafe`, each with its invariant and a test.
const MAY_BE_UNSAFE: &[&str] = &[
    // Counting allocators.
    "mqb-core/tests/allocation.rs",
    "mqb-dispatcher/tests/calls_allocations.rs",
    // `getrusage`.
    "benches/benches/rpc/stats.rs",
    // `pthread_self` and `pthread_equal`: what the owner check is compared with.
    "benches/benches/affinity.rs",
];

/// Longest file of the product. One idea each.
const LINES_MAX: usize = 900;

/// State machines that splitting would scatter.
const MAY_BE_LONGER: &[(&str, usize)] = &[
    ("mqb-broker/src/storage/recovery.rs", 1200),
    ("mqb-broker/src/storage/partition.rs", 1000),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ stands in the root")
        .to_path_buf()
}

/// Files that git tracks, or would.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).expect("names are UTF-8");
    let present = |name: &&str| root().join(name).is_file();
    let files: Vec<String> = names.lines().filter(present).map(str::to_owned).collect();
    assert!(
        files.len() > 50,
        "only {} files found: not a checkout?",
        files.len()
    );
    files
}

fn read(file: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(file)).expect("a tracked file is readable"))
        .into_owned()
}

fn rust_files() -> impl Iterator<Item = String> {
    files().into_iter().filter(|file| file.ends_with(".rs"))
}

#[test]
fn imports_run_one_way() {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&metadata.stdout).expect("cargo metadata prints JSON");
    let allowed: BTreeMap<&str, BTreeSet<&str>> = MAY_IMPORT
        .iter()
        .map(|(name, uses)| (*name, uses.iter().copied().collect()))
        .collect();
    let packages = metadata["packages"].as_array().expect("packages");
    assert_eq!(
        packages.len(),
        allowed.len(),
        "a crate is missing from MAY_IMPORT"
    );
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            if used.starts_with("mqb-") {
                assert!(
                    allowed[name].contains(used),
                    "{name} must not import {used}"
                );
            }
        }
    }
}

#[test]
fn only_named_files_hold_unsafe() {
    for file in FORBIDS_UNSAFE {
        assert!(
            read(file).contains("#![forbid(unsafe_code)]"),
            "{file} must forbid unsafe code"
        );
    }
    for file in rust_files().filter(|file| file != "tests/tests/tidy.rs") {
        let found = read(&file)
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .any(|line| {
                line.contains("unsafe {")
                    || line.contains("unsafe fn")
                    || line.contains("unsafe impl")
            });
        assert!(
            !found || MAY_BE_UNSAFE.contains(&file.as_str()),
            "{file}: unsafe outside the named files"
        );
    }
}

#[test]
fn files_have_one_idea_and_say_which() {
    for file in rust_files().filter(|file| file.contains("/src/")) {
        let text = read(&file);
        let lines = text.lines().count();
        let longer = MAY_BE_LONGER.iter().find(|(name, _)| *name == file);
        let max = longer.map_or(LINES_MAX, |(_, max)| *max);
        assert!(
            lines <= max,
            "{file} has {lines} lines, more than {max}: more than one idea?"
        );
        let is_test = file.ends_with("/tests.rs") || file.contains("/tests/");
        assert!(
            is_test || text.starts_with("//!"),
            "{file} does not begin with what it is (`//!`)"
        );
    }
}

#[test]
fn nothing_is_left_unfinished_or_tied_to_one_machine() {
    // Spelled in parts so that this file does not find itself.
    let marks: Vec<String> = [
        ["to", "do!("],
        ["unimpl", "emented!("],
        ["FIX", "ME"],
        ["XX", "X:"],
        ["db", "g!("],
        ["/ro", "ot/"],
        ["/wo", "rk/"],
        ["/ho", "me/"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect();
    for file in files().into_iter().filter(|file| {
        !file.contains("/corpus/") && !file.contains("/tests/ui/") && !file.ends_with(".lock")
    }) {
        let text = read(&file);
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{file} contains `{mark}`");
        }
    }
}

#[test]
fn atomics_of_the_dispatcher_come_through_one_door() {
    // Otherwise the models do not see them.
    // The pool's threads are real: only its end waits here, and no model runs it.
    let doors = [
        "mqb-dispatcher/src/sync.rs",
        "mqb-dispatcher/src/calls/pool.rs",
    ];
    for file in rust_files()
        .filter(|file| file.starts_with("mqb-dispatcher/src/") && !doors.contains(&file.as_str()))
    {
        let text = read(&file);
        for banned in ["std::sync::Mutex", "std::sync::Condvar", "atomic::Atomic"] {
            assert!(!text.contains(banned), "{file} uses {banned} past sync.rs");
        }
    }
}
