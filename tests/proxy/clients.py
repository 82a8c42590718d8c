"""What the tests with real clients share: two equal engines, one of them behind a proxy, and documents to ask about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from contextpilot_rag import AsyncContextPilot
from contextpilot_rag.proxy.rewriter import Rewriter
from contextpilot_rag.proxy.rewriting import Call, Cloud, Outcome
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.testing import FakeEngine

from .harness import Proxy, proxying

SYSTEM = "Answer from the documents."
TEXTS = {
    name: f"{name}: " + " ".join(f"Line {line} of what {name} says about slices." for line in range(30))
    for name in "ABCDEFGH"
}
FIRST, SECOND = "ABCDEF", "DGCBHA"
"""Which documents two requests have, in their order of relevance."""
FILE = "\n".join(f"def step_{line}(items): return items[{line}:]" for line in range(120))
"""What a tool reads, twice."""


def documents(names: str, question: str = "Where do slices start?") -> str:
    """A user's message."""
    items = "\n".join(f'<document source="{name}.txt">\n{TEXTS[name]}\n</document>' for name in names)
    return f"<documents>\n{items}\n</documents>\n\n{question}"


@dataclass
class Pair:
    """Two engines that are equal, and a proxy before one of them."""

    direct: FakeEngine
    behind: FakeEngine
    proxy: Proxy

    def urls(self, suffix: str = "/v1") -> tuple[str, str]:
        """Where clients go: straight to the one, and through the proxy to the other."""
        return self.direct.base_url.removesuffix("/v1") + suffix, self.proxy.address + suffix

    def hits(self) -> tuple[int, int]:
        """Tokens of the latest prompt of each that were cached."""
        return self.direct.requests[-1].cached_tokens, self.behind.requests[-1].cached_tokens

    def prompts(self) -> tuple[int, int]:
        """Tokens of the latest prompt of each."""
        return self.direct.requests[-1].prompt_tokens, self.behind.requests[-1].prompt_tokens


@contextmanager
def pair() -> Iterator[Pair]:
    """Both engines new and empty, as is the proxy's index."""
    with FakeEngine() as direct, FakeEngine() as behind:
        pilot = AsyncContextPilot(dedup="blocks+chunks")
        rewriting = Rewriter(pilot, ProxySettings(upstreams=behind.base_url))
        with proxying(behind.base_url, rewriting=rewriting) as proxy:
            yield Pair(direct, behind, proxy)


def timeless(value: Any) -> Any:
    """An answer, or the parts of a stream, but for when they were made."""
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in ("created", "created_at")}
    return timeless(value.to_dict()) if hasattr(value, "to_dict") else value


class OfACloud(Rewriter):
    """Takes its upstream for a cloud's own."""

    cloud: Cloud = ""

    async def rewrite(self, call: Call) -> Outcome:
        return await super().rewrite(replace(call, cloud=self.cloud))


@contextmanager
def in_the_place_of(cloud: Cloud) -> Iterator[tuple[FakeEngine, Proxy]]:
    """An engine in a cloud's place, which shows what would get there, and the proxy before it."""
    with FakeEngine() as engine:
        rewriting = OfACloud(AsyncContextPilot(), ProxySettings(upstreams=engine.base_url))
        rewriting.cloud = cloud
        with proxying(engine.base_url, rewriting=rewriting) as proxy:
            yield engine, proxy
