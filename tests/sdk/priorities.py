"""Two consumers of different, then of equal priority: BROKER URI."""
import sys

from peer import *

broker, uri = sys.argv[1:3]


def confirm(message, handle):
    handle.confirm()


producer = Peer(broker)
producer.session.open_queue(uri, write=True)
high, low = Peer(broker, on_message=confirm), Peer(broker, on_message=confirm)
low.session.open_queue(uri, read=True, options=QueueOptions(consumer_priority=1))
high.session.open_queue(uri, read=True, options=QueueOptions(consumer_priority=2))


def post(count):
    have = len(producer.acks)
    for number in range(count):
        producer.post(uri, f"{have + number}".encode())
    producer.wait_acks(have + count)


def wait_both(count):
    deadline = time.monotonic() + PATIENCE
    while len(high.messages) + len(low.messages) < count:
        check(time.monotonic() < deadline, f"{len(high.messages)} + {len(low.messages)} of {count}")
        time.sleep(0.01)


post(100)
high.wait_messages(100)
check(not low.messages, "only the highest priority is served")
check([int(message.data) for message, _ in high.messages] == list(range(100)), "in order")

# The higher one leaves: the lower one takes over.
high.session.close_queue(uri)
post(100)
low.wait_messages(100)
check(len(high.messages) == 100, "a closed consumer gets nothing")

# Equal priorities share, turn by turn.
high.session.open_queue(uri, read=True, options=QueueOptions(consumer_priority=1))
high.messages.clear()
low.messages.clear()
post(200)
wait_both(200)
shares = [len(high.messages), len(low.messages)]
check(min(shares) >= 80, f"equal consumers share: {shares}")

# Raised by a re-configuration, it gets all again.
high.session.configure_queue(uri, QueueOptions(consumer_priority=5))
high.messages.clear()
low.messages.clear()
post(100)
high.wait_messages(100)
check(not low.messages, "a re-configured priority counts")

# A full window passes on nothing to lower priorities than the highest that is open.
for peer in (high, low, producer):
    peer.session.close_queue(uri)
    peer.stop()
say("done", shares=shares)
