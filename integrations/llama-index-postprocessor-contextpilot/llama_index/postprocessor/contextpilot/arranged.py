"""Arranged: one call's nodes on their way through the adapter: texts out, nodes back in the order that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from contextpilot_rag import Namespace
from contextpilot_rag.adapter import labelled
from contextpilot_rag.errors import InputError
from contextpilot_rag.intake import namespace_of
from contextpilot_rag.prompt.prompt import AlignedPrompt
from contextpilot_rag.types import Rule, short
from llama_index.core.schema import BaseNode, NodeWithScore

from .nodes import HIDDEN_METADATA, copied, dropped, is_trailer, marked, ranks_of, showing, text_of, trailer, twins_of
from .told import tell_hidden

Annotation = Literal["none", "node"]


@dataclass(frozen=True, slots=True)
class Intake:
    """The nodes of a call, sorted by what can be done with them.

    Args:
        nodes: as they came, without what an earlier call of ours had added at the end.
        copies: of each, without hidden metadata.
        places: of those that are text, among the nodes.
        texts: what a model is shown of these.
        ranks: of the nodes, as retrieved.
        namespace: what may share cached prefixes with them; None: the pilot's.
    """

    nodes: tuple[NodeWithScore, ...]
    copies: tuple[BaseNode, ...]
    places: tuple[int, ...]
    texts: tuple[str, ...]
    ranks: tuple[int, ...]
    namespace: Namespace | None = None


def intake(
    nodes: Sequence[NodeWithScore],
    hidden: Sequence[str] | None,
    namespace: Namespace | str | None = None,
    namespace_key: str | None = None,
) -> Intake:
    """Sort the nodes of a call.

    Nodes that come straight from another postprocessor of ours are put back into the order that they were retrieved in.

    Args:
        nodes: best first; they stay as they are.
        hidden: patterns of metadata keys.
        namespace: of the call.
        namespace_key: a metadata key; its value is the namespace's tenant.

    Raises:
        InputError: the nodes lack a namespace, or have more than one.
    """
    own = [node for node in nodes if not is_trailer(node.node)]
    ranks = ranks_of(own) or list(range(len(own)))
    places = sorted(range(len(own)), key=ranks.__getitem__)
    own = [own[place] for place in places]
    newly: set[str] = set()
    copies = tuple(copied(node.node, hidden, newly) for node in own)
    tell_hidden(newly, expected=hidden != HIDDEN_METADATA)
    texts = [text_of(copy) for copy in copies]
    space = None if namespace is None else namespace_of(namespace)
    if namespace_key is not None and own:
        space = replace(space or Namespace(), tenant=_tenant(own, namespace_key))
    return Intake(
        tuple(own),
        copies,
        tuple(place for place, text in enumerate(texts) if text is not None),
        tuple(text for text in texts if text is not None),
        tuple(sorted(ranks)),
        space,
    )


def tenant_of(value: object) -> str | None:
    """The name of a tenant, as nodes have it in their metadata; None for what is none.

    >>> tenant_of("acme"), tenant_of(7), tenant_of(""), tenant_of(True)
    ('acme', '7', None, None)
    """
    return str(value) if type(value) in (str, int) and value != "" else None


def _tenant(nodes: Sequence[NodeWithScore], key: str) -> str:
    """The one value that all nodes have.

    Raises:
        InputError: there is none.
    """
    found: dict[str, None] = {}
    for node in nodes:
        value = node.node.metadata.get(key)
        tenant = tenant_of(value)
        if tenant is None:
            raise InputError(f"node {short(node.node.node_id)} has no namespace: metadata[{key!r}] is {short(value)}")
        found.setdefault(tenant)
    if len(found) > 1:
        raise InputError(f"the nodes of one request are of {len(found)} namespaces: metadata[{key!r}] differs")
    return next(iter(found))


def outcome(taken: Intake, prompt: AlignedPrompt, annotation: Annotation) -> list[NodeWithScore] | None:
    """The nodes in the order that was chosen, marked; None if none was chosen, because something failed.

    Nodes that are no text stay where they are if the order did not change, else they stand after the others.

    Args:
        taken: what the prompt was made of.
        prompt: its ids are positions in ``taken.texts``.
        annotation: "node": labels, echoes and hint are put where every model sees them.
    """
    if prompt.rule is Rule.FAILED_OPEN:
        return None
    hint = prompt.order_hint
    labels = annotation == "node"
    made: dict[int, NodeWithScore] = {}  # by place among the nodes, in prompt order
    for label, positions in prompt.ids.items():
        places = [taken.places[position] for position in positions if isinstance(position, int)]
        block = prompt.blocks[label - 1]
        mark: dict[str, Any] = {
            "rank": taken.ranks[places[0]],
            "label": label,
            "changed": prompt.changed,
            "hint": prompt.wording if hint is not None else False,
        }
        twins = [{"rank": taken.ranks[place], **dropped(taken.nodes[place])} for place in places[1:]]
        twins.extend(twin for place in places for twin in twins_of(taken.nodes[place].node))
        if twins:
            mark["duplicates"] = twins
        if label - 1 in prompt.echoed:
            mark["echo"] = 1 + prompt.echoed.index(label - 1)
        if prompt.engine is not None:
            mark["engine"] = prompt.engine
        made[places[0]] = _made(taken, places[0], mark)
        if labels:
            showing(made[places[0]].node, labelled(label, block.text))
    texts = set(taken.places)
    others = {
        place: _made(taken, place, {"rank": taken.ranks[place], "label": None})
        for place in range(len(taken.nodes))
        if place not in texts
    }
    made.update(others)
    result = list(made.values()) if prompt.changed else [made[place] for place in sorted(made)]
    last = [labelled(place + 1, prompt.blocks[place].text) for place in prompt.echoed]
    if hint is not None:
        last.append(hint)
    if labels and last:
        result.append(trailer("\n\n".join(last)))
    return result


def _made(taken: Intake, place: int, mark: dict[str, Any]) -> NodeWithScore:
    return taken.nodes[place].model_copy(update={"node": marked(taken.copies[place], mark)})
