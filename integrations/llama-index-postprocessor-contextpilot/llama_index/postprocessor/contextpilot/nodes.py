"""Nodes: what of a node the model is shown, and copies that say more or less than the original. Nothing is changed."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

MARK = "contextpilot"
"""The metadata key that holds what this package knows of a node: JSON-serialisable, shown to no model."""

VIEW = "contextpilot_view"
"""The metadata key that holds what the model is shown of a node with a label, in place of everything else."""

EMBED_VIEW = "contextpilot_embed_view"
"""The same for the embedding model, where it was shown more than the text."""

TRAILER_ID = "contextpilot-trailer"
"""The id of the node that carries the order hint, and what is given once more."""

HIDDEN_METADATA = (
    # written at query time: another number with every question
    "score",
    "*_score",
    "similarity",
    "distance",
    # another on each machine, in each temporary folder
    "file_path",
    "filepath",
    # of files, as readers write it: another after each copy or visit
    "creation_date",
    "last_modified_date",
    "last_accessed_date",
    # another after each ingestion
    "ingested_at",
    "indexed_at",
    "crawled_at",
    "scraped_at",
    "fetched_at",
    "retrieved_at",
    "accessed_at",
)
"""Patterns of metadata keys that are hidden from the model, unless asked otherwise. Dates of the contents are not."""

DATE_METADATA = ("timestamp", "*_timestamp", "date", "*_date", "*_at")
"""Patterns for all dates, to add where none of them matters: ``[*HIDDEN_METADATA, *DATE_METADATA]``."""

_OURS = (MARK, VIEW, EMBED_VIEW)
_EXCLUDED = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")


def matching(keys: Sequence[str], patterns: Sequence[str] | None) -> list[str]:
    """Those of the keys that match one of the patterns (``*`` and ``?``, in either case).

    >>> matching(["retrieval_score", "title", "due_date", "Indexed_At"], HIDDEN_METADATA)
    ['retrieval_score', 'Indexed_At']
    """
    lowered = [pattern.lower() for pattern in patterns or ()]
    # Keys that are set later may be anything: the framework checks them only when a node is made.
    names = [key for key in keys if isinstance(key, str)]
    return [key for key in names if any(fnmatch.fnmatchcase(key.lower(), pattern) for pattern in lowered)]


def mark_of(node: BaseNode) -> Mapping[str, Any]:
    """What this package noted on a node; empty if nothing."""
    mark = node.metadata.get(MARK)
    return mark if isinstance(mark, Mapping) else {}


def ranks_of(nodes: Sequence[NodeWithScore]) -> list[int] | None:
    """The ranks that an earlier call of ours noted on all nodes, if they still stand as it left them.

    Some may have been left out since. Where somebody sorted them anew, or added others, the ranks are out of date.

    >>> ranks_of([NodeWithScore(node=TextNode(text="Slices count from zero."))]) is None
    True
    """
    marks = [mark_of(node.node) for node in nodes]
    ranks = [mark.get("rank") for mark in marks]
    labels = [mark.get("label") for mark in marks if mark.get("label") is not None]
    known = [rank for rank in ranks if type(rank) is int and rank >= 0]
    sound = len(known) == len(nodes) == len(set(known)) and all(type(label) is int for label in labels)
    return known if labels and sound and in_order(labels) else None


def in_order(labels: Sequence[int | None]) -> bool:
    """Whether labels stand as they were given, with none missing before another.

    >>> in_order([1, 2, 4, None]), in_order([2, 1]), in_order([1, None, 2])
    (True, False, False)
    """
    known = [label for label in labels if label is not None]
    return None not in labels[: len(known)] and all(a < b for a, b in pairwise(known))


def twins_of(node: BaseNode) -> list[Any]:
    """What an earlier call of ours noted of nodes with the same text."""
    twins = mark_of(node).get("duplicates")
    return [plain(twin) for twin in twins if isinstance(twin, Mapping)] if isinstance(twins, list) else []


def is_trailer(node: BaseNode) -> bool:
    """Whether a node is the one that `trailer` made, which is no source of anything."""
    return mark_of(node).get("kind") == "trailer"


def engine_of(nodes: Sequence[NodeWithScore]) -> str | None:
    """The name of the engine that a prompt with these nodes should go to, where the pilot follows several.

    Args:
        nodes: as our postprocessor returned them.

    Returns:
        None if any engine will do: the pilot knows none, somebody else chooses, or the nodes are not ours.

    >>> engine_of([NodeWithScore(node=TextNode(text="Slices.", metadata={"contextpilot": {"engine": "left"}}))])
    'left'
    """
    names = {mark_of(node.node).get("engine") for node in nodes} - {None}
    name = names.pop() if len(names) == 1 else None
    return name if isinstance(name, str) else None


def copied(node: BaseNode, hidden: Sequence[str] | None, told: set[str] | None = None) -> BaseNode:
    """A copy that shares no metadata with the node, shows neither labels nor hidden metadata, and has no mark.

    Args:
        node: stays as it is.
        hidden: patterns of metadata keys.
        told: takes in the keys that were shown before.
    """
    metadata = {key: _own(value) for key, value in node.metadata.items() if key not in _OURS}
    values: dict[str, Any] = {"metadata": metadata}
    original = mark_of(node).get("original")
    if VIEW in node.metadata and isinstance(original, Mapping):
        values.update(original)
    for name in _EXCLUDED:
        values[name] = [key for key in values.get(name, getattr(node, name)) if key not in _OURS]
    excluded = values[_EXCLUDED[0]]
    new = [key for key in matching(list(metadata), hidden) if key not in excluded]
    excluded.extend(new)
    if told is not None:
        told.update(new)
    return node.model_copy(update=values)


def _own(value: Any) -> Any:  # noqa: ANN401
    """A value that shares no plain container with another one."""
    if type(value) is dict:
        return {key: _own(part) for key, part in value.items()}
    return type(value)(map(_own, value)) if type(value) in (list, tuple, set) else value


def text_of(node: BaseNode) -> str | None:
    r"""What a model is shown of a node; None where that is no text, or not all: images, sounds, nothing.

    >>> text_of(TextNode(text="Slices count from zero.", metadata={"page": 3}))
    'page: 3\n\nSlices count from zero.'
    """
    if isinstance(node, Node):
        if node.image_resource or node.audio_resource or node.video_resource:
            return None
    elif not isinstance(node, TextNode) or isinstance(node, ImageNode):
        return None
    text = node.get_content(metadata_mode=MetadataMode.LLM)
    return text if text.strip() else None


def marked(node: BaseNode, mark: Mapping[str, Any]) -> BaseNode:
    """A node that `copied` made, with a mark; it is changed in place.

    Args:
        node: ours.
        mark: JSON-serialisable.
    """
    node.metadata[MARK] = dict(mark)
    node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, MARK]
    node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, MARK]
    return node


def showing(node: BaseNode, text: str) -> BaseNode:
    """A node that `marked` made, with another text for the model to see; `TextNode.text` stays. It is changed in place.

    A node's templates serve both the language model and the embedding model, and only with metadata that shows. So the
    text stands in a metadata key of its own, the only one that is shown.

    Args:
        node: ours, with text.
        text: what `get_content` returns in `MetadataMode.LLM`, but for blanks at its ends.
    """
    assert isinstance(node, TextNode | Node)  # noqa: S101  text_of lets no other through
    original = {
        "text_template": node.text_template,
        "metadata_template": node.metadata_template,
        "metadata_separator": node.metadata_separator,
        "excluded_llm_metadata_keys": [key for key in node.excluded_llm_metadata_keys if key != MARK],
        "excluded_embed_metadata_keys": [key for key in node.excluded_embed_metadata_keys if key != MARK],
    }
    embedded = node.get_content(metadata_mode=MetadataMode.EMBED)
    node.metadata[MARK]["original"] = original
    node.metadata[VIEW] = text
    if embedded != node.get_content(metadata_mode=MetadataMode.NONE):
        node.metadata[EMBED_VIEW] = embedded
    node.metadata_template = "{value}"
    node.text_template = "{metadata_str}"
    node.excluded_llm_metadata_keys = [key for key in node.metadata if key != VIEW]
    node.excluded_embed_metadata_keys = [key for key in node.metadata if key != EMBED_VIEW]
    return node


def trailer(text: str) -> NodeWithScore:
    """A node that stands last and tells the model about the others."""
    node = TextNode(id_=TRAILER_ID, text=text)
    return NodeWithScore(node=marked(node, {"kind": "trailer"}), score=None)


def dropped(node: NodeWithScore) -> dict[str, Any]:
    """What stays known of a node whose text stands in another one.

    >>> dropped(NodeWithScore(node=TextNode(id_="b", text="same", metadata={"page": 3}), score=0.5))
    {'node_id': 'b', 'score': 0.5, 'metadata': {'page': 3}}
    """
    source = node.node.relationships.get(NodeRelationship.SOURCE)
    known: dict[str, Any] = {
        "node_id": node.node.node_id,
        "score": node.score,
        "metadata": {key: value for key, value in node.node.metadata.items() if key not in _OURS},
    }
    if isinstance(source, RelatedNodeInfo):
        known["ref_doc_id"] = source.node_id
    return {name: plain(value) for name, value in known.items()}


def plain(value: Any) -> Any:  # noqa: ANN401
    """A value as JSON can hold it; what it cannot hold as its str.

    >>> plain({"when": range(2), 3: (1.5, None, float("inf"))})
    {'when': 'range(0, 2)', '3': [1.5, None, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    return str(value)
