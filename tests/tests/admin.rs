//! Admin sessions on the client port: what they answer, and purging.

use mqb_tests::broker::{Broker, Setup};
use mqb_tests::load;
use mqb_tests::raw::{Identity, Peer, READ};
use mqb_tests::settings::queue_books;
use mqb_tests::wire::{self, kind};
use mqb_tests::with_processors;
use serde_json::{Value, json};

fn admin(broker: &Broker) -> Peer {
    Peer::connect_as(
        broker.address(),
        Identity::unique().with("clientType", json!("E_TCPADMIN")),
    )
}

/// A command's answer as text.
#[track_caller]
fn ask(peer: &mut Peer, command: &str) -> String {
    let response = peer.call(json!({"adminCommand": {"command": command}}));
    response["adminCommandResponse"]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{response}"))
        .to_owned()
}

/// A command's answer as JSON.
#[track_caller]
fn ask_json(peer: &mut Peer, command: &str) -> Value {
    let text = ask(peer, command);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

with_processors! {
    /// A purge takes what is there at the command, delivered or not, for good, and nothing that is posted after the answer.
    fn purge_has_a_defined_cut(processors) {
        let uri = "bmq://purge/q";
        let mut broker = Setup::processors(processors).start();
        let mut peer = Peer::connect(broker.address());
        peer.open_write(uri, 0);
        for id in 0..100 {
            assert_eq!(peer.put_and_wait(0, &load::payload(id, 50)), 0);
        }
        let mut holder = Peer::connect(broker.address());
        holder.open_read(uri, 0);
        let held = holder.pushes(100);
        let mut operator = admin(&broker);
        let answer = ask_json(&mut operator, &format!("purge {uri}"));
        assert_eq!(answer["purged_messages"], 100, "{answer}");
        for id in 100..110 {
            assert_eq!(peer.put_and_wait(0, &load::payload(id, 50)), 0);
        }
        // Its consumer dies: what was purged in its hands does not come back.
        holder.confirm(0, &[held[0].guid]);
        drop(holder);
        for restart in 0..2 {
            let mut reader = Peer::connect(broker.address());
            reader.open_read(uri, 0);
            let ids: Vec<u64> = reader.pushes(10).iter().map(|push| load::verify(&push.data)).collect();
            assert_eq!(ids, (100..110).collect::<Vec<u64>>());
            reader.assert_quiet(3);
            drop(reader);
            if restart == 0 {
                broker.kill();
                broker.restart();
            }
        }
        let books = queue_books(&broker.metrics(), uri);
        assert_eq!((books.stored, books.purged, books.depth), (110.0, 100.0, 10.0));
    }

    fn queues_and_messages_are_listed(processors) {
        let broker = Setup::processors(processors).start();
        let mut peer = Peer::connect(broker.address());
        for queue in 0..20u32 {
            let uri = format!("bmq://listed/q{queue:02}");
            peer.open_write(&uri, queue);
            for id in 0..u64::from(queue) {
                assert_eq!(peer.put_and_wait(queue, &load::payload(id, 30)), 0);
            }
        }
        peer.open_read("bmq://listed/q05", 100);
        peer.pushes(5);
        let mut operator = admin(&broker);
        let answer = ask_json(&mut operator, "queues listed");
        let queues = answer["queues"].as_array().expect("a list");
        assert_eq!(queues.len(), 20, "{answer}");
        for queue in queues {
            let uri = queue["uri"].as_str().expect("a string");
            let number: u64 = uri.rsplit('q').next().and_then(|digits| digits.parse().ok()).expect("a number");
            assert_eq!(queue["depth_messages"], number, "{queue}");
            assert_eq!(queue["depth_bytes"], number * 30, "{queue}");
            assert_eq!(queue["unconfirmed"], if number == 5 { 5 } else { 0 }, "{queue}");
        }
        let answer = ask_json(&mut operator, "peek bmq://listed/q07 3 2");
        let messages = answer["messages"].as_array().expect("a list");
        assert_eq!(messages.len(), 3, "{answer}");
        assert!(messages.iter().all(|message| message["size_bytes"] == 30), "{answer}");
    }
}

/// Mistakes are answered in words; what is no command is dropped; the session goes on.
#[test]
fn mistakes_are_explained() {
    let broker = Setup::processors(2).start();
    let mut operator = admin(&broker);
    assert!(ask(&mut operator, "HELP").contains("PURGE"));
    for command in [
        "",
        "MAKE COFFEE",
        "DOMAINS",
        "purge",
        "purge nonsense",
        "purge bmq://nobody/q",
        "peek bmq://nobody/q",
    ] {
        assert!(
            !ask(&mut operator, command).is_empty(),
            "{command:?} is answered"
        );
    }
    let long = "x".repeat(500_000);
    assert!(!ask(&mut operator, &long).is_empty());
    operator
        .send(&wire::event(kind::PUT, 0, &[0; 40]))
        .expect("the broker reads");
    operator
        .send(&wire::json_event(
            kind::CONTROL,
            &mqb_tests::raw::open_request("bmq://a/q", 0, READ),
        ))
        .expect("the broker reads");
    assert!(ask(&mut operator, "HELP").contains("PURGE"));
}
