//! Programs written for the official SDK run unmodified: each script under `sdk/` is a process of its own that must end
//! well. What a script checks is said in the script; a crash of the SDK fails the test like a failed check.

use mqb_tests::broker::Setup;
use mqb_tests::load;
use mqb_tests::raw::Peer;
use mqb_tests::sdk::Script;
use mqb_tests::settings;
use mqb_tests::with_processors;

with_processors! {
    /// All sizes and shapes of properties, with and without an ACK, come back as they were sent.
    fn messages_of_all_shapes(processors) {
        let broker = Setup::processors(processors).start();
        let done = Script::run("round_trip", &broker.uri(), &["bmq://shapes/plain"]);
        assert_eq!(done[0]["messages"], 112);
    }

    /// The same with the SDK's compression.
    fn compressed_messages_of_all_shapes(processors) {
        let broker = Setup::processors(processors).start();
        let done = Script::run("round_trip", &broker.uri(), &["bmq://shapes/zlib", "zlib"]);
        assert_eq!(done[0]["messages"], 112);
    }

    /// One byte to the SDK's limit of 64 MiB.
    fn from_one_byte_to_64_mib(processors) {
        let broker = Setup::processors(processors).start();
        let sizes = ["1", "4096", "1000000", "16777216", "67108863", "67108864", "1"];
        let args: Vec<&str> = std::iter::once("bmq://sizes/q").chain(sizes).collect();
        let done = Script::run("sizes", &broker.uri(), &args);
        assert_eq!(done[0]["messages"], 7);
    }

    /// Four sessions on five queues, all of them producers and consumers.
    fn several_sessions_and_queues(processors) {
        let broker = Setup::processors(processors).start();
        Script::run("sessions", &broker.uri(), &["bmq://several/q"]);
    }

    /// The highest priority gets all, equal ones share.
    fn two_consumers_with_priorities(processors) {
        let broker = Setup::processors(processors).start();
        Script::run("priorities", &broker.uri(), &["bmq://priorities/q"]);
    }

    /// Windows hold, re-configuration under load keeps ids and responses in step, suspended queues are quiet.
    fn configure_suspend_and_resume(processors) {
        let broker = Setup::processors(processors).start();
        Script::run("configure", &broker.uri(), &["bmq://configure/q"]);
    }

    /// Queues and sessions closed in the middle of things.
    fn close_with_messages_outstanding(processors) {
        let broker = Setup::processors(processors).start();
        Script::run("close_outstanding", &broker.uri(), &["bmq://outstanding/q"]);
    }

    /// The broker is killed and restarted three times; the SDK reconnects and retransmits; nothing is lost or stored twice.
    fn reconnect_after_kill(processors) {
        let mut broker = Setup::processors(processors).config(settings::QUICK_RESTART).start();
        let mut script = Script::start("reconnect", &broker.uri(), &["bmq://reconnect/q"]);
        script.expect("open");
        for round in 1..=3 {
            script.command("post 2000");
            script.expect("posted");
            broker.kill();
            // Posted into the void: the SDK keeps them until it is connected again.
            script.command("post 500");
            script.expect("posted");
            script.command(&format!("lost {round}"));
            script.expect("lost");
            broker.restart();
            script.command(&format!("restored {round}"));
            script.expect("restored");
        }
        script.command("drain");
        let drained = script.expect("drained");
        assert_eq!(drained["distinct"], 7500);
        script.finish();
    }

    /// A consumer that dies with messages in hand: another gets them.
    fn messages_of_a_killed_consumer_return(processors) {
        let broker = Setup::processors(processors).start();
        let uri = "bmq://killed/q";
        let mut producer = Peer::connect(broker.address());
        producer.open_write(uri, 0);
        let mut script = Script::start("hold", &broker.uri(), &[uri]);
        script.expect("open");
        for id in 0..50 {
            assert_eq!(producer.put_and_wait(0, &load::payload(id, 100)), 0);
        }
        script.command("wait 50");
        script.expect("received");
        script.kill();
        let mut heir = Peer::connect(broker.address());
        heir.open_read(uri, 0);
        let ids: Vec<u64> = heir.pushes(50).iter().map(|push| load::verify(&push.data)).collect();
        assert_eq!(ids, (0..50).collect::<Vec<u64>>(), "in order");
    }
}

/// Every option of a session, and every ack callback called once, with its own message's GUID.
#[test]
fn session_options_and_ack_callbacks() {
    let broker = Setup::processors(2).start();
    let done = Script::run("options", &broker.uri(), &["bmq://options/q"]);
    assert_eq!(done[0]["posted"], 800);
}

/// A full queue says so in the SDK's words.
#[test]
fn a_full_queue_is_told_by_its_name() {
    let config = settings::domain("small", &[("max_messages", "10")]);
    let broker = Setup::processors(2).config(config).start();
    Script::run("quota", &broker.uri(), &["bmq://small/q", "10"]);
}

/// A refused open tells why and leaves the session as it was.
#[test]
fn refused_opens_leave_the_session_alone() {
    let broker = Setup::processors(2).start();
    let bad = ["bmq://refused/q?id=app", "bmq://refused/nobody?id=x"];
    let args: Vec<&str> = std::iter::once("bmq://refused/q").chain(bad).collect();
    let done = Script::run("refused", &broker.uri(), &args);
    assert_eq!(done[0]["reasons"].as_array().map(Vec::len), Some(bad.len()));
}

/// An orderly stop is to the SDK a lost connection; what was acknowledged before is there afterwards.
#[test]
fn reconnect_after_an_orderly_stop() {
    let mut broker = Setup::processors(2).start();
    let mut script = Script::start("reconnect", &broker.uri(), &["bmq://stopped/q"]);
    script.expect("open");
    script.command("post 1000");
    script.expect("posted");
    assert!(broker.stop().success());
    script.command("post 1000");
    script.expect("posted");
    broker.restart();
    script.command("restored 1");
    script.expect("restored");
    script.command("drain");
    assert_eq!(script.expect("drained")["distinct"], 2000);
    script.finish();
}
