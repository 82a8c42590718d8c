"""What a search returned, in another order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, overload

from contextpilot_rag import AlignedPrompt
from contextpilot_rag.adapter import hint_for
from contextpilot_rag.errors import RetrievalError
from contextpilot_rag.prompt.wording import DEFAULT_WORDING
from contextpilot_rag.settings import Wording
from contextpilot_rag.types import short


class AlignedList(list[Any]):
    """Results in aligned order: equal to a plain list with the same content, and so is each slice of it.

    >>> found = AlignedList.of(["best", "second best", "third"], [1, 0, 2])
    >>> found == ["second best", "best", "third"], found.ranks, found[:2].order_hint
    (True, (1, 0, 2), 'Order of relevance, best first: [2] > [1]')
    """

    _ranked: tuple[tuple[Any, int], ...] = ()
    _wording: Wording | None = DEFAULT_WORDING
    _question: str = ""

    @classmethod
    def of(cls, items: Sequence[Any], order: Sequence[int], prompt: AlignedPrompt | None = None) -> AlignedList:
        """These items in this order; an item's place among them is its rank.

        Args:
            items: best first.
            order: their places, in prompt order.
            prompt: says how the order is told to a model; None: by all labels.
        """
        made = cls(items[place] for place in order)
        made._ranked = tuple(zip(made, order, strict=True))
        if prompt is not None:
            made._wording, made._question = prompt.wording, prompt.question
        return made

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """For each result that is there now, the place that the memory gave it; 0 is best. None: not known."""
        known = {id(item): rank for item, rank in self._ranked}
        return tuple(known.get(id(item)) for item in self)

    @property
    def order_hint(self) -> str:
        """As `order_hint`."""
        texts = [str(item.get("memory") or "") if isinstance(item, Mapping) else "" for item in self]
        return hint_for(self.ranks, self._wording, texts, self._question) or ""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...  # noqa: ANN401

    @overload
    def __getitem__(self, index: slice) -> AlignedList: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            found = AlignedList(found)
            found._ranked, found._wording, found._question = self._ranked, self._wording, self._question
        return found


class AlignedResults(dict[str, Any]):
    """A reply of ``search`` whose results stand in aligned order: equal to a plain dict with the same content."""

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """For each result, the place that the memory gave it; 0 is best."""
        results = self.get("results")
        return results.ranks if isinstance(results, AlignedList) else ()

    @property
    def order_hint(self) -> str:
        """The sentence that tells a model the memory's order, if your prompt numbers the results from [1] on.

        "" by default: see `order_hint`.
        """
        return order_hint(self)


def order_hint(results: object) -> str:
    """The order hint for what ``search`` returned, or for its results, or a slice of them.

    Returns:
        One sentence, for a prompt that numbers these results from [1] on. "" by default: there is one only if the
        memory (or the reranker), or its pilot, was made with ``order_hint=True``, or with one of the wordings. Also ""
        if they are in the memory's own order, or if that is not known, as for another list that was made from them.

    >>> found = AlignedResults(results=AlignedList.of(["best", "second best"], [1, 0]))
    >>> order_hint(found) == order_hint(found["results"]) == 'Order of relevance, best first: [2] > [1]'
    True
    >>> order_hint({"results": ["best", "second best"]})
    ''
    """
    if isinstance(results, Mapping):
        results = results.get("results")
    return results.order_hint if isinstance(results, AlignedList) else ""


@dataclass(frozen=True, slots=True)
class Found:
    """The memories of a reply.

    Args:
        items: as the memory returned them, best first.
        places: of those that have a text.
    """

    items: tuple[Any, ...]
    places: tuple[int, ...]
    names: tuple[Any, ...] = field(init=False)
    """For each of these a name that no other has: its id; where that is none, or taken, with its place. Fixed now:
    the items are the caller's."""

    def __post_init__(self) -> None:
        taken: dict[Any, None] = {}
        for place, memory in enumerate(self.memories):
            own = memory.get("id")
            named = _is_name(own)
            taken[own if named and own not in taken else (own if named else None, place)] = None
        object.__setattr__(self, "names", tuple(taken))

    @property
    def texts(self) -> list[str]:
        """The texts, best first."""
        return [self.items[place]["memory"] for place in self.places]

    @property
    def memories(self) -> list[Any]:
        """The memories that have a text, best first."""
        return [self.items[place] for place in self.places]


def found_in(reply: object) -> Found:
    """The memories of a reply: ``{"results": [...]}`` as Mem0 2 returns it, or the list alone.

    Raises:
        RetrievalError: there are none to be seen in it.

    >>> found_in({"results": [{"memory": ""}, {"memory": "Likes tea."}]}).texts
    ['Likes tea.']
    """
    items = reply.get("results") if isinstance(reply, Mapping) else reply
    if not isinstance(items, list | tuple):
        raise RetrievalError(f"expected what a Mem0 search returns, {{'results': [...]}}, not {short(reply)}")
    return Found(tuple(items), tuple(place for place, item in enumerate(items) if _has_text(item)))


def aligned(reply: Any, found: Found, prompt: AlignedPrompt | None) -> Any:  # noqa: ANN401  as it came
    """The reply with its results in the prompt's order; the reply itself, if that is the memory's.

    The same objects, none more and none less: texts in prompt order, then copies of those texts under other ids, then
    what has no text; both in the memory's order.
    """
    if prompt is None or not prompt.changed:
        return reply
    made = AlignedList.of(found.items, in_order(found, prompt), prompt)
    if isinstance(reply, Mapping):
        return AlignedResults({**reply, "results": made})
    return tuple(made) if isinstance(reply, tuple) else made


def in_order(found: Found, prompt: AlignedPrompt) -> list[int]:
    """Places of a reply's memories in the prompt's order: each text once, then the rest by rank."""
    first = [found.places[places[0]] for places in prompt.ids.values() if isinstance(places[0], int)]
    taken = set(first)
    copies = [place for place in found.places if place not in taken]
    return [*first, *copies, *(place for place in range(len(found.items)) if place not in {*taken, *copies})]


def _has_text(item: object) -> bool:
    text = item.get("memory") if isinstance(item, Mapping) else None
    return isinstance(text, str) and bool(text)


def _is_name(value: object) -> bool:
    """Whether it can name a block; a tuple could be one of the names that are made here."""
    return value is not None and isinstance(value, Hashable) and not isinstance(value, tuple)
