r"""Messages from ordered blocks. The renderer owns bytes: what is equal so far is rendered equal so far.

    system      constant
    user        <documents>
                [1] first block

                [2] second block
                </documents>

                order hint, only if the order changed
                question

Everything that differs from request to request comes after the last block. Labels count places in the prompt, so the
same blocks in the same places are the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..dedup.chunks import Repeats
from ..dedup.marks import shield
from .escape import escape
from .hints import LOCATION_HINT, label

if TYPE_CHECKING:
    # So that a type checker lets the messages into the openai client; what exists at run time are plain dicts.
    from openai.types.chat import ChatCompletionMessageParam

    Message: TypeAlias = ChatCompletionMessageParam
else:
    Message: TypeAlias = dict[str, Any]

OPEN = "<documents>\n"
BETWEEN = "\n\n"
CLOSE = "\n</documents>"


def render_block(number: int, text: str, *, shielded: bool = False) -> str:
    """One labelled block.

    Args:
        number: its label.
        text: of the block.
        shielded: the text holds location hints of ours, and nothing else that looks like one.

    >>> render_block(1, "Slices count from zero.")
    '[1] Slices count from zero.'
    """
    return f"{label(number)} {escape(text if shielded else shield(text))}"


def render_again(number: int, text: str) -> str:
    """A block that stands in an earlier message: a location hint, or the block if that is no longer.

    >>> render_again(1, "Slices count from zero."), render_again(2, "Sets.")
    ('[1] (given above)', '[2] Sets.')
    """
    escaped = escape(shield(text))
    return f"{label(number)} {LOCATION_HINT if len(LOCATION_HINT) < len(escaped) else escaped}"


def render_documents(blocks: Sequence[str]) -> str:
    """Blocks that are rendered already, in their frame; nothing if there are none."""
    return OPEN + BETWEEN.join(blocks) + CLOSE if blocks else ""


def render_user(
    texts: Sequence[str],
    echoed: Sequence[int] = (),
    hint: str | None = None,
    question: str = "",
    repeats: Repeats | None = None,
) -> str:
    """The user message.

    Args:
        texts: the blocks' texts in prompt order.
        echoed: places (from 0) of blocks to give once more, under their own labels, after the last.
        hint: the order hint, if any.
        question: what is asked; stands last, as it is.
        repeats: replaces parts of blocks that stand in it already.

    >>> print(render_user(["Slices count from zero."], question="Where do slices start?"))
    <documents>
    [1] Slices count from zero.
    </documents>
    <BLANKLINE>
    Where do slices start?
    """
    blocks = []
    for number, text in enumerate(texts, start=1):
        sent = text if repeats is None else repeats.add(label(number), text)
        blocks.append(render_block(number, sent, shielded=repeats is not None))
    blocks.extend(render_block(place + 1, texts[place]) for place in echoed)
    return "\n\n".join(part for part in (render_documents(blocks), hint, question) if part)


def render_messages(system: str | None, user: str) -> list[Message]:
    """The message list: the system message, if there is one, and the user message.

    >>> [message["role"] for message in render_messages("Be brief.", "Hello")]
    ['system', 'user']
    """
    messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": user})
    return messages
