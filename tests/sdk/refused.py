"""What must be refused, and leaves the session as it was: BROKER GOOD_URI BAD_URI..."""
import sys

from peer import *

broker, good = sys.argv[1:3]
peer = Peer(broker)
peer.session.open_queue(good, read=True, write=True)
reasons = []
for uri in sys.argv[3:]:
    try:
        peer.session.open_queue(uri, read=True)
        sys.exit(f"{uri} was opened")
    except blazingmq.exceptions.Error as error:
        reasons.append(str(error))
peer.post(good, b"still here")
peer.wait_acks(1)
peer.wait_messages(1)
peer.messages[0][1].confirm()
peer.session.close_queue(good)
peer.stop()
say("done", reasons=reasons)
