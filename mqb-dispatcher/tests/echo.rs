//! The example is a real service: started as a process, talked to, stopped.
#![cfg(not(mqb_loom))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

struct Service(Child, String);

impl Service {
    fn start() -> Self {
        let mut child = Command::new(example("echo"))
            .arg("127.0.0.1:0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example runs");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self(child, address)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.1).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `cargo test` builds examples beside the tests (`target/PROFILE/deps/echo-HASH` is this test, `target/PROFILE/examples/echo` the
/// example), but not when it is told to run this test alone: then it is built here.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.parent().unwrap().parent().unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "mqb-dispatcher", "--example", name]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
    }
    path
}

#[test]
fn echo_returns_what_it_gets_to_each_of_many_and_stops_in_order() {
    let mut service = Service::start();
    let mut peers: Vec<_> = (0..50).map(|_| service.connect()).collect();
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.write_all(format!("hello {number}").as_bytes())
            .unwrap();
    }
    for (number, peer) in peers.iter_mut().enumerate() {
        let expected = format!("hello {number}");
        let mut got = vec![0; expected.len()];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, expected.as_bytes());
    }
    // More than all buffers between us hold, read only afterwards: it must stop reading and go on later.
    let sent: Vec<u8> = (0..8_000_000_u32).map(|byte| byte as u8).collect();
    let mut peer = service.connect();
    let mut writer = peer.try_clone().unwrap();
    let expected = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut got = vec![0; expected.len()];
    peer.read_exact(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == expected);

    service
        .0
        .stdin
        .take()
        .unwrap()
        .write_all(b"quit\n")
        .unwrap();
    assert!(service.0.wait().unwrap().success());
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "it closed the connection");
}
