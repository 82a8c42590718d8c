"""What a request's texts are needed for: its order hint, and its user message for clients that have no renderer.

Nothing of it is kept.
"""

from __future__ import annotations

from ..prompt.hints import label
from ..prompt.render import render_block, render_documents
from ..prompt.wording import QUOTING, hint, wording_of
from ..remote.wire import AlignIn, AlignOut
from .problems import Unusable


def check(given: AlignIn) -> None:
    """That a message, or a hint with words of a block, can be made of a request, if one is asked for.

    Raises:
        Unusable: a block without its text.
    """
    needs = "question" if given.question is not None else "order_hint" if given.order_hint in QUOTING else None
    if needs is not None:
        for position, block in enumerate(given.blocks):
            if block.text is None:
                raise Unusable(f"blocks[{position}]: give its text, or leave out {needs}")


def told(given: AlignIn, answer: AlignOut) -> str | None:
    """The order hint, by the labels of an answer; None where the order did not change, or none is wanted."""
    texts = [given.blocks[position].text or "" for position in answer.order]
    return hint(wording_of(given.order_hint), answer.order, answer.labels, texts, given.question or "")


def content(given: AlignIn, answer: AlignOut) -> str | None:
    """The content of the user message; None if it was not asked for. The same bytes as `ContextPilot` makes.

    >>> from contextpilot_rag.remote.wire import BlockIn
    >>> given = AlignIn([BlockIn(text="Slices count from zero.")], question="Where do slices start?")
    >>> print(content(given, AlignOut("t", [0], [1], 0, 0, 0, "nothing_gained", "")))
    <documents>
    [1] Slices count from zero.
    </documents>
    <BLANKLINE>
    Where do slices start?
    """
    if given.question is None:
        return None
    rendered = []
    for position, number in zip(answer.order, answer.labels, strict=True):
        hint = answer.location_hints.get(number)
        text = given.blocks[position].text or ""
        rendered.append(render_block(number, text) if hint is None else f"{label(number)} {hint}")
    parts = (render_documents(rendered), answer.order_hint, given.question)
    return "\n\n".join(part for part in parts if part)
