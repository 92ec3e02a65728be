"""Windows, re-configurations under load, suspend and resume: BROKER URI."""
import sys

from peer import *

broker, uri = sys.argv[1:3]
monitor = blazingmq.BasicHealthMonitor()
producer = Peer(broker)
producer.session.open_queue(uri, write=True)
consumer = Peer(broker, host_health_monitor=monitor)
consumer.session.open_queue(uri, read=True, options=QueueOptions(max_unconfirmed_messages=5, suspends_on_bad_host_health=True))

# A window of five holds five.
for number in range(20):
    producer.post(uri, payload(number, 10))
producer.wait_acks(20)
consumer.wait_messages(5)
check(quiet(consumer), f"a window of 5 let {len(consumer.messages)} pass")
for index in range(20):
    consumer.wait_messages(index + 1)
    message, handle = consumer.messages[index]
    check(message.data == payload(index, 10), "in order")
    handle.confirm()

# Re-configured again and again while messages flow: the SDK crashes if ids and responses are out of step.
consumer.messages.clear()
total = 3000
done = threading.Event()


def produce():
    for number in range(total):
        producer.post(uri, payload(number, 100))
        if number % 100 == 0:
            time.sleep(0.002)
    done.set()


thread = threading.Thread(target=produce)
thread.start()
rounds = 0
confirmed = 0
while not done.is_set() or rounds < 30:
    consumer.session.configure_queue(uri, QueueOptions(max_unconfirmed_messages=100 + rounds, consumer_priority=rounds % 7))
    rounds += 1
    batch = consumer.messages[confirmed:]
    for _, handle in batch:
        handle.confirm()
    confirmed += len(batch)
thread.join()
while confirmed < total:
    consumer.wait_messages(confirmed + 1)
    batch = consumer.messages[confirmed:]
    for _, handle in batch:
        handle.confirm()
    confirmed += len(batch)
check(len(set(consumer.guids())) == total, "each message came once")
check([m.data for m, _ in consumer.messages] == [payload(n, 100) for n in range(total)], "in order through all re-configurations")

# Suspended, nothing arrives; resumed, all does.
consumer.messages.clear()
monitor.set_unhealthy()
consumer.wait("suspension", lambda: consumer.has_event(session_events.QueueSuspended))
for number in range(50):
    producer.post(uri, payload(number, 10))
producer.wait_acks(20 + total + 50)
check(quiet(consumer) and not consumer.messages, "a suspended queue is quiet")
monitor.set_healthy()
consumer.wait("resumption", lambda: consumer.has_event(session_events.QueueResumed))
consumer.wait_messages(50)
for _, handle in consumer.messages:
    handle.confirm()
consumer.session.close_queue(uri)
consumer.stop()
producer.stop()
say("done", rounds=rounds)
