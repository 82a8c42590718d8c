"""ContextPilotSynthesizer: labels before the nodes, the order hint, if any, after the last one, the question last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextpilot_rag.adapter import hint_for, labelled
from contextpilot_rag.prompt.wording import wording_of
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryType
from llama_index.core.types import RESPONSE_TEXT_TYPE

from .nodes import VIEW, in_order, is_trailer, mark_of, text_of
from .templates import CONTEXTPILOT_TEXT_QA
from .told import Told


@dataclass(frozen=True, slots=True)
class Context:
    """What a prompt shows of some nodes.

    Args:
        chunks: texts in prompt order, with their labels.
        hint: the order hint, if there is one.
        moved: somebody sorted the nodes after our postprocessor had, or put others between them.
    """

    chunks: tuple[str, ...]
    hint: str | None
    moved: bool = False


def context_of(nodes: Sequence[NodeWithScore], question: str = "") -> Context:
    """Nodes as a prompt shows them: texts with labels, and the order hint that their ranks give.

    Args:
        nodes: in prompt order.
        question: what is asked.

    >>> from llama_index.core.schema import TextNode
    >>> context_of([NodeWithScore(node=TextNode(text="Slices.")), NodeWithScore(node=TextNode(text="Steps."))])
    Context(chunks=('[1] Slices.', '[2] Steps.'), hint=None, moved=False)
    """
    chunks: list[str] = []
    ranks: list[int | None] = []
    labels: list[int | None] = []
    echoes: dict[int, str] = {}
    texts: list[str] = []
    wordings: list[Any] = []
    ours = True
    for node in nodes:
        text = text_of(node.node)
        if text is not None and not is_trailer(node.node):
            labels.append(mark_of(node.node).get("label"))
        if text is None or is_trailer(node.node) or VIEW in node.node.metadata:
            chunks.append(node.node.get_content(metadata_mode=MetadataMode.LLM))
            ours = ours and text is None  # who labels nodes hints and echoes, too
            continue
        mark = mark_of(node.node)
        ranks.append(mark.get("rank"))
        wordings.append(mark.get("hint", False))
        texts.append(text)
        chunks.append(labelled(len(ranks), text))
        if "echo" in mark:
            echoes[mark["echo"]] = chunks[-1]
    changed = ours and hint_for(ranks) is not None
    hint = hint_for(ranks, wording_of(wordings[0]), texts, question) if changed and all(wordings) else None
    if changed:  # whether or not that is told
        chunks.extend(echoes[number] for number in sorted(echoes))
    return Context(tuple(chunks), hint, moved=not in_order(labels))


def citations(nodes: Sequence[NodeWithScore]) -> dict[int, NodeWithScore]:
    """For each label in a prompt, its node: what a citation [2] stands for.

    Args:
        nodes: all of ``response.source_nodes``, in their order.

    >>> from llama_index.core.schema import TextNode
    >>> {label: node.text for label, node in citations([NodeWithScore(node=TextNode(text="Slices."))]).items()}
    {1: 'Slices.'}
    """
    found: dict[int, NodeWithScore] = {}
    place = 0
    for node in nodes:
        if is_trailer(node.node) or text_of(node.node) is None:
            continue
        place += 1
        mark = mark_of(node.node)
        label = mark.get("label") if VIEW in node.node.metadata or "again" in mark else place
        if isinstance(label, int):
            found.setdefault(label, node)
    return found


class ContextPilotSynthesizer(CompactAndRefine):
    """Renders what `ContextPilotPostprocessor` arranged: labels, and the order hint, where there is one.

    There is one where the order changed, if the postprocessor (or its pilot) was made with ``order_hint=True``, or with
    one of the wordings.

    Sync, async and streaming. Source nodes are the nodes that it was given; `citations` says which label is whose. As
    with every compacting synthesizer, a context that does not fit one prompt takes several, and little of those can be
    cached: then one warning is logged.

    Args:
        llm: None: ``Settings.llm``.
        text_qa_template: with ``{context_str}``, ``{query_str}``, and ``{order_hint}`` where the hint is to stand.
        **options: as for `CompactAndRefine`: streaming, refine_template, output_cls, ...
    """

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        text_qa_template: BasePromptTemplate | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(llm=llm, text_qa_template=text_qa_template or CONTEXTPILOT_TEXT_QA, **options)
        self.failures: int = 0
        self._told = Told()

    def synthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,  # noqa: ANN401
    ) -> RESPONSE_TYPE:
        """As `CompactAndRefine.synthesize`."""
        given = self._with_context(query, nodes, response_kwargs)
        return super().synthesize(query, nodes, additional_source_nodes, **given)

    async def asynthesize(
        self,
        query: QueryType,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
        **response_kwargs: Any,  # noqa: ANN401
    ) -> RESPONSE_TYPE:
        """As `CompactAndRefine.asynthesize`."""
        given = self._with_context(query, nodes, response_kwargs)
        return await super().asynthesize(query, nodes, additional_source_nodes, **given)

    def get_response(
        self,
        query_str: str,
        text_chunks: Sequence[str],
        prev_response: RESPONSE_TEXT_TYPE | None = None,
        contextpilot: Context | None = None,
        **response_kwargs: Any,  # noqa: ANN401
    ) -> RESPONSE_TEXT_TYPE:
        """As `CompactAndRefine.get_response`.

        Args:
            query_str: what is asked.
            text_chunks: texts, sent as they are if there is no context.
            prev_response: an answer to refine.
            contextpilot: what to send in place of the chunks.
            **response_kwargs: values for the template.
        """
        chunks, values = self._sent(query_str, text_chunks, contextpilot, response_kwargs)
        return super().get_response(query_str, chunks, prev_response, **values)

    async def aget_response(
        self,
        query_str: str,
        text_chunks: Sequence[str],
        prev_response: RESPONSE_TEXT_TYPE | None = None,
        contextpilot: Context | None = None,
        **response_kwargs: Any,  # noqa: ANN401
    ) -> RESPONSE_TEXT_TYPE:
        """As `get_response`."""
        chunks, values = self._sent(query_str, text_chunks, contextpilot, response_kwargs)
        return await super().aget_response(query_str, chunks, prev_response, **values)

    def _with_context(self, query: QueryType, nodes: Sequence[NodeWithScore], values: dict[str, Any]) -> dict[str, Any]:
        if getattr(self, "_multimodal", False):  # content blocks have no place for labels: only the order is ours
            return values
        try:
            context = context_of(nodes, query if isinstance(query, str) else query.query_str)
        except Exception as error:  # noqa: BLE001  fails open: the framework renders the nodes as they are
            self.failures += 1
            self._told.warn("failed open: %s; nodes are sent without labels and hint", error)
            return values
        if context.moved:
            self._told.warn(
                "nodes were sorted, or others added, after ContextPilotPostprocessor: what could be found in the cache "
                "is lost; it has to be the last of the node_postprocessors"
            )
        return {**values, "contextpilot": context}

    def _sent(
        self, query_str: str, chunks: Sequence[str], context: Context | None, values: dict[str, Any]
    ) -> tuple[Sequence[str], dict[str, Any]]:
        """The chunks to send, and the values for the template; the hint only if all that it names fits one prompt."""
        if context is None:
            return chunks, values
        values = {"order_hint": context.hint or "", **values}
        if values["order_hint"] and not self._fits(f"{query_str}\n\n{values['order_hint']}", context.chunks):
            values["order_hint"] = ""
            self._told.warn("the order hint is left out: there is no room for it in the prompt with all nodes")
        return context.chunks, values

    def _fits(self, query_and_hint: str, chunks: Sequence[str]) -> bool:
        """Whether all goes into one prompt. The framework counts the question, and knows nothing of other values."""
        try:
            return len(super()._make_compact_text_chunks(query_and_hint, chunks)) == 1
        except ValueError:  # no room for any node
            return False

    def _make_compact_text_chunks(self, query_str: str, text_chunks: Sequence[str]) -> list[str]:
        packed = super()._make_compact_text_chunks(query_str, text_chunks)
        if len(packed) > 1:
            self._told.warn(
                "the context does not fit one prompt and is sent in %s; only the first can share a cached prefix "
                "(retrieve fewer nodes, or tell the llm its context_window)",
                len(packed),
            )
        return packed
