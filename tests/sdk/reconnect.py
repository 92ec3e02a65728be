"""Under the test's command through the broker's death: BROKER URI. Commands: post N, drain N, state, restored N."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
posted = 0


def confirm(message, handle):
    try:
        handle.confirm()
    except blazingmq.exceptions.Error:
        pass  # not connected: the message will come again


producer = Peer(broker)
consumer = Peer(broker, on_message=confirm)
producer.session.open_queue(uri, write=True)
consumer.session.open_queue(uri, read=True)
say("open")
restored = 0
for command in commands():
    if command[0] == "post":
        for _ in range(int(command[1])):
            producer.post(uri, payload(posted, 200))
            posted += 1
        say("posted", posted=posted)
    elif command[0] == "lost":
        for peer in (producer, consumer):
            peer.wait("the loss of the connection", lambda: sum(isinstance(e, session_events.ConnectionLost) for e in peer.events) >= int(command[1]))
        say("lost")
    elif command[0] == "restored":
        for peer in (producer, consumer):
            peer.wait("restored state", lambda: sum(isinstance(e, session_events.StateRestored) for e in peer.events) >= int(command[1]))
            check(not peer.has_event(session_events.QueueReopenFailed), f"a queue was not reopened: {peer.events}")
        say("restored")
    elif command[0] == "drain":
        # Every post is acknowledged exactly once, and every one arrives at least once, unaltered.
        producer.wait_acks(posted)
        wanted = {payload(number, 200) for number in range(posted)}
        consumer.wait("all messages", lambda: len({m.data for m, _ in consumer.messages}) == posted)
        check({m.data for m, _ in consumer.messages} == wanted, "content")
        numbers = {}
        for message, _ in consumer.messages:
            numbers.setdefault(message.data, set()).add(message.guid)
        check(all(len(guids) == 1 for guids in numbers.values()), "a retransmitted message was stored twice")
        say("drained", received=len(consumer.messages), distinct=len(numbers))
consumer.session.close_queue(uri)
consumer.stop()
producer.stop()
say("done")
