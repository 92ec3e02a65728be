"""Posts messages of all shapes from one session and reads them back in another: BROKER URI [zlib]."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
algorithm = blazingmq.CompressionAlgorithmType.ZLIB if "zlib" in sys.argv[3:] else blazingmq.CompressionAlgorithmType.NONE
Types = blazingmq.PropertyType

PROPERTIES = {"text": "grüße", "bytes": b"\x00\x01\xff", "yes": True, "no": False, "big": -(2**63), "small": 7}
OVERRIDES = {"small": Types.SHORT}

producer = Peer(broker, message_compression_algorithm=algorithm)
producer.session.open_queue(uri, write=True)
shapes = []
for size in (1, 2, 3, 4, 5, 100, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 1 << 20):
    for make in (payload, text):
        for properties in (None, {"n": len(shapes)}, PROPERTIES, {f"p{i:03}": "v" * i for i in range(1, 256)}):
            shapes.append((make(len(shapes), size), properties))

acked = 0
for number, (data, properties) in enumerate(shapes):
    ack = number % 3 != 2
    acked += ack
    overrides = OVERRIDES if properties is PROPERTIES else None
    producer.post(uri, data, ack=ack, properties=properties, property_type_overrides=overrides)
producer.wait_acks(acked)
check(len({ack.guid for ack in producer.acks}) == acked, "each ack has a GUID of its own")

consumer = Peer(broker)
consumer.session.open_queue(uri, read=True)
consumer.wait_messages(len(shapes))
check(quiet(consumer), "more messages than were posted")
for (message, handle), (data, properties) in zip(consumer.messages, shapes):
    check(message.data == data, f"payload of {len(data)} bytes came back as {len(message.data)} bytes")
    check(message.queue_uri == uri, message.queue_uri)
    check(dict(message.properties) == (properties or {}), f"{properties} came back as {message.properties}")
    if properties is PROPERTIES:
        check(message.property_types["small"] is Types.SHORT, "the type of a property is kept")
        check(message.property_types["bytes"] is Types.BINARY, "the type of a property is kept")
    handle.confirm()
consumer.session.close_queue(uri)

# Once confirmed and closed, nothing comes back.
consumer.messages.clear()
consumer.session.open_queue(uri, read=True)
check(quiet(consumer), "confirmed messages came back")
producer.session.close_queue(uri)
consumer.stop()
producer.stop()
say("done", messages=len(shapes))
