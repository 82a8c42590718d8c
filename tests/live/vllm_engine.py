"""vLLM on the CPU as an engine under test."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from .served import ServedEngine
from .under_test import BLOCK, LONGEST


class VllmEngine(ServedEngine):
    """vLLM."""

    name = "vllm"

    def events_address(self) -> str:
        """An ipc address, which it binds: to a tcp address without a "*" it would connect."""
        return f"ipc://{self.folder}/events"

    def command(self) -> list[str]:
        """Its server, by its module: the command ``vllm`` looks for a package of that name."""
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.events,
            "replay_endpoint": self.replay,
            "topic": self.topic,
        }
        options = {
            "--model": self.weights,
            "--load-format": "dummy" if self.dummy else "auto",
            "--served-model-name": self.model,
            "--host": "127.0.0.1",
            "--port": self.port,
            "--dtype": "bfloat16",
            "--block-size": BLOCK,
            "--num-gpu-blocks-override": self.capacity + 1,  # one of them holds nothing, ever
            "--max-model-len": min(LONGEST, self.capacity * BLOCK),
            "--max-num-batched-tokens": LONGEST,  # a prompt is one step
            "--max-num-seqs": 16,
            "--kv-events-config": json.dumps(events),
        }
        switches = [
            "enforce-eager",
            "enable-prefix-caching",
            "enable-prompt-tokens-details",
            "disable-uvicorn-access-log",
        ]
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *(f"--{name}" for name in switches)]
        for name, value in options.items():
            command += [name, str(value)]
        return command

    def environment(self) -> dict[str, str]:
        """With what it needs on a CPU."""
        openmp = Path(sys.prefix, "lib", "libiomp5.so")
        return {
            "VLLM_SERVER_DEV_MODE": "1",  # or there is no /reset_prefix_cache
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),  # or it leaves one alone
            "VLLM_CPU_KVCACHE_SPACE": str(self.gigabytes),
            "VLLM_CACHE_ROOT": str(self.folder / "cache"),
            "VLLM_CONFIG_ROOT": str(self.folder / "config"),
            "VLLM_NO_USAGE_STATS": "1",
            **({"LD_PRELOAD": str(openmp)} if openmp.exists() else {}),
        }
