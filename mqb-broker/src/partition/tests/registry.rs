//! Domains, placement, take-over and questions.

use mqb_core::control::Category;

use super::world::{Told, World, config, domain};
use crate::event::{Event, QueryAnswer, QueryRequest, Refusal};

fn refusal(told: Vec<Told>) -> (Category, i32) {
    match &told[..] {
        [Told::Opened(_, Err(Refusal { category, code, .. }))] => (*category, *code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn opens_are_refused_as_the_reference_refuses_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut strict = config();
    strict.auto_create = false;
    strict.domains.push(domain("tiny", |config| {
        (
            config.max_queues,
            config.max_consumers,
            config.max_producers,
        ) = (1, 1, 1);
    }));
    let mut world = World::new(&dir, strict);
    let peer = world.peer(None);
    world.open_counts(&peer, "bmq://nowhere/q", 1, 0);
    assert_eq!(refusal(peer.told()), (Category::Unknown, -1));
    world.open(&peer, "bmq://tiny/q");
    world.open_counts(&peer, "bmq://tiny/other", 1, 0);
    assert_eq!(refusal(peer.told()), (Category::Refused, -205));
    let late = world.peer(None);
    world.open_counts(&late, "bmq://tiny/q", 1, 0);
    assert_eq!(
        refusal(late.told()),
        (Category::Unknown, -1),
        "a consumer too many"
    );
    world.open_counts(&late, "bmq://tiny/q", 0, 1);
    assert_eq!(
        refusal(late.told()),
        (Category::Unknown, -1),
        "a producer too many"
    );
    let QueryAnswer::Partitions(reports) = world.ask(QueryRequest::Partitions) else {
        panic!()
    };
    assert_eq!(
        reports.iter().map(|report| report.sessions).sum::<u64>(),
        1,
        "a refused open leaves nothing behind"
    );
}

#[test]
fn domains_made_on_first_use_are_capped() {
    let dir = tempfile::tempdir().unwrap();
    let mut few = config();
    few.domains_max = 2;
    let mut world = World::new(&dir, few);
    let peer = world.peer(None);
    world.open_counts(&peer, "bmq://a/q", 0, 1);
    world.open_counts(&peer, "bmq://b/q", 0, 1);
    world.settle();
    assert!(
        peer.told()
            .iter()
            .all(|told| matches!(told, Told::Opened(_, Ok(()))))
    );
    world.open_counts(&peer, "bmq://c/q", 0, 1);
    assert_eq!(refusal(peer.told()), (Category::Refused, 0));
    world.open_counts(&peer, "bmq://a/q2", 0, 1);
    world.settle();
    assert!(matches!(peer.told()[..], [Told::Opened(_, Ok(()))]));
}

#[test]
fn queues_spread_over_partitions_and_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let places = |world: &mut World| -> Vec<(String, u16)> {
        match world.ask(QueryRequest::Queues { domain: None }) {
            QueryAnswer::Queues(queues) => queues
                .into_iter()
                .map(|queue| (queue.uri, queue.partition))
                .collect(),
            other => panic!("{other:?}"),
        }
    };
    for n in 0..10 {
        let peer = world.peer(None);
        world.open(&peer, &format!("bmq://sync/q{n}"));
    }
    let before = places(&mut world);
    assert_eq!(before.len(), 10);
    assert_eq!(
        before
            .iter()
            .filter(|(_, partition)| *partition == 0)
            .count(),
        5
    );
    assert!(before.is_sorted());
    let mut world = world.restart(&dir);
    let peer = world.peer(None);
    world.open(&peer, "bmq://sync/q3");
    assert_eq!(places(&mut world), before);
    let QueryAnswer::Domains(domains) = world.ask(QueryRequest::Domains) else {
        panic!()
    };
    assert_eq!(domains, ["sync"]);
}

#[test]
fn a_reconnect_supersedes_the_older_connection_and_only_that() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let (one, stranger, two) = (
        world.peer(Some("me")),
        world.peer(Some("you")),
        world.peer(Some("me")),
    );
    let nobody = world.peer(None);
    assert_eq!(one.told(), [Told::Superseded(two.session.0)]);
    // The older one's end does not take the newer one's place.
    world.started.registry.post(Event::SessionDown {
        session: one.session,
    });
    let three = world.peer(Some("me"));
    assert_eq!(two.told(), [Told::Superseded(three.session.0)]);
    world.started.registry.post(Event::SessionDown {
        session: three.session,
    });
    world.peer(Some("me"));
    assert_eq!(
        (three.told(), stranger.told(), nobody.told()),
        (vec![], vec![], vec![])
    );
}

#[test]
fn sessions_learn_of_a_lost_partition_and_its_queues_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let peer = world.peer(None);
    world.open(&peer, "bmq://sync/q");
    let partition = peer.partitions().remove(0);
    world.started.registry.post(Event::PartitionLost {
        partition: partition.clone(),
    });
    world.run();
    assert_eq!(peer.told(), [Told::Lost]);
    world.open_counts(&peer, "bmq://sync/q", 1, 0);
    assert_eq!(refusal(peer.told()), (Category::NotReady, 0));
    let other = world.peer(None);
    world.open(&other, "bmq://sync/q2");
    assert_ne!(other.partitions(), [partition]);
}

#[test]
fn operators_look_into_queues_and_purge_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(&dir, config());
    let mut peer = world.peer(None);
    let uri = "bmq://sync/q".to_owned();
    world.consume(&peer, &uri, 3);
    let numbers: Vec<u128> = (1..=10_000).collect();
    world.put_batch(&mut peer, &numbers, 10);
    world.settle();
    peer.told();
    let report = world.report(&uri);
    assert_eq!(
        (report.messages, report.bytes, report.unconfirmed),
        (10_000, 100_000, 3)
    );
    assert_eq!(
        (report.producers, report.consumers, report.durability),
        (1, 1, "sync")
    );
    match world.ask(QueryRequest::Messages {
        uri: uri.clone(),
        skip: 9_998,
        count: 100,
    }) {
        QueryAnswer::Messages(messages) => {
            let guids: Vec<_> = messages.iter().map(|message| message.guid).collect();
            assert_eq!(
                guids,
                [super::world::guid(9_999), super::world::guid(10_000)]
            );
        }
        other => panic!("{other:?}"),
    }
    match world.ask(QueryRequest::Purge {
        uri: uri.clone(),
        app_id: None,
    }) {
        QueryAnswer::Purged {
            messages: 10_000,
            bytes: 100_000,
        } => {}
        other => panic!("{other:?}"),
    }
    world.put(&mut peer, &[20_000]);
    world.settle();
    let report = world.report(&uri);
    assert_eq!(
        (
            report.messages,
            report.purged,
            report.stored,
            report.unconfirmed
        ),
        (1, 10_000, 10_001, 1)
    );
    let unknown = world.ask(QueryRequest::Queue {
        uri: "bmq://sync/none".into(),
    });
    assert!(matches!(unknown, QueryAnswer::Refused(_)));
}
