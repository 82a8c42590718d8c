"""A server that says what a test wants, for what a real one cannot be made to do."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable
from types import TracebackType


class FakeServer:
    """Answers each command by a function; closes the connection where that returns None.

    Args:
        answer: from what came in, raw, to what goes out.
        pause: seconds between two bytes that go out.
    """

    def __init__(self, answer: Callable[[bytes], bytes | None], pause: float = 0.0) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while asked := self.request.recv(65_536):
                    told = answer(asked)
                    if told is None:
                        return
                    for piece in [told[at : at + 1] for at in range(len(told))] if pause else [told]:
                        try:
                            self.request.sendall(piece)
                        except OSError:
                            return
                        time.sleep(pause)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"redis://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def hello(**told: str) -> bytes:
    """The answer to a HELLO."""
    parts = [part.encode() for pair in told.items() for part in pair]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
