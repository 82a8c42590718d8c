"""ContextPilotReranker: aligned order from within a Mem0 memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.adapter import Adapter, PilotLike
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.intake import namespace_of
from contextpilot_rag.settings import RequestOptions

from .filters import IDS, namespace_of_ids, one_id
from .results import AlignedList, found_in, in_order

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ContextPilotReranker:
    """Search results in aligned order: ``memory.reranker = ContextPilotReranker()``, then ``search(..., rerank=True)``.

    A reranker sees no filters. Without a namespace the results' own ids say whose they are: those that are equal on all
    of them. Where they differ in their ``user_id`` (or have none, and differ in another id), or have no ids at all, the
    order is left as it is: nobody's order may follow from somebody else's memories.

    Args:
        pilot: as for `ContextPilotMemory`.
        namespace: what may share cached prefixes, for everything that this reranker sees. None: see above.
        reranker: another reranker, that goes first.
        **options: settings for every request: order, min_gain, protect_top, order_hint (off by default), ...

    Raises:
        SettingsError: no such reranker; an unknown setting, index or namespace, or a value that a setting cannot have.

    >>> tea, milk = ({"id": text, "memory": text, "user_id": "alice"} for text in ("Likes tea.", "Has no milk."))
    >>> reranker = ContextPilotReranker(min_gain=0)
    >>> _ = reranker.rerank("What to drink?", [tea, milk])
    >>> [memory["id"] for memory in reranker.rerank("Is there milk?", [milk, tea])]
    ['Likes tea.', 'Has no milk.']
    """

    def __init__(
        self,
        pilot: PilotLike = None,
        namespace: Namespace | str | None = None,
        *,
        reranker: Any = None,  # noqa: ANN401  a BaseReranker of Mem0, or something like it
        **options: Unpack[RequestOptions],
    ) -> None:
        if reranker is not None and not callable(getattr(reranker, "rerank", None)):
            raise SettingsError(f"reranker must be something with rerank, not {type(reranker).__name__}")
        self._adapter = Adapter(pilot, **options)
        self._namespace = None if namespace is None else namespace_of(namespace)
        self._reranker = reranker

    @property
    def pilot(self) -> ContextPilot:
        """The pilot, to share it with others."""
        return self._adapter.pilot

    @property
    def failures(self) -> int:
        """How often something failed, and the order was left as it was."""
        return self._adapter.failures

    def rerank(self, query: str, documents: list[dict[str, Any]], top_k: int | None = None) -> list[dict[str, Any]]:
        """The same results in aligned order; the best ``top_k`` of them, if there are more.

        Args:
            query: what was looked for.
            documents: results of a search, best first; not changed.
            top_k: how many to keep; None: all.

        Returns:
            A list; Mem0 returns it as ``results``. `order_hint` tells a model the order that it had, if that was
            switched on.
        """
        best = documents if self._reranker is None else self._reranker.rerank(query, documents, top_k)
        if isinstance(best, list) and isinstance(top_k, int) and top_k >= 0:
            best = best[:top_k]
        try:
            found = found_in({"results": best})
            space = self._space(best)
        except InputError as error:
            self._adapter.failed(error)
            return best
        if space is None:
            return best
        prompt = self._adapter.arrange(found.texts, query, namespace=space)
        if prompt is None or not prompt.changed:
            return best
        return AlignedList.of(best, in_order(found, prompt), prompt)

    def _space(self, documents: list[dict[str, Any]]) -> Namespace | None:
        """The namespace; None if it cannot be told."""
        if self._namespace is not None:
            return self._namespace
        if not documents or not all(isinstance(document, Mapping) for document in documents):
            return None
        values = {name: {one_id(document.get(name)) for document in documents} for name in IDS}
        equal = {name: own for name, (own, *others) in values.items() if own is not None and not others}
        differ = [name for name, own in values.items() if len(own) > 1]
        if not equal or (differ and "user_id" not in equal):
            return None
        return namespace_of_ids(equal, self.pilot.prepare(()).request.namespace)
