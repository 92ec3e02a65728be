"""Sessions with each option of the SDK set, and an ack callback per post: BROKER URI."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
choices = [
    {"num_processing_threads": 4},
    {"blob_buffer_size": 1024},
    {"channel_high_watermark": 16 << 20},
    {"event_queue_watermarks": (10, 100)},
    {"stats_dump_interval": 30.0},
    {"host_health_monitor": None},
    {"host_health_monitor": blazingmq.BasicHealthMonitor()},
    {"message_compression_algorithm": blazingmq.CompressionAlgorithmType.ZLIB},
]
posted = 0
for options in choices:
    peer = Peer(broker, **options)
    peer.session.open_queue(uri, read=True, write=True, options=QueueOptions(10, 1 << 20, 3))
    current = peer.session.get_queue_options(uri)
    check((current.max_unconfirmed_messages, current.consumer_priority) == (10, 3), repr(current))
    outcomes = {}

    def remember(number):
        def on_ack(ack):
            with peer.changed:
                outcomes.setdefault(number, []).append(ack)
                peer.changed.notify_all()
        return on_ack

    for number in range(100):
        peer.session.post(uri, text(number, 2000), on_ack=remember(number))
    peer.wait("an outcome for each post", lambda: len(outcomes) == 100)
    for index in range(100):
        peer.wait_messages(index + 1)
        peer.messages[index][1].confirm()
    by_guid = {message.guid: message.data for message, _ in peer.messages}
    for number, acks in outcomes.items():
        check(len(acks) == 1, f"{len(acks)} acks for one post")
        check(acks[0].status is AckStatus.SUCCESS, repr(acks[0]))
        check(by_guid[acks[0].guid] == text(number, 2000), "the ack's GUID is that of the message")
    posted += 100
    peer.session.close_queue(uri)
    peer.stop()
say("done", posted=posted)
