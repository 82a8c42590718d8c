"""What a search returned, in another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextpilot_rag import AlignedPrompt
from contextpilot_rag.adapter import hint_for
from contextpilot_rag.errors import RetrievalError
from contextpilot_rag.types import short


class AlignedResults(dict[str, Any]):
    """A reply of ``search`` whose results stand in aligned order: equal to a plain dict with the same content.

    Attributes:
        ranks: for each result, the place that the memory gave it; 0 is best.
    """

    ranks: tuple[int, ...] = ()

    @property
    def order_hint(self) -> str | None:
        """The sentence that tells a model the memory's order, if your prompt numbers the results from [1] on."""
        return hint_for(self.ranks)


def order_hint(results: object) -> str | None:
    """The order hint for what ``search`` returned; None if it is in the memory's own order.

    >>> found = AlignedResults(results=["second best", "best"])
    >>> found.ranks = (1, 0)
    >>> order_hint(found), order_hint({"results": ["best", "second best"]})
    ('Order of relevance, best first: [2] > [1]', None)
    """
    return results.order_hint if isinstance(results, AlignedResults) else None


@dataclass(frozen=True, slots=True)
class Found:
    """The memories of a reply.

    Args:
        items: as the memory returned them, best first.
        places: of those that have a text.
    """

    items: tuple[Any, ...]
    places: tuple[int, ...]

    @property
    def texts(self) -> list[str]:
        """The texts, best first."""
        return [self.items[place]["memory"] for place in self.places]

    @property
    def memories(self) -> list[Any]:
        """The memories that have a text, best first."""
        return [self.items[place] for place in self.places]


def found_in(reply: object) -> Found:
    """The memories of a reply.

    Raises:
        RetrievalError: there are none to be seen in it.

    >>> found_in({"results": [{"memory": ""}, {"memory": "Likes tea."}]}).texts
    ['Likes tea.']
    """
    items = reply.get("results") if isinstance(reply, Mapping) else None
    if not isinstance(items, list | tuple):
        raise RetrievalError(f"expected what a Mem0 search returns, {{'results': [...]}}, not {short(reply)}")
    return Found(tuple(items), tuple(place for place, item in enumerate(items) if _has_text(item)))


def aligned(reply: Mapping[str, Any], found: Found, prompt: AlignedPrompt | None) -> Any:  # noqa: ANN401  as it came
    """The reply with its results in the prompt's order; the reply itself, if that is the memory's.

    The same objects, none more and none less: texts in prompt order, then copies of those texts under other ids, then
    what has no text; both in the memory's order.
    """
    if prompt is None or not prompt.changed:
        return reply
    order = in_order(found, prompt)
    made = AlignedResults({**reply, "results": [found.items[place] for place in order]})
    made.ranks = tuple(order)
    return made


def in_order(found: Found, prompt: AlignedPrompt) -> list[int]:
    """Places of a reply's memories in the prompt's order: each text once, then the rest by rank."""
    first = [found.places[places[0]] for places in prompt.ids.values() if isinstance(places[0], int)]
    taken = set(first)
    copies = [place for place in found.places if place not in taken]
    return [*first, *copies, *(place for place in range(len(found.items)) if place not in {*taken, *copies})]


def _has_text(item: object) -> bool:
    text = item.get("memory") if isinstance(item, Mapping) else None
    return isinstance(text, str) and bool(text)
