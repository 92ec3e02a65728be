"""Receives and never confirms: BROKER URI. Command: wait N."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
consumer = Peer(broker)
consumer.session.open_queue(uri, read=True)
say("open")
for command in commands():
    consumer.wait_messages(int(command[1]))
    say("received", count=len(consumer.messages))
consumer.stop()
