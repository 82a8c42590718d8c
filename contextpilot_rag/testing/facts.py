"""What the FakeEngine says of itself, as vLLM and SGLang do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._version import __version__
from .wire import Dialect, EventOptions


@dataclass(frozen=True, slots=True)
class Facts:
    """Of an engine, at one time.

    Args:
        model: its name.
        dialect: whom it is like.
        block_size: tokens of a KV block.
        capacity_blocks: KV blocks that its cache holds.
        used_blocks: those in use.
        running: requests at work.
        waiting: requests that wait.
        queried_tokens: of all prompts.
        hit_tokens: those of them that were cached.
        events: how it publishes its cache's events; None: it does not.
        events_url: where.
        replay_url: where it replays them.
    """

    model: str
    dialect: Dialect
    block_size: int
    capacity_blocks: int
    used_blocks: int
    running: int
    waiting: int
    queried_tokens: int
    hit_tokens: int
    events: EventOptions | None = None
    events_url: str = ""
    replay_url: str = ""

    def metrics(self) -> str:
        """In Prometheus' text format, by the names of its dialect."""
        if self.dialect == "sglang":
            return _exposed(
                [
                    ("sglang:num_running_reqs", "gauge", self.running),
                    ("sglang:num_queue_reqs", "gauge", self.waiting),
                    ("sglang:max_total_num_tokens", "gauge", self.capacity_blocks * self.block_size),
                    ("sglang:prompt_tokens_total", "counter", self.queried_tokens),
                    ("sglang:cached_tokens_total", "counter", self.hit_tokens),
                ],
                f'{{model_name="{_escaped(self.model)}"}}',
            )
        # vLLM keeps one block for itself: it is counted, and holds nothing.
        blocks = self.capacity_blocks + 1
        config = {
            "block_size": self.block_size,
            "enable_prefix_caching": True,
            "engine": 0,
            "kv_cache_size_tokens": blocks * self.block_size,
            "num_gpu_blocks": blocks,
        }
        labels = ",".join(f'{name}="{value}"' for name, value in config.items())
        return _exposed([("vllm:cache_config_info", "gauge", 1)], f"{{{labels}}}") + _exposed(
            [
                ("vllm:num_requests_running", "gauge", self.running),
                ("vllm:num_requests_waiting", "gauge", self.waiting),
                ("vllm:kv_cache_usage_perc", "gauge", self.used_blocks / self.capacity_blocks),
                ("vllm:prefix_cache_queries_total", "counter", self.queried_tokens),
                ("vllm:prefix_cache_hits_total", "counter", self.hit_tokens),
                ("vllm:prompt_tokens_total", "counter", self.queried_tokens),
            ],
            f'{{engine="0",model_name="{_escaped(self.model)}"}}',
        )

    def server_info(self) -> dict[str, Any]:
        """As SGLang's ``/server_info``."""
        published = None
        if self.events is not None:
            published = {
                "publisher": "zmq",
                "endpoint": self.events_url,
                "replay_endpoint": self.replay_url or None,
                "topic": self.events.topic,
                "block_size": self.block_size,
            }
        return {
            "model_path": self.model,
            "served_model_name": self.model,
            "page_size": self.block_size,
            "max_total_num_tokens": self.capacity_blocks * self.block_size,
            "kv_events": published,
            "internal_states": [{}],
            "version": version(),
        }


def version() -> str:
    """Whose it is, and of which version."""
    return f"fake-{__version__}"


def _exposed(samples: list[tuple[str, str, float]], labels: str) -> str:
    return "".join(f"# TYPE {name} {kind}\n{name}{labels} {float(value)}\n" for name, kind, value in samples)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
