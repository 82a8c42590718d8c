"""A stand-in for Mem0's hosted service on the loopback interface: what the clients need to search."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HostedStandIn:
    """Serves ``/v1/ping/`` and ``/v3/memories/search/``. Filters are ids, alone or below an AND.

    Attributes:
        received: the bodies of the searches, oldest first.
        rank: how many places the memories are turned by for the next search.
        status: what searches are answered with.
    """

    def __init__(self, memories: list[dict[str, Any]]) -> None:
        self.memories = memories
        self.received: list[dict[str, Any]] = []
        self.rank = 0
        self.status = 200
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"status": "ok", "org_id": "o", "project_id": "p", "user_email": None})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(stand_in.status, stand_in.search(body))

            def _answer(self, status: int, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def search(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the service answers."""
        self.received.append(body)
        asked = ids_in(body.get("filters") or {})
        found = [one for one in self.memories if all(one.get(key) == value for key, value in asked.items())]
        turned = [*found[self.rank :], *found[: self.rank]]
        return {"results": turned[: body.get("top_k", 10)]}

    def __enter__(self) -> HostedStandIn:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def ids_in(filters: dict[str, Any]) -> dict[str, Any]:
    """The ids that are asked for."""
    found = {key: value for key, value in filters.items() if key.endswith("_id")}
    for part in filters.get("AND", []):
        found.update(ids_in(part))
    return found
