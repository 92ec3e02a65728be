"""Several sessions, each with several queues, cross-wired: BROKER URI_PREFIX."""
import sys

from peer import *

broker, prefix = sys.argv[1:3]
SESSIONS, QUEUES, MESSAGES = 4, 5, 200
uris = [f"{prefix}{number}" for number in range(QUEUES)]


def confirm(message, handle):
    handle.confirm()


peers = [Peer(broker, on_message=confirm) for _ in range(SESSIONS)]
for peer in peers:
    for uri in uris:
        peer.session.open_queue(uri, read=True, write=True)
for number in range(MESSAGES):
    for index, peer in enumerate(peers):
        for uri in uris:
            peer.post(uri, f"{uri} {index} {number}".encode())
for peer in peers:
    peer.wait_acks(MESSAGES * QUEUES)

total = SESSIONS * QUEUES * MESSAGES
deadline = time.monotonic() + PATIENCE
while sum(len(peer.messages) for peer in peers) < total and time.monotonic() < deadline:
    time.sleep(0.01)
seen = [(message.queue_uri, message.data.decode()) for peer in peers for message, _ in peer.messages]
check(len(seen) == total, f"{len(seen)} messages instead of {total}")
check(len(set(seen)) == total, "some messages came twice")
check(all(data.startswith(uri + " ") for uri, data in seen), "a message came from the wrong queue")
shares = [len(peer.messages) for peer in peers]
check(min(shares) > 0, f"equal consumers share the work: {shares}")
# What one producer sent to one queue reaches each consumer in order.
for peer in peers:
    last = {}
    for message, _ in peer.messages:
        uri, index, number = message.data.decode().split()
        check(int(number) > last.get((uri, index), -1), f"{uri}: {number} after {last.get((uri, index))}")
        last[uri, index] = int(number)
for peer in peers:
    for uri in uris:
        peer.session.close_queue(uri)
    peer.stop()
say("done", shares=shares)
