"""What the scripts share: a session that records what it sees, deadlines, payloads that prove themselves, JSON lines."""
import hashlib
import json
import random
import sys
import threading
import time

import blazingmq
from blazingmq import AckStatus, QueueOptions, Session, Timeouts, session_events

PATIENCE = 60.0
_out = threading.Lock()


def say(event, **members):
    """One JSON line to the test."""
    with _out:
        print(json.dumps({"event": event, **members}), flush=True)


def payload(number, size):
    """Content that only this number and size have."""
    return random.Random(number * 1_000_003 + size).randbytes(size)


def text(number, size):
    """The same, but compressible."""
    line = hashlib.sha256(str(number).encode()).hexdigest().encode()
    return (line * (size // len(line) + 1))[:size]


class Peer:
    """A session, and all that it was told."""

    def __init__(self, broker, on_message=None, **options):
        self.changed = threading.Condition()
        self.messages = []  # (message, handle) in order of arrival
        self.acks = []
        self.events = []
        self._hook = on_message
        timeouts = Timeouts(connect_timeout=PATIENCE, disconnect_timeout=PATIENCE, open_queue_timeout=PATIENCE,
                            configure_queue_timeout=PATIENCE, close_queue_timeout=PATIENCE)
        self.session = Session(self._on_event, self._on_message, broker=broker, timeout=timeouts, **options)

    def _on_event(self, event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def _on_message(self, message, handle):
        if self._hook:
            self._hook(message, handle)
        with self.changed:
            self.messages.append((message, handle))
            self.changed.notify_all()

    def _on_ack(self, ack):
        with self.changed:
            self.acks.append(ack)
            self.changed.notify_all()

    def post(self, uri, data, ack=True, **more):
        self.session.post(uri, data, on_ack=self._on_ack if ack else None, **more)

    def wait(self, what, condition, patience=PATIENCE):
        """Waits until condition() holds; it is looked at whenever a callback has run."""
        with self.changed:
            if not self.changed.wait_for(condition, patience):
                sys.exit(f"waited in vain for {what}: {len(self.messages)} messages, {len(self.acks)} acks, {self.events}")

    def wait_acks(self, count):
        self.wait(f"{count} acks", lambda: len(self.acks) >= count)
        check(len(self.acks) == count, f"{len(self.acks)} acks instead of {count}")
        bad = [ack for ack in self.acks if ack.status is not AckStatus.SUCCESS]
        check(not bad, f"negative acks: {bad[:3]}")

    def wait_messages(self, count):
        self.wait(f"{count} messages", lambda: len(self.messages) >= count)

    def has_event(self, kind):
        return any(isinstance(event, kind) for event in self.events)

    def guids(self):
        return [message.guid for message, _ in self.messages]

    def stop(self):
        self.session.stop()


def check(condition, complaint):
    """An assertion that also holds under -O, and ends the process with the complaint."""
    if not condition:
        sys.exit(f"FAILED: {complaint}")


def commands():
    """Command lines from the test until it closes the pipe."""
    for line in sys.stdin:
        yield line.split()


def quiet(peer, seconds=0.3):
    """Nothing more arrives for a while. The only wait by time here: absence has no event to wait for."""
    before = len(peer.messages)
    time.sleep(seconds)
    return len(peer.messages) == before
