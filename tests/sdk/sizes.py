"""Sends and receives messages of the sizes given: BROKER URI SIZE..."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
sizes = [int(size) for size in sys.argv[3:]]
# The same session writes and reads, so that both directions of one connection are loaded.
peer = Peer(broker, channel_high_watermark=512 << 20)
peer.session.open_queue(uri, read=True, write=True, options=QueueOptions(max_unconfirmed_bytes=1 << 30))
for number, size in enumerate(sizes):
    peer.post(uri, payload(number, size))
    peer.wait_messages(number + 1)
    message, handle = peer.messages[number]
    check(message.data == payload(number, size), f"{size} bytes came back altered")
    peer.messages[number] = None
    handle.confirm()
peer.wait_acks(len(sizes))
try:
    peer.session.post(uri, bytes(64 * 1024 * 1024 + 1))
    check(False, "the SDK itself limits a message to 64 MiB")
except blazingmq.exceptions.Error:
    pass
peer.session.close_queue(uri)
peer.stop()
say("done", messages=len(sizes))
