use mqb_core::control::{ConsumerInfo, Expression, QueueStreamParameters, StreamParameters};

use super::*;

fn parameters(uri: &str, q_id: u32, flags: u64) -> QueueHandleParameters {
    QueueHandleParameters {
        uri: uri.into(),
        q_id,
        flags,
        read_count: i32::from(flags & queue_flags::READ != 0),
        write_count: i32::from(flags & queue_flags::WRITE != 0),
        ..QueueHandleParameters::default()
    }
}

fn reader(q_id: u32, sub_id: u32, app_id: &str) -> QueueHandleParameters {
    let sub_id_info = Some(SubQueueIdInfo {
        sub_id,
        app_id: app_id.into(),
    });
    QueueHandleParameters {
        sub_id_info,
        ..parameters("bmq://d/q", q_id, queue_flags::READ)
    }
}

fn check(
    queues: &Queues<()>,
    request: &QueueHandleParameters,
) -> Result<OpenPlan, (Category, i32)> {
    queues
        .check_open(request, &SessionSettings::default())
        .map_err(|refusal| (refusal.category, refusal.code))
}

fn open(queues: &mut Queues<()>, request: &QueueHandleParameters) {
    let plan = check(queues, request).unwrap();
    queues.opened(plan, ());
}

fn subscribe(q_id: u32, app_id: &str, ids: &[u32]) -> ConfigureStream {
    let consumer = ConsumerInfo {
        consumer_priority: 0,
        consumer_priority_count: 1,
        ..ConsumerInfo::default()
    };
    let subscription = |s_id: &u32| Subscription {
        s_id: *s_id,
        consumers: vec![consumer.clone()],
        ..Subscription::default()
    };
    let subscriptions = ids.iter().map(subscription).collect();
    ConfigureStream {
        q_id,
        stream_parameters: StreamParameters {
            app_id: app_id.into(),
            subscriptions,
        },
    }
}

fn configure(
    queues: &mut Queues<()>,
    request: &ConfigureStream,
) -> Result<ConfigurePlan, (Category, i32)> {
    let plan = queues
        .check_configure(request)
        .map_err(|refusal| (refusal.category, refusal.code))?;
    queues.configured(&plan);
    Ok(plan)
}

#[test]
fn opens_are_refused_as_the_reference_does() {
    use Category::{InvalidArgument, Refused};
    let good = parameters("bmq://d/q", 0, queue_flags::READ);
    let writer_app = QueueHandleParameters {
        write_count: 1,
        flags: 6,
        ..reader(0, 1, "a")
    };
    for (request, category, code) in [
        (parameters("bmq:/d/q", 0, 2), Refused, 0),
        (
            parameters(&format!("bmq://d/{}", "q".repeat(65)), 0, 2),
            Refused,
            0,
        ),
        (parameters("bmq://d/q", 0, 0), InvalidArgument, 0),
        (
            QueueHandleParameters {
                read_count: -1,
                write_count: 2,
                flags: 4,
                ..good.clone()
            },
            InvalidArgument,
            0,
        ),
        (
            QueueHandleParameters {
                admin_count: 1,
                ..good.clone()
            },
            InvalidArgument,
            0,
        ),
        (
            QueueHandleParameters {
                flags: 3,
                ..good.clone()
            },
            InvalidArgument,
            -1,
        ),
        (
            QueueHandleParameters {
                flags: 6,
                ..good.clone()
            },
            InvalidArgument,
            0,
        ),
        (
            QueueHandleParameters {
                flags: 4,
                ..good.clone()
            },
            InvalidArgument,
            0,
        ),
        (parameters("bmq://d/q", 0xffff_fff6, 2), InvalidArgument, 0),
        (writer_app, InvalidArgument, 0),
        (reader(0, 1, ""), InvalidArgument, 0),
        (reader(0, 1, "a~b"), InvalidArgument, 0),
        (reader(0, 1, "a\0b"), InvalidArgument, 0),
        (reader(0, 1, DEFAULT_APP_ID), InvalidArgument, 0),
        (reader(0, 0, "a"), InvalidArgument, 0),
    ] {
        assert_eq!(
            check(&Queues::default(), &request),
            Err((category, code)),
            "{request:?}"
        );
    }
    assert!(check(&Queues::default(), &good).is_ok());
    // Bits without a meaning here pass.
    assert!(
        check(
            &Queues::default(),
            &QueueHandleParameters {
                flags: 2 | 8 | 1 << 40,
                ..good
            }
        )
        .is_ok()
    );
}

#[test]
fn numbers_that_clash_are_refused_and_huge_ones_cost_nothing() {
    let mut queues = Queues::default();
    open(&mut queues, &reader(0, u32::MAX, "a"));
    open(&mut queues, &reader(0, u32::MAX, "a"));
    for clash in [reader(0, 1, "a"), reader(0, u32::MAX, "b")] {
        assert_eq!(check(&queues, &clash), Err((Category::InvalidArgument, 0)));
    }
    assert_eq!(
        check(&queues, &parameters("bmq://d/r", 0, 4)),
        Err((Category::InvalidArgument, -1))
    );
    // The same queue under another number, and its writer beside the readers.
    open(&mut queues, &parameters("bmq://d/q", 1, 4));
    open(&mut queues, &parameters("bmq://d/q?id=ignored", 0, 4));
    assert!(queues.get(WireQueueId(0)).unwrap().is_writable());
}

#[test]
fn queues_and_streams_are_capped_and_come_back() {
    let settings = SessionSettings {
        queues_max: 2,
        streams_max: 3,
        ..SessionSettings::default()
    };
    let mut queues = Queues::default();
    let try_open = |queues: &mut Queues<()>, request: &QueueHandleParameters| {
        let plan = queues.check_open(request, &settings)?;
        queues.opened(plan, ());
        Ok::<(), Refusal>(())
    };
    try_open(&mut queues, &reader(0, 1, "a")).unwrap();
    try_open(&mut queues, &reader(1, 1, "a")).unwrap();
    assert_eq!(
        try_open(&mut queues, &reader(2, 1, "a"))
            .unwrap_err()
            .category,
        Category::Refused
    );
    try_open(&mut queues, &reader(1, 2, "b")).unwrap();
    assert_eq!(
        try_open(&mut queues, &reader(1, 3, "c"))
            .unwrap_err()
            .category,
        Category::Refused
    );
    let plan = queues.check_close(&reader(1, 1, "a"), true).unwrap();
    queues.closed(&plan);
    assert_eq!((queues.len(), queues.streams), (1, 1));
    try_open(&mut queues, &reader(2, 1, "a")).unwrap();
}

#[test]
fn subscriptions_hold_from_one_configure_to_the_next() {
    let mut queues = Queues::default();
    open(&mut queues, &parameters("bmq://d/q", 0, 2));
    let holds = |queues: &Queues<()>, id| {
        queues
            .get(WireQueueId(0))
            .unwrap()
            .is_subscribed(SubscriptionId(id))
    };
    assert!(!holds(&queues, 1));
    configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[1, 2])).unwrap();
    assert!(holds(&queues, 1) && holds(&queues, 2) && !holds(&queues, 0));
    configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[3])).unwrap();
    assert!(holds(&queues, 3) && !holds(&queues, 1));
    configure(&mut queues, &subscribe(0, DEFAULT_APP_ID, &[])).unwrap();
    assert!(!holds(&queues, 3));
}

#[test]
fn configures_are_refused_as_they_must_be() {
    use Category::{InvalidArgument, NotSupported, Unknown};
    let mut queues = Queues::default();
    open(&mut queues, &reader(0, 1, "a"));
    open(&mut queues, &reader(0, 2, "b"));
    configure(&mut queues, &subscribe(0, "a", &[1])).unwrap();
    let changed = |change: &dyn Fn(&mut Subscription)| {
        let mut request = subscribe(0, "b", &[5]);
        change(&mut request.stream_parameters.subscriptions[0]);
        request
    };
    let expression = |version, text: &str| Expression {
        version,
        text: text.into(),
    };
    for (request, refusal) in [
        (subscribe(9, "a", &[5]), (Unknown, 0)),
        (subscribe(0, "c", &[5]), (Unknown, 0)),
        (subscribe(0, DEFAULT_APP_ID, &[5]), (Unknown, 0)),
        (subscribe(0, "b", &[5, 6, 5]), (InvalidArgument, 0)),
        (subscribe(0, "b", &[1]), (InvalidArgument, 0)),
        (
            changed(&|s| s.consumers[0].max_unconfirmed_messages = -1),
            (InvalidArgument, 0),
        ),
        (
            changed(&|s| s.consumers[0].max_unconfirmed_bytes = i64::MIN),
            (InvalidArgument, 0),
        ),
        (
            changed(&|s| s.consumers[0].consumer_priority = NO_PRIORITY),
            (Unknown, -1),
        ),
        (
            changed(&|s| s.consumers[0].consumer_priority_count = 0),
            (Unknown, -1),
        ),
        (
            changed(&|s| s.expression = expression(ExpressionVersion::Version1, "x > 1")),
            (NotSupported, 0),
        ),
        (
            changed(&|s| s.expression = expression(ExpressionVersion::Undefined, "x > 1")),
            (InvalidArgument, 0),
        ),
    ] {
        assert_eq!(
            configure(&mut queues, &request),
            Err(refusal),
            "{request:?}"
        );
    }
    let plan = configure(&mut queues, &changed(&|s| s.consumers.clear())).unwrap();
    assert!(plan.subscriptions.is_empty());
    configure(
        &mut queues,
        &changed(&|s| s.expression = expression(ExpressionVersion::Version1, "")),
    )
    .unwrap();
}

#[test]
fn old_style_configures_use_the_number_of_their_stream() {
    let mut queues = Queues::default();
    open(&mut queues, &parameters("bmq://d/q", 0, 2));
    let mut request = ConfigureQueueStream {
        q_id: 0,
        stream_parameters: QueueStreamParameters {
            consumer_priority: 1,
            consumer_priority_count: 1,
            ..QueueStreamParameters::default()
        },
    };
    let plan = queues.check_configure_legacy(&request).unwrap();
    assert_eq!(
        plan.subscriptions
            .iter()
            .map(|found| found.id.0)
            .collect::<Vec<_>>(),
        [0]
    );
    request.stream_parameters = QueueStreamParameters::default();
    assert!(
        queues
            .check_configure_legacy(&request)
            .unwrap()
            .subscriptions
            .is_empty()
    );
}

#[test]
fn closes_are_matched_by_number_and_count() {
    use Category::{InvalidArgument, Unknown};
    let mut queues = Queues::default();
    open(&mut queues, &parameters("bmq://d/q", 0, 2));
    open(&mut queues, &parameters("bmq://d/q", 0, 6));
    let refused = |queues: &Queues<()>, request: &QueueHandleParameters, is_final| {
        queues.check_close(request, is_final).unwrap_err().category
    };
    assert_eq!(
        refused(&queues, &parameters("bmq://d/q", 0, 0), true),
        InvalidArgument
    );
    assert_eq!(
        refused(&queues, &parameters("bmq://d/q", 1, 2), true),
        Unknown
    );
    assert_eq!(refused(&queues, &reader(0, 1, "a"), false), Unknown);
    let more = QueueHandleParameters {
        read_count: 3,
        ..parameters("bmq://d/q", 0, 2)
    };
    assert_eq!(refused(&queues, &more, true), Unknown);
    // The URI does not matter; one reader and the writer go, one reader stays.
    let plan = queues
        .check_close(&parameters("bmq://other/q", 0, 6), false)
        .unwrap();
    queues.closing(&plan);
    queues.closed(&plan);
    assert!(!queues.get(WireQueueId(0)).unwrap().is_writable());
    assert!(queues.get(WireQueueId(0)).unwrap().is_readable(SubId(0)));
    // The last one frees the number, final or not; nothing is taken meanwhile.
    let plan = queues
        .check_close(&parameters("bmq://d/q", 0, 2), false)
        .unwrap();
    queues.closing(&plan);
    assert_eq!(
        refused(&queues, &parameters("bmq://d/q", 0, 2), true),
        Unknown
    );
    queues.closed(&plan);
    assert!(queues.is_empty());
}
