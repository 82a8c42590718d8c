"""What an engine says of itself: how large its cache is, how it is cut, what it works on."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..errors import EngineError, EngineRefused
from .engine import Engine, EngineFacts
from .http import EngineHttp
from .tokenizing import listed_model

FACTS_SECONDS = 5.0
HEALTH_SECONDS = 2.0
MOST_BYTES = 16 * 2**20  # of one answer; an engine with many models and ranks has some megabytes of metrics
_LONGEST_LINE = 65_536
_GUARDED = frozenset({401, 403, 404, 405})
_HIGHEST = 2**53

Labels = Mapping[str, str]
T = TypeVar("T")

_SAMPLE = re.compile(r'([A-Za-z_:][A-Za-z0-9_:]*)[ \t]*(\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+(\S+)')
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def healthy(engine: Engine, seconds: float = HEALTH_SECONDS) -> bool:
    """Whether an engine says that it is well, within so many seconds. Never raises."""
    return not ailment(engine, seconds)


def asking(engine: Engine) -> EngineHttp:
    """What is to be given to those below by who asks an engine again and again, so that its name is looked up once."""
    return EngineHttp(engine, FACTS_SECONDS, MOST_BYTES)


def ailment(engine: Engine, seconds: float = HEALTH_SECONDS, http: EngineHttp | None = None) -> str:
    """Why an engine does not seem to be well; empty: it does. Never raises.

    A proxy may pass only what begins with /v1, or guard the rest: then any answer to ``/v1/models`` will do, but that
    there is no such thing, or that something is broken behind it.

    Args:
        engine: which.
        seconds: that each answer may take.
        http: of `asking`; None: one for this time.
    """
    http = http or asking(engine)
    try:
        http.get("/health", seconds=seconds)
    except EngineRefused as error:
        if error.status not in _GUARDED:
            return str(error)
    except EngineError as error:
        return str(error)
    else:
        return ""
    finally:
        http.close()
    try:
        http.get("/v1/models", seconds=seconds)
    except EngineRefused as error:
        return "" if error.status is None or (error.status < 500 and error.status != 404) else str(error)
    except EngineError as error:
        return str(error)
    finally:
        http.close()
    return ""


def read_facts(engine: Engine, seconds: float = FACTS_SECONDS, http: EngineHttp | None = None) -> EngineFacts:
    """What an engine says of itself. What it does not say, or not in time, is None; never raises.

    vLLM says it in its metrics, SGLang in ``/server_info`` and in its metrics (with ``--enable-metrics``), llama.cpp in
    ``/props`` and ``/slots``. A model with several kinds of attention may have KV blocks of hundreds of tokens: they
    are given as they are. Of several data-parallel ranks, capacities are those of one rank and requests of all.

    Args:
        engine: which.
        seconds: for all that is asked.
        http: of `asking`; None: one for this time.
    """
    asks = http or asking(engine)
    ends = time.monotonic() + seconds

    def asked(get: Callable[[float], T]) -> T | None:
        left = ends - time.monotonic()
        try:
            return get(left) if left > 0 else None
        except EngineError:
            return None

    try:
        model = engine.model or asked(lambda left: listed_model(asks, left))
        text = (asked(lambda left: asks.get("/metrics", seconds=left)) or b"").decode("utf-8", "replace")
        metrics = Metrics(text)
        if metrics.any("vllm:"):
            return _vllm(metrics, model)
        info = asked(lambda left: asks.get_json("/server_info", seconds=left))
        if info is None and metrics.any("sglang:"):
            info = asked(lambda left: asks.get_json("/get_server_info", seconds=left))  # its older name
        if metrics.any("sglang:") or _is_sglang(info):
            return _sglang(metrics, info, model)
        props = asked(lambda left: asks.get_json("/props", seconds=left))
        if metrics.any("llamacpp:") or _is_llama_cpp(props):
            slots = asked(lambda left: asks.get_json("/slots", seconds=left))
            return _llama_cpp(metrics, props, slots, model)
    finally:
        asks.close()
    return EngineFacts(model=model)


class Metrics:
    r"""Samples in Prometheus' text format. What cannot be read is passed over.

    Args:
        text: as an engine shows them.

    >>> metrics = Metrics('# HELP a what\na{x="1",y="a\\"b"} 2\na{x="2"} 3e0\n')
    >>> metrics.total("a"), next(metrics.labels("a"))["y"]
    (5, 'a"b')
    """

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[tuple[Labels, float]]] = {}
        for line in text.split("\n"):  # and nowhere else: labels may hold other line ends
            if line.startswith("#") or len(line) > _LONGEST_LINE or "_bucket" in line:
                continue
            found = _SAMPLE.match(line.strip())
            if found is None:
                continue
            try:
                value = float(found[3])
            except ValueError:
                continue
            labels = {name: _ESCAPED.sub(_unescaped, text) for name, text in _LABEL.findall(found[2] or "")}
            self._samples.setdefault(found[1], []).append((labels, value))

    def any(self, prefix: str) -> bool:
        """Whether any name begins like this."""
        return any(name.startswith(prefix) for name in self._samples)

    def labels(self, name: str) -> Iterator[Labels]:
        """The labels of each sample."""
        return (labels for labels, _ in self._samples.get(name, ()))

    def total(self, name: str) -> int | None:
        """The sum of all samples, a count; None if there are none, or it is no count."""
        samples = self._samples.get(name)
        return None if not samples else _count(sum(value for _, value in samples))

    def one(self, name: str) -> int | None:
        """The first sample, a count; None if there is none, or it is no count."""
        samples = self._samples.get(name)
        return None if not samples else _count(samples[0][1])


def _vllm(metrics: Metrics, model: str | None) -> EngineFacts:
    block_size = capacity = None
    for labels in metrics.labels("vllm:cache_config_info"):
        block_size = _count(labels.get("block_size"))
        blocks = _count(labels.get("num_gpu_blocks"))
        capacity = _count(labels.get("kv_cache_size_tokens"))
        if capacity is None and block_size is not None and blocks is not None:
            capacity = block_size * blocks
        if capacity is not None and block_size is not None:
            capacity = max(0, capacity - block_size)  # one KV block stands for those that are not needed any more
        break
    return EngineFacts(
        kind="vllm",
        capacity_tokens=capacity or None,
        block_size=block_size or None,
        model=model,
        running=metrics.total("vllm:num_requests_running"),
        waiting=metrics.total("vllm:num_requests_waiting"),
    )


def _sglang(metrics: Metrics, info: object, model: str | None) -> EngineFacts:
    said = info if isinstance(info, Mapping) else {}
    states = said.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], Mapping) else {}
    capacity = _first(said.get("max_total_num_tokens"), state.get("max_total_num_tokens"))
    if capacity is None:
        capacity = metrics.one("sglang:max_total_num_tokens")
    events: bool | None = None
    if "kv_events" in said:  # what can be subscribed to; null where nothing is published
        events = isinstance(said["kv_events"], Mapping)
    elif "kv_events_config" in said:
        events = bool(said["kv_events_config"])
    return EngineFacts(
        kind="sglang",
        capacity_tokens=capacity or None,
        block_size=_first(said.get("page_size"), state.get("page_size")) or None,
        model=model,
        running=metrics.total("sglang:num_running_reqs"),
        waiting=metrics.total("sglang:num_queue_reqs"),
        events=events,
    )


def _llama_cpp(metrics: Metrics, props: object, slots: object, model: str | None) -> EngineFacts:
    """Each slot keeps one sequence; what is cached is found token by token."""
    said = props if isinstance(props, Mapping) else {}
    listed = [one for one in slots if isinstance(one, Mapping)] if isinstance(slots, list) else []
    settings = said.get("default_generation_settings")
    each = _count(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    number = _count(said.get("total_slots"))
    sizes = [_count(slot.get("n_ctx")) for slot in listed]
    capacity = each * number if each is not None and number is not None else None
    if sizes and None not in sizes:
        capacity = sum(size or 0 for size in sizes)
    working = [slot["is_processing"] for slot in listed if isinstance(slot.get("is_processing"), bool)]
    running = metrics.total("llamacpp:requests_processing")
    return EngineFacts(
        kind="llama.cpp",
        capacity_tokens=capacity or None,
        block_size=1,
        model=model,
        running=sum(working) if running is None and working else running,
        waiting=metrics.total("llamacpp:requests_deferred"),
        events=False,
    )


def _is_sglang(info: object) -> bool:
    return isinstance(info, Mapping) and ("max_total_num_tokens" in info or "radix_eviction_policy" in info)


def _is_llama_cpp(props: object) -> bool:
    return isinstance(props, Mapping) and "total_slots" in props


def _first(*values: Any) -> int | None:  # noqa: ANN401
    return next((count for value in values if (count := _count(value)) is not None), None)


def _count(value: object) -> int | None:
    """A number that counts something, also where it is a text as in labels; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and 0 <= number < _HIGHEST and number == int(number) else None


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
