"""ContextPilotPostprocessor: comes last, and puts nodes into an order that the engine's cache can reuse."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextpilot_rag import AsyncContextPilot, Namespace
from contextpilot_rag.adapter import Adapter, PilotLike
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.prompt.prompt import AlignedPrompt
from contextpilot_rag.settings import Order, Wording
from contextpilot_rag.types import short
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from .arranged import Annotation, Intake, intake, outcome, tenant_of
from .nodes import HIDDEN_METADATA
from .options import check_names, patterns_of
from .pilots import noted

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL_NAME = "contextpilot"

dispatcher = get_dispatcher(__name__)


class ContextPilotPostprocessor(BaseNodePostprocessor):
    """Puts nodes into an order that the engine's prefix cache can reuse, and loses none of them. Has to come last.

    Nodes are copied, never changed. Each copy carries ``metadata["contextpilot"]``, which neither the model nor the
    embedder is shown: ``rank`` (from 0, as retrieved), ``label`` (its number in the prompt, None for a node that is no
    text), and ``duplicates`` (ids, scores and metadata of nodes with the same text, which is placed once).

    Args:
        pilot: a `ContextPilot` or `AsyncContextPilot` to share, an index, the address of a service or of replicas' log,
            or None: the one at ``CONTEXTPILOT_INDEX``, else an index of its own in this process. An object is not
            serialised, and no address with a password: give that one in ``CONTEXTPILOT_INDEX``.
        namespace: what may share cached prefixes; a string is a tenant. None: the pilot's.
        namespace_key: a metadata key that all nodes carry, such as "tenant_id"; its value is the tenant. Nodes that
            lack it or disagree come back as they are.
        hidden_metadata: patterns of metadata keys that the model is not shown; None or (): nothing is hidden.
        annotation: "none": only the order changes, `ContextPilotSynthesizer` adds labels, and the hint if there is one.
            "node": for every other synthesizer and chat engine: each node is shown with its label, and where the order
            changed, a last node carries the hint, if there is one, and the echoes.
        order: as `contextpilot_rag.Settings` has it, and so for all that follow; None: as the pilot has it.
        min_gain: share of the blocks' tokens, 0 to 1.
        protect_top: a number of nodes.
        max_displacement: a number of places.
        echo: a number of nodes. They stand in the last node, or at the end of the synthesizer's context.
        order_hint: whether, or by which wording, a changed order is told to the model: True, "order", "best", "title"
            or "sentence". A pilot that was not told otherwise has False.

    Raises:
        SettingsError: an unknown setting, a value that a setting cannot have, or a namespace twice.

    >>> from llama_index.core.schema import TextNode
    >>> slices, steps = (NodeWithScore(node=TextNode(text=text)) for text in ("Slices count from zero.", "Steps."))
    >>> postprocessor = ContextPilotPostprocessor(min_gain=0)
    >>> monday = postprocessor.postprocess_nodes([slices, steps], query_str="What is a slice?")
    >>> tuesday = postprocessor.postprocess_nodes([steps, slices], query_str="What is a step?")
    >>> [(node.text, node.metadata["contextpilot"]["rank"]) for node in tuesday]
    [('Slices count from zero.', 1), ('Steps.', 0)]
    """

    pilot: str | None = Field(default=None, frozen=True, description="Address of the index; None: in this process.")
    namespace: str | Namespace | None = Field(
        default=None, frozen=True, description="What may share cached prefixes; a string is a tenant."
    )
    namespace_key: str | None = Field(
        default=None, frozen=True, description="Metadata key of the nodes whose value is the tenant."
    )
    hidden_metadata: tuple[str, ...] | None = Field(
        default=HIDDEN_METADATA, frozen=True, description="Patterns of metadata keys that the model is not shown."
    )
    annotation: Annotation = Field(
        default="none",
        frozen=True,
        description="'node': labels and order hint for stock synthesizers and chat engines.",
    )
    order: Order | None = Field(
        default=None, frozen=True, description="'retrieved', 'balanced', 'throughput' or 'fixed'."
    )
    min_gain: float | None = Field(
        default=None, frozen=True, description="Share of the tokens that a change of order has to gain."
    )
    protect_top: int | None = Field(default=None, frozen=True, description="This many of the best keep their places.")
    max_displacement: int | None = Field(default=None, frozen=True, description="No node moves further than this.")
    echo: int | None = Field(default=None, frozen=True, description="This many of the best are given once more.")
    order_hint: bool | Wording | None = Field(default=None, frozen=True, description="Tell the model a changed order.")

    _adapter: Adapter = PrivateAttr()
    _space: Namespace = PrivateAttr()
    _shared: PilotLike = PrivateAttr()

    def __init__(self, pilot: PilotLike = None, **fields: Any) -> None:  # noqa: ANN401
        check_names(type(self).__name__, [name for name in fields if name != "class_name"], type(self).model_fields)
        if "hidden_metadata" in fields:
            fields["hidden_metadata"] = patterns_of(fields["hidden_metadata"])
        shown = isinstance(pilot, str) and "@" not in pilot  # before it there may be a password
        address: dict[str, Any] = {"pilot": pilot if shown else None}
        super().__init__(**address, **fields)
        options = {name: getattr(self, name) for name in _OPTIONS}
        chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        self._adapter = noted(Adapter(pilot, namespace=self.namespace, **chosen))
        self._shared = pilot if isinstance(pilot, AsyncContextPilot) else self._adapter.pilot
        self._space = self._adapter.namespace or self._adapter.pilot.prepare(()).request.namespace
        if self.namespace_key is not None and self._space.tenant:
            raise SettingsError("the tenant is given twice: as namespace, and by namespace_key")

    @classmethod
    def class_name(cls) -> str:
        """The name that it is serialised under."""
        return "ContextPilotPostprocessor"

    @property
    def adapter(self) -> Adapter:
        """What it is built on; ``adapter.pilot`` is the pilot."""
        return self._adapter

    @property
    def failures(self) -> int:
        """How often something failed, and nodes came back as they were."""
        return self._adapter.failures

    def extra_body(self, tenant: str | int | None = None) -> dict[str, Any]:
        """What an LLM's requests have to carry as ``extra_body``: the namespace's ``cache_salt``, if it has one.

        Args:
            tenant: whose requests, where the nodes say it; as they have it under ``namespace_key``.

        Raises:
            SettingsError: no tenant, but a ``namespace_key``; or a tenant, and none.

        >>> sorted(ContextPilotPostprocessor(namespace="acme").extra_body())
        ['cache_salt']
        >>> sorted(ContextPilotPostprocessor(namespace_key="tenant_id").extra_body("acme"))
        ['cache_salt']
        """
        if self.namespace_key is None:
            if tenant is not None:
                raise SettingsError("extra_body takes a tenant only with namespace_key; here namespace names it")
            return self._adapter.pilot.extra_body(self._space)
        name = tenant_of(tenant)
        if name is None:
            raise SettingsError(
                f"with namespace_key={self.namespace_key!r} each tenant has a salt of its own: extra_body(tenant), "
                f"with a tenant as the nodes have it, not {short(tenant)}"
            )
        return self._adapter.pilot.extra_body(replace(self._space, tenant=name))

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._announced(nodes, query_bundle) as end:
            taken = self._taken(nodes)
            if taken is None:
                return end(nodes)
            prompt = self._adapter.arrange(taken.texts, _question(query_bundle), namespace=taken.namespace)
            return end(self._given(taken, prompt, nodes))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._announced(nodes, query_bundle) as end:
            taken = self._taken(nodes)
            if taken is None:
                return end(nodes)
            prompt = await self._adapter.aarrange(taken.texts, _question(query_bundle), namespace=taken.namespace)
            return end(self._given(taken, prompt, nodes))

    def _taken(self, nodes: list[NodeWithScore]) -> Intake | None:
        """The nodes, sorted; None where nothing is to be done, or something failed."""
        if not nodes:
            return None
        try:
            return intake(nodes, self.hidden_metadata, self._space, self.namespace_key)
        except Exception as error:  # noqa: BLE001  fails open: the nodes are there, they must reach the model
            self._adapter.failed(error)
            return None

    def _given(self, taken: Intake, prompt: AlignedPrompt | None, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        """The nodes to hand on: arranged, or as they came."""
        if prompt is None:
            return nodes
        try:
            return outcome(taken, prompt, self.annotation) or nodes
        except Exception as error:  # noqa: BLE001  fails open: the nodes are there, they must reach the model
            self._adapter.failed(error)
            return nodes

    @contextmanager
    def _announced(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None
    ) -> Iterator[Callable[[list[NodeWithScore]], list[NodeWithScore]]]:
        """Events for both of the framework's ways of watching, around what is done with the nodes."""
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=len(nodes), model_name=MODEL_NAME))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: MODEL_NAME,
            EventPayload.QUERY_STR: _question(query_bundle),
            EventPayload.TOP_K: len(nodes),
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:

            def end(result: list[NodeWithScore]) -> list[NodeWithScore]:
                event.on_end(payload={EventPayload.NODES: result})
                dispatcher.event(ReRankEndEvent(nodes=result))
                return result

            yield end

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that shares the pilot, with other values for some settings.

        Raises:
            SettingsError: as for the class.

        >>> copied = ContextPilotPostprocessor(namespace="acme").model_copy(update={"namespace": "other"})
        >>> copied.extra_body() == ContextPilotPostprocessor(namespace="other").extra_body()
        True
        """
        if not update:
            return super().model_copy(deep=deep)
        values = {name: getattr(self, name) for name in type(self).model_fields}
        made = type(self)(**{**values, "pilot": self._shared, **update})
        if "pilot" not in update:
            made.__dict__["pilot"] = self.pilot  # an address is serialised
        return made

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> ContextPilotPostprocessor:
        """A copy that shares the pilot: there is still one engine's cache."""
        made = copy.copy(self)
        if memo is not None:
            memo[id(self)] = made
        return made

    def __getstate__(self) -> dict[Any, Any]:
        """Everything but the pilot, which has locks: after pickling there is another one."""
        return {
            "__dict__": {name: getattr(self, name) for name in type(self).model_fields if name != "callback_manager"}
        }

    def __setstate__(self, state: dict[Any, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc]


_OPTIONS = ("order", "min_gain", "protect_top", "max_displacement", "echo", "order_hint")


def _question(query_bundle: QueryBundle | None) -> str:
    return "" if query_bundle is None else query_bundle.query_str.strip()
