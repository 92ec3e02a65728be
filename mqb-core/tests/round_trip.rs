//! What is built is read back, for every kind of message and arbitrary contents.

use mqb_core::compress::Inflater;
use mqb_core::control::*;
use mqb_core::data;
use mqb_core::properties::{Properties, PropertiesBuilder, PropertyKind};
use mqb_core::wire::*;
use mqb_core::{Compression, Guid, PropertiesStyle, SubId, SubscriptionId, WireQueueId, checksum};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(|characters| characters.into_iter().collect())
}

fn category() -> impl Strategy<Value = Category> {
    use Category::*;
    select(vec![
        Success,
        Unknown,
        Timeout,
        NotConnected,
        Canceled,
        NotSupported,
        Refused,
        InvalidArgument,
        NotReady,
    ])
}

fn status() -> impl Strategy<Value = Status> {
    (category(), any::<i32>(), text()).prop_map(|(category, code, message)| Status {
        category,
        code,
        message,
    })
}

fn sub_id_info() -> impl Strategy<Value = SubQueueIdInfo> {
    (any::<u32>(), text()).prop_map(|(sub_id, app_id)| SubQueueIdInfo { sub_id, app_id })
}

fn handle_parameters() -> impl Strategy<Value = QueueHandleParameters> {
    (
        text(),
        any::<u32>(),
        option::of(sub_id_info()),
        any::<u64>(),
        any::<[i32; 3]>(),
    )
        .prop_map(
            |(uri, q_id, sub_id_info, flags, [read_count, write_count, admin_count])| {
                QueueHandleParameters {
                    uri,
                    q_id,
                    sub_id_info,
                    flags,
                    read_count,
                    write_count,
                    admin_count,
                }
            },
        )
}

fn consumer() -> impl Strategy<Value = ConsumerInfo> {
    (any::<[i64; 2]>(), any::<[i32; 2]>()).prop_map(|([messages, bytes], [priority, count])| {
        ConsumerInfo {
            max_unconfirmed_messages: messages,
            max_unconfirmed_bytes: bytes,
            consumer_priority: priority,
            consumer_priority_count: count,
        }
    })
}

fn subscription() -> impl Strategy<Value = Subscription> {
    let version = select(vec![
        ExpressionVersion::Undefined,
        ExpressionVersion::Version1,
    ]);
    (any::<u32>(), version, text(), vec(consumer(), 0..4)).prop_map(
        |(s_id, version, text, consumers)| Subscription {
            s_id,
            expression: Expression { version, text },
            consumers,
        },
    )
}

fn configure_stream() -> impl Strategy<Value = ConfigureStream> {
    (any::<u32>(), text(), vec(subscription(), 0..6)).prop_map(|(q_id, app_id, subscriptions)| {
        ConfigureStream {
            q_id,
            stream_parameters: StreamParameters {
                app_id,
                subscriptions,
            },
        }
    })
}

fn configure_queue_stream() -> impl Strategy<Value = ConfigureQueueStream> {
    (any::<u32>(), option::of(sub_id_info()), consumer()).prop_map(
        |(q_id, sub_id_info, consumer)| ConfigureQueueStream {
            q_id,
            stream_parameters: QueueStreamParameters {
                sub_id_info,
                max_unconfirmed_messages: consumer.max_unconfirmed_messages,
                max_unconfirmed_bytes: consumer.max_unconfirmed_bytes,
                consumer_priority: consumer.consumer_priority,
                consumer_priority_count: consumer.consumer_priority_count,
            },
        },
    )
}

fn control_body() -> impl Strategy<Value = ControlBody> {
    let open = || handle_parameters().prop_map(|handle_parameters| OpenQueue { handle_parameters });
    let opened =
        (open(), any::<u64>(), any::<i32>()).prop_map(|(original_request, flags, time)| {
            OpenQueueResponse {
                original_request,
                routing_configuration: RoutingConfiguration { flags },
                deduplication_time_ms: time,
            }
        });
    let close =
        (handle_parameters(), any::<bool>()).prop_map(|(handle_parameters, is_final)| CloseQueue {
            handle_parameters,
            is_final,
        });
    prop_oneof![
        status().prop_map(ControlBody::Status),
        Just(ControlBody::Disconnect(Empty {})),
        Just(ControlBody::DisconnectResponse(Empty {})),
        text().prop_map(|command| ControlBody::AdminCommand(AdminCommand { command })),
        text().prop_map(|text| ControlBody::AdminResponse(AdminResponse { text })),
        open().prop_map(ControlBody::OpenQueue),
        opened.prop_map(ControlBody::OpenQueueResponse),
        close.prop_map(ControlBody::CloseQueue),
        Just(ControlBody::CloseQueueResponse(Empty {})),
        configure_queue_stream().prop_map(ControlBody::ConfigureQueueStream),
        configure_queue_stream().prop_map(|request| ControlBody::ConfigureQueueStreamResponse(
            ConfigureQueueStreamResponse { request }
        )),
        configure_stream().prop_map(ControlBody::ConfigureStream),
        configure_stream().prop_map(|request| ControlBody::ConfigureStreamResponse(
            ConfigureStreamResponse { request }
        )),
        Just(ControlBody::Unknown),
    ]
}

fn identity() -> impl Strategy<Value = ClientIdentity> {
    let kind = select(vec![
        ClientKind::Unknown,
        ClientKind::Client,
        ClientKind::Broker,
        ClientKind::Admin,
    ]);
    let language = select(vec![
        SdkLanguage::Unknown,
        SdkLanguage::Cpp,
        SdkLanguage::Java,
    ]);
    let guid_info =
        (text(), any::<i64>()).prop_map(|(client_id, nanoseconds_from_epoch)| GuidInfo {
            client_id,
            nanoseconds_from_epoch,
        });
    (
        kind,
        language,
        guid_info,
        any::<[i32; 5]>(),
        [text(), text(), text(), text()],
        option::of(text()),
    )
        .prop_map(
            |(
                kind,
                sdk_language,
                guid_info,
                numbers,
                [process_name, host_name, features, cluster_name],
                user_agent,
            )| {
                let [
                    protocol_version,
                    sdk_version,
                    pid,
                    session_id,
                    cluster_node_id,
                ] = numbers;
                ClientIdentity {
                    protocol_version,
                    sdk_version,
                    kind,
                    process_name,
                    pid,
                    session_id,
                    host_name,
                    features,
                    cluster_name,
                    cluster_node_id,
                    sdk_language,
                    guid_info,
                    user_agent,
                }
            },
        )
}

fn negotiation() -> impl Strategy<Value = Negotiation> {
    let response = (status(), any::<[i32; 4]>(), any::<bool>(), identity()).prop_map(
        |(
            result,
            [protocol_version, broker_version, interval, missed],
            is_deprecated_sdk,
            broker_identity,
        )| BrokerResponse {
            result,
            protocol_version,
            broker_version,
            is_deprecated_sdk,
            broker_identity,
            heartbeat_interval_ms: interval,
            max_missed_heartbeats: missed,
        },
    );
    prop_oneof![
        identity().prop_map(Negotiation::ClientIdentity),
        response.prop_map(Negotiation::BrokerResponse),
        Just(Negotiation::Placeholder(Empty {})),
    ]
}

fn authentication() -> impl Strategy<Value = Authentication> {
    prop_oneof![
        (text(), option::of(vec(any::<u8>(), 0..20))).prop_map(|(mechanism, data)| {
            Authentication::Request(AuthenticationRequest { mechanism, data })
        }),
        (status(), option::of(any::<u64>())).prop_map(|(status, lifetime_ms)| {
            Authentication::Response(AuthenticationResponse {
                status,
                lifetime_ms,
            })
        }),
    ]
}

fn document_round_trip<M: Document + PartialEq + std::fmt::Debug>(document: &M) {
    for encoding in [Encoding::Ber, Encoding::Json] {
        // Behind other bytes, as in a session's output buffer.
        let mut out = vec![0xAA; 3];
        let length = encode_event(encoding, document, &mut out);
        let frame = &out[3..];
        assert_eq!((frame.len(), frame.len() % 4), (length, 0));
        let event = Event::parse(frame).unwrap();
        assert_eq!(event.header.kind, M::KIND);
        assert_eq!(decode_event::<M>(&event).as_ref(), Ok(document));
        // No prefix of a document is one. (BER ends by itself, so without padding.)
        let mut bare = Vec::new();
        encode(encoding, document, &mut bare);
        for cut in 0..bare.len() {
            assert!(
                decode::<M>(encoding, &bare[..cut]).is_err(),
                "{encoding:?} cut at {cut}"
            );
        }
    }
}

fn queue() -> impl Strategy<Value = WireQueueId> {
    any::<u32>().prop_map(WireQueueId)
}

fn guid() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(Guid)
}

fn compression() -> impl Strategy<Value = Compression> {
    select(vec![Compression::None, Compression::Zlib])
}

fn style() -> impl Strategy<Value = PropertiesStyle> {
    select(vec![PropertiesStyle::Old, PropertiesStyle::New])
}

fn property() -> impl Strategy<Value = (Vec<u8>, PropertyKind, Vec<u8>)> {
    use PropertyKind::*;
    let kind = select(vec![Bool, Char, Short, Int32, Int64, String, Binary]);
    (vec(any::<u8>(), 1..20), kind, vec(any::<u8>(), 8..40)).prop_map(|(name, kind, mut value)| {
        if let Some(length) = kind.fixed_length() {
            value.truncate(length);
        }
        (name, kind, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn control(rid in option::of(any::<i32>()), body in control_body()) {
        document_round_trip(&ControlMessage { rid, body });
    }

    #[test]
    fn negotiations(document in negotiation()) {
        document_round_trip(&document);
    }

    #[test]
    fn authentications(document in authentication()) {
        document_round_trip(&document);
    }

    #[test]
    fn acks(acks in vec((queue(), guid(), 0u32..1 << 24, select(vec![0u8, 1, 2, 5, 6, 7])), 0..40)) {
        let acks: Vec<_> = acks
            .into_iter()
            .map(|(queue, guid, correlation, status)| Ack { queue, guid, correlation, status: AckStatus::from_wire(status) })
            .collect();
        let mut out = Vec::new();
        let mut builder = AckBuilder::begin(&mut out);
        acks.iter().for_each(|ack| builder.append(&mut out, ack).unwrap());
        prop_assert_eq!(builder.finish(&mut out), out.len());
        let read: Vec<_> = AckIter::new(&Event::parse(&out).unwrap()).map(Result::unwrap).collect();
        prop_assert_eq!(read, acks);
    }

    #[test]
    fn confirms(reject in any::<bool>(), confirms in vec((queue(), guid(), any::<u32>()), 0..40)) {
        let confirms: Vec<_> =
            confirms.into_iter().map(|(queue, guid, sub_id)| Confirm { queue, guid, sub_id: SubId(sub_id) }).collect();
        let mut out = Vec::new();
        let mut builder =
            if reject { ConfirmBuilder::begin_reject(&mut out) } else { ConfirmBuilder::begin(&mut out) };
        confirms.iter().for_each(|confirm| builder.append(&mut out, confirm).unwrap());
        prop_assert_eq!(builder.finish(&mut out), out.len());
        let event = Event::parse(&out).unwrap();
        prop_assert_eq!(event.header.kind, if reject { EventKind::Reject } else { EventKind::Confirm });
        let read: Vec<_> = ConfirmIter::new(&event).map(Result::unwrap).collect();
        prop_assert_eq!(read, confirms);
    }

    #[test]
    fn puts(puts in vec((queue(), guid(), any::<bool>(), compression(), vec(any::<u8>(), 1..60)), 0..12), spliced in any::<bool>()) {
        let mut out = vec![0xAA; 5];
        let mut builder = PutBuilder::begin(&mut out);
        let mut splices = Vec::new();
        let heads: Vec<_> = puts.iter().map(|(queue, guid, ack, compression, data)| PutHead {
            queue: *queue,
            guid: *guid,
            flags: PutFlags(u8::from(*ack)),
            compression: *compression,
            schema: 0,
            crc: checksum::crc32c(data),
        }).collect();
        for (head, (.., data)) in heads.iter().zip(&puts) {
            if spliced {
                splices.push((builder.append(&mut out, head, data.len()).unwrap(), data));
            } else {
                builder.append_copy(&mut out, head, data).unwrap();
            }
        }
        let length = builder.finish(&mut out);
        splices.iter().rev().for_each(|(at, data)| drop(out.splice(at..at, data.iter().copied())));
        prop_assert_eq!(length, out.len() - 5);
        let event = Event::parse(&out[5..]).unwrap();
        prop_assert_eq!(PutIter::new(&event).count(), puts.len());
        for ((put, head), (.., data)) in PutIter::new(&event).map(Result::unwrap).zip(heads).zip(&puts) {
            prop_assert_eq!((put.queue, put.guid, put.flags, put.crc, put.data), (head.queue, head.guid, head.flags, head.crc, &data[..]));
            prop_assert_eq!(put.format().unwrap().compression(), head.compression);
            prop_assert_eq!(&out[5..][put.data_offset..][..data.len()], &data[..]);
        }
    }

    #[test]
    fn pushes(pushes in vec((queue(), guid(), any::<bool>(), vec(any::<u32>(), 0..5), vec(any::<u8>(), 0..60)), 0..12)) {
        let mut out = Vec::new();
        let mut builder = PushBuilder::begin(&mut out);
        for (queue, guid, out_of_order, ids, data) in &pushes {
            let head = PushHead::new(*queue, *guid, mqb_core::DataFormat::PLAIN, *out_of_order);
            let ids: Vec<_> = ids.iter().copied().map(SubscriptionId).collect();
            builder.append_copy(&mut out, &head, &ids, data).unwrap();
        }
        prop_assert_eq!(builder.finish(&mut out), out.len());
        let event = Event::parse(&out).unwrap();
        prop_assert_eq!(PushIter::new(&event).count(), pushes.len());
        for (push, (queue, guid, out_of_order, ids, data)) in PushIter::new(&event).map(Result::unwrap).zip(&pushes) {
            prop_assert_eq!((push.queue, push.guid, push.data), (*queue, *guid, &data[..]));
            prop_assert_eq!(push.flags.contains(PushFlags::OUT_OF_ORDER), *out_of_order);
            let read: Vec<_> = push.options().unwrap().subscriptions().map(|(id, _)| id.0).collect();
            prop_assert_eq!(read, if ids.is_empty() { vec![0] } else { ids.clone() });
        }
    }

    #[test]
    fn a_cut_body_never_yields_more_than_the_whole_ones(cut in 0usize..200, sizes in vec(1usize..40, 1..5)) {
        let mut out = Vec::new();
        let mut builder = PutBuilder::begin(&mut out);
        sizes.iter().for_each(|size| builder.append_copy(&mut out, &PutHead::default(), &vec![7; *size]).unwrap());
        builder.finish(&mut out);
        let cut = cut.min(out.len() - 8);
        out.truncate(out.len() - cut);
        let length = (out.len() as u32).to_be_bytes();
        out[..4].copy_from_slice(&length);
        let event = Event::parse(&out).unwrap();
        let read: Vec<_> = PutIter::new(&event).collect();
        let whole = read.iter().filter(|put| put.is_ok()).count();
        prop_assert!(whole <= sizes.len());
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "an error ends the iteration");
        prop_assert_eq!(cut == 0, whole == sizes.len());
    }

    #[test]
    fn properties(list in vec(property(), 1..12), style in style(), payload in vec(any::<u8>(), 1..100)) {
        let mut builder = PropertiesBuilder::new();
        list.iter().for_each(|(name, kind, value)| builder.set(name.clone(), *kind, value.clone()).unwrap());
        let mut area = Vec::new();
        builder.write(style, &mut area);
        let length = area.len();
        area.extend_from_slice(&payload);
        let read = Properties::parse(&area, style).unwrap();
        prop_assert_eq!(read.area_length(), length);
        prop_assert_eq!(read.count(), builder.len());
        let last_of_name = |name: &[u8]| list.iter().rev().find(|(other, ..)| other == name);
        for property in &read {
            let (_, kind, value) = last_of_name(property.name).unwrap();
            prop_assert_eq!((property.kind, property.value), (*kind, &value[..]));
        }
        (0..length).for_each(|cut| assert!(Properties::parse(&area[..cut], style).is_err()));
    }

    #[test]
    fn packed_data(list in vec(property(), 0..5), style in style(), compression in compression(), payload in vec(0u8..4, 1..3000)) {
        let mut builder = PropertiesBuilder::new();
        list.iter().for_each(|(name, kind, value)| builder.set(name.clone(), *kind, value.clone()).unwrap());
        let mut packed = vec![0xAA; 3];
        let format = data::pack(&builder, style, &payload, compression, &mut packed).unwrap();
        let (mut inflater, mut scratch) = (Inflater::new(), Vec::new());
        prop_assert_eq!(data::validate(format, &packed[3..], &mut inflater, &mut scratch), Ok(()));
        let contents = data::unpack(format, &packed[3..], 1 << 20, &mut inflater, &mut scratch).unwrap();
        prop_assert_eq!(contents.payload, &payload[..]);
        prop_assert_eq!(contents.properties.map_or(0, |properties| properties.count()), builder.len());
    }
}
