"""SGLang on the CPU as an engine under test, where somebody has installed it: its packages bring a CUDA build."""

from __future__ import annotations

import json
import sys

from tests.ports import free_port

from .served import ServedEngine
from .under_test import BLOCK, LONGEST


class SglangEngine(ServedEngine):
    """SGLang."""

    name = "sglang"

    def events_address(self) -> str:
        """A port of its own, which it is told to bind."""
        return f"tcp://127.0.0.1:{free_port()}"

    def command(self) -> list[str]:
        """Its server."""
        events = {
            "publisher": "zmq",
            "endpoint": self.events,
            "bind": True,
            "replay_endpoint": self.replay,
            "topic": self.topic,
        }
        options = {
            "--model-path": self.weights,
            "--load-format": "dummy" if self.dummy else "auto",
            "--served-model-name": self.model,
            "--host": "127.0.0.1",
            "--port": self.port,
            "--device": "cpu",
            "--attention-backend": "torch_native",
            "--sampling-backend": "pytorch",
            "--page-size": BLOCK,
            "--max-total-tokens": self.capacity * BLOCK,
            "--context-length": min(LONGEST, self.capacity * BLOCK),
            "--chunked-prefill-size": LONGEST,
            "--kv-events-config": json.dumps(events),
        }
        switches = ["disable-cuda-graph", "disable-overlap-schedule", "skip-server-warmup", "enable-cache-report"]
        command = [sys.executable, "-m", "sglang.launch_server", *(f"--{name}" for name in switches)]
        for name, value in options.items():
            command += [name, str(value)]
        return command

    def reset(self) -> None:
        """Empty the cache."""
        self.post("/flush_cache")
