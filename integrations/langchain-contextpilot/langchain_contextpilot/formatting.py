"""What a chain needs to know, from the documents alone: the two texts of its prompt, and the engine to send it to.

Labels count places in the list that is given. So both are right also if somebody dropped documents from it, and
documents that we never saw are formatted like all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from contextpilot_rag.adapter import hint_for, labelled
from contextpilot_rag.prompt.render import render_documents
from contextpilot_rag.prompt.wording import wording_of
from langchain_core.documents import Document
from langchain_core.prompts import BasePromptTemplate

from ._checking import prompt_checked
from ._placing import mark_of, shown


def format_docs(documents: Sequence[Document], document_prompt: BasePromptTemplate[str] | None = None) -> str:
    r"""The documents as a prompt shows them: labelled, in a frame, and what could forge a label escaped.

    Equal documents in equal places give equal bytes: no ids, no scores. Give it to a chain as it is:
    ``retriever | format_docs``.

    Args:
        documents: in prompt order. Those without text are passed over.
        document_prompt: the retriever's, if it has one.

    Raises:
        SettingsError: a document prompt that is none.

    >>> print(format_docs([Document("Slices count from zero.", id="x", metadata={"score": 0.7})]))
    <documents>
    [1] Slices count from zero.
    </documents>
    """
    prompt_checked(document_prompt)
    blocks: list[str] = []
    echoed: list[tuple[int, str]] = []
    for document in documents:
        text = shown(document, document_prompt)
        if text is None:
            continue
        blocks.append(labelled(len(blocks) + 1, text))
        echo = mark_of(document).get("echo")
        if isinstance(echo, int):
            echoed.append((echo, blocks[-1]))
    return render_documents([*blocks, *(block for _, block in sorted(echoed))])


def order_hint(
    documents: Sequence[Document], document_prompt: BasePromptTemplate[str] | None = None, question: str = ""
) -> str:
    """One sentence that tells the model the retriever's order; empty where it did not change, or is not known.

    It is empty, too, unless whoever placed the documents was told ``order_hint=...`` (the retriever, the compressor or
    the pilot): by default nothing is said of the order. It belongs after the documents and before the question.

    Args:
        documents: as for `format_docs`.
        document_prompt: the retriever's, if it has one.
        question: what is asked; only ``order_hint="sentence"`` looks for its words.

    Raises:
        SettingsError: a document prompt that is none.

    >>> marks = [{"rank": 1, "hint": "order"}, {"rank": 0, "hint": "order"}]  # of a retriever with order_hint=True
    >>> placed = [Document(text, metadata={"contextpilot": mark}) for text, mark in zip("ab", marks)]
    >>> order_hint(placed)
    'Order of relevance, best first: [2] > [1]'
    """
    prompt_checked(document_prompt)
    texts = [shown(document, document_prompt) for document in documents]
    pairs = [(mark_of(document), text) for document, text in zip(documents, texts, strict=True) if text is not None]
    wordings = [mark.get("hint", True) for mark, _ in pairs]
    if not wordings or not all(wordings):
        return ""
    ranks = [rank if type(rank := mark.get("rank")) is int else None for mark, _ in pairs]
    return hint_for(ranks, wording_of(wordings[0]), [text for _, text in pairs], question) or ""


def engine_of(documents: Sequence[Document]) -> str | None:
    """The name of the engine that a prompt with these documents should go to, where the pilot follows several.

    Args:
        documents: as a retriever or compressor of ours placed them.

    Returns:
        None if any engine will do: the pilot knows none, somebody else chooses, or the documents are not ours.

    >>> engine_of([Document("Slices.", metadata={"contextpilot": {"rank": 0, "engine": "left"}})])
    'left'
    """
    names = {mark_of(document).get("engine") for document in documents} - {None}
    name = names.pop() if len(names) == 1 else None
    return name if isinstance(name, str) else None
