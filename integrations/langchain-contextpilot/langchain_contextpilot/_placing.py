"""From a retriever's documents to texts, and from an alignment back to documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

from contextpilot_rag.intake import distinct
from contextpilot_rag.prompt.prompt import AlignedPrompt
from contextpilot_rag.types import Block
from langchain_core.documents import Document
from langchain_core.prompts import BasePromptTemplate, format_document

KEY = "contextpilot"
"""What stands under this key of a document's metadata is ours."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was retrieved, best first.

    Args:
        documents: all of them, best first.
        texts: of those that have one, exactly as they will stand in the prompt.
        ranks: for each text, the place of its document.
        others: places of the documents without text, such as images.
        noted: the documents' ranks, where something of ours noted them before; empty: their places.
    """

    documents: Sequence[Document]
    texts: list[str]
    ranks: list[int]
    others: list[int]
    noted: Sequence[int] = ()

    def first(self, k: int | None, *, normalise: bool) -> Found:
        """Only the first k that differ in their texts, with all that have the same text as one of them."""
        if k is None:
            return self
        groups = [[self.ranks[position] for position in group] for group in _same(self.texts, normalise=normalise)]
        kept = sorted([*groups, *([rank] for rank in self.others)])[:k]
        ranks = {rank for group in kept for rank in group}
        pairs = [(rank, text) for rank, text in zip(self.ranks, self.texts, strict=True) if rank in ranks]
        others = [rank for rank in self.others if rank in ranks]
        return Found(self.documents, [text for _, text in pairs], [rank for rank, _ in pairs], others, self.noted)

    def count(self, *, normalise: bool) -> int:
        """How many differ in their texts."""
        return len(_same(self.texts, normalise=normalise)) + len(self.others)

    def of(self, positions: Sequence[Any]) -> list[tuple[int, Document]]:
        """The documents of some texts, with their ranks."""
        places = [self.ranks[position] for position in positions]
        return [(self.rank(place), self.documents[place]) for place in places]

    def rank(self, place: int) -> int:
        """The rank that the retriever gave the document at a place."""
        return self.noted[place] if self.noted else place


def found(documents: Sequence[Document], document_prompt: BasePromptTemplate[str] | None = None) -> Found:
    """Documents as the texts that reach the prompt.

    Args:
        documents: best first; or as something of ours placed them, then their ranks say which is best.
        document_prompt: renders a document, as LangChain's chains take it; None: only the content is shown.
    """
    texts, ranks, others = [], [], []
    documents, noted = as_retrieved(documents)
    for rank, document in enumerate(documents):
        text = shown(document, document_prompt)
        if text is None:
            others.append(rank)
        else:
            texts.append(text)
            ranks.append(rank)
    return Found(documents, texts, ranks, others, noted)


def shown(document: Document, document_prompt: BasePromptTemplate[str] | None = None) -> str | None:
    """What a prompt shows of a document; None if nothing.

    >>> shown(Document("Slices count from zero.")), shown(Document("", metadata={"image": "a.png"}))
    ('Slices count from zero.', None)
    """
    text = document.page_content if document_prompt is None else format_document(document, document_prompt)
    return text if text.strip() else None


def placed(given: Found, prompt: AlignedPrompt) -> list[Document]:
    """The documents in prompt order, each text once. They are copies; the metadata says where each came from."""
    echo = {place: number for number, place in enumerate(prompt.echoed)}
    placed = []
    for label, positions in prompt.ids.items():
        (rank, document), *same = given.of(positions)
        mark: dict[str, Any] = {
            "rank": rank,
            "label": label,
            "hint": prompt.wording or False,
            "duplicates": duplicates(document, [one for _, one in same]),
        }
        if label - 1 in echo:
            mark["echo"] = echo[label - 1]
        if prompt.engine is not None:
            mark["engine"] = prompt.engine
        placed.append(_marked(document, mark))
    for place in given.others:
        document = given.documents[place]
        placed.append(_marked(document, {"rank": given.rank(place), "duplicates": duplicates(document, [])}))
    return placed


def duplicates(document: Document, same: Sequence[Document]) -> list[dict[str, Any]]:
    """All documents that a document stands for, by id and metadata."""
    known = [*_duplicates_of(document)]
    for one in same:
        known += [{"id": one.id, "metadata": without_mark(one.metadata)}, *_duplicates_of(one)]
    return known


def mark_of(document: Document) -> dict[str, Any]:
    """What we noted on a document; nothing if we did not."""
    mark = document.metadata.get(KEY)
    return mark if isinstance(mark, dict) else {}


def without_mark(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as the retriever gave it."""
    return {key: value for key, value in metadata.items() if key != KEY}


def as_retrieved(documents: Sequence[Document]) -> tuple[Sequence[Document], Sequence[int]]:
    """Documents as the retriever ranked them, and those ranks, if all of them stand as something of ours placed them.

    Otherwise somebody sorted them since then, or added some: then their order is the ranking, and no ranks are known.
    """
    marks = [mark_of(document) for document in documents]
    ranks = [rank for rank in (mark.get("rank") for mark in marks) if type(rank) is int]
    labels = [label for label in (mark.get("label") for mark in marks) if type(label) is int]
    if len(set(ranks)) < len(marks) or any(a >= b for a, b in pairwise(labels)):
        return documents, ()
    pairs = sorted(zip(ranks, documents, strict=True), key=itemgetter(0))
    return [document for _, document in pairs], sorted(ranks)


def _duplicates_of(document: Document) -> list[dict[str, Any]]:
    noted = mark_of(document).get("duplicates")
    return noted if isinstance(noted, list) else []


def _same(texts: Sequence[str], *, normalise: bool) -> list[tuple[Any, ...]]:
    """Positions of equal texts, together."""
    blocks = [Block(text, id=position) for position, text in enumerate(texts)]
    return list(distinct(blocks, normalise).aliases)


def _marked(document: Document, mark: dict[str, Any]) -> Document:
    metadata = {key: _own(value) for key, value in document.metadata.items()}
    return document.model_copy(update={"metadata": {**metadata, KEY: mark}})


def _own(value: Any) -> Any:  # noqa: ANN401
    """A value that shares no list or dict with the retriever's document; anything else is the same object."""
    if type(value) is dict:
        return {key: _own(part) for key, part in value.items()}
    return [_own(part) for part in value] if type(value) is list else value
