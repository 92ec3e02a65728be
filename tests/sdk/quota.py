"""Posts into a full queue: BROKER URI QUOTA."""
import sys

from peer import *

broker, uri, quota = sys.argv[1], sys.argv[2], int(sys.argv[3])
peer = Peer(broker)
peer.session.open_queue(uri, write=True)
for number in range(quota + 3):
    peer.post(uri, payload(number, 100))
# One without an ack callback is refused too, which must not confuse the SDK.
peer.post(uri, b"unheard", ack=False)
peer.wait("all acks", lambda: len(peer.acks) == quota + 3)
# A refusal needs no disk and may overtake; how many there are of each kind is what counts.
statuses = sorted(ack.status.name for ack in peer.acks)
check(statuses == ["LIMIT_MESSAGES"] * 3 + ["SUCCESS"] * quota, repr(statuses))
peer.session.close_queue(uri)
peer.stop()
say("done")
