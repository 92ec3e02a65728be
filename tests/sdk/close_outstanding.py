"""Closes queues and sessions with messages outstanding in both directions: BROKER URI."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
COUNT = 300

# Closed while PUTs are on their way: each gets its ack or is reported by the SDK itself; the SDK does not crash.
producer = Peer(broker)
producer.session.open_queue(uri, write=True)
for number in range(COUNT):
    producer.post(uri, payload(number, 50))
producer.session.close_queue(uri)
producer.wait("an outcome for each post", lambda: len(producer.acks) == COUNT)
outcomes = [ack.status is AckStatus.SUCCESS for ack in producer.acks]
sure = {ack.guid for ack in producer.acks if ack.status is AckStatus.SUCCESS}

# What was acknowledged is there, in order, and stays while it is not confirmed.
for reader in range(3):
    consumer = Peer(broker)
    consumer.session.open_queue(uri, read=True)
    consumer.wait_messages(len(sure))
    check(quiet(consumer), "still arriving")
    check(sure <= set(consumer.guids()), "an acknowledged message is missing")
    check(len(set(consumer.guids())) == len(consumer.messages), "a message came twice")
    got = len(consumer.messages)
    if reader == 0:
        consumer.session.close_queue(uri)  # all of them unconfirmed
        consumer.stop()
    elif reader == 1:
        for _, handle in consumer.messages[:100]:
            handle.confirm()
        sure -= set(consumer.guids()[:100])
        consumer.stop()  # without closing the queue
    else:
        for _, handle in consumer.messages:
            handle.confirm()
        consumer.session.close_queue(uri)
        consumer.session.open_queue(uri, read=True)
        check(quiet(consumer) and len(consumer.messages) == got, "confirmed messages came back")
        consumer.stop()

# A session stopped while everything is in flight.
both = Peer(broker)
both.session.open_queue(uri, read=True, write=True)
for number in range(COUNT):
    both.post(uri, payload(number, 50))
both.stop()
producer.stop()
say("done", successes=sum(outcomes))
