"""What a replica has sent counts for its own decisions at once, also while its namespace is read from the log."""

from __future__ import annotations

import sys

from contextpilot_rag.types import BlockRef, Request

from .memory_log import MemoryLog
from .pilots import index_on, replica_on


def test_what_was_sent_is_known_while_the_log_is_read():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that the reader comes in between wherever it can
    try:
        for name in range(40):
            replica = replica_on(MemoryLog())
            index = index_on(replica)
            for number in range(12):
                request = Request((BlockRef(f"{name}-{number}", 100),))
                index.align(request)
                assert index.predict(request) == 100
            replica.close(0.0)
    finally:
        sys.setswitchinterval(before)
