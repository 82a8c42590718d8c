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

from .escape import escape
from .hints import label

if TYPE_CHECKING:
    # So that a type checker lets the messages into the openai client; what exists at run time are plain dicts.
    from openai.types.chat import ChatCompletionMessageParam

    Message: TypeAlias = ChatCompletionMessageParam
else:
    Message: TypeAlias = dict[str, Any]

OPEN = "<documents>\n"
BETWEEN = "\n\n"
CLOSE = "\n</documents>"


def render_block(number: int, text: str) -> str:
    """One labelled block.

    >>> render_block(1, "Slices count from zero.")
    '[1] Slices count from zero.'
    """
    return f"{label(number)} {escape(text)}"


def render_user(texts: Sequence[str], echoed: Sequence[int] = (), hint: str | None = None, question: str = "") -> str:
    """The user message.

    Args:
        texts: the blocks' texts in prompt order.
        echoed: places (from 0) of blocks to give once more, under their own labels, after the last.
        hint: the order hint, if any.
        question: what is asked; stands last, as it is.

    >>> print(render_user(["Slices count from zero."], question="Where do slices start?"))
    <documents>
    [1] Slices count from zero.
    </documents>
    <BLANKLINE>
    Where do slices start?
    """
    parts: list[str] = []
    if texts:
        blocks = [render_block(place + 1, text) for place, text in enumerate(texts)]
        blocks.extend(render_block(place + 1, texts[place]) for place in echoed)
        parts.append(OPEN + BETWEEN.join(blocks) + CLOSE)
    if hint:
        parts.append(hint)
    if question:
        parts.append(question)
    return "\n\n".join(parts)


def render_messages(system: str | None, user: str) -> list[Message]:
    """The message list: the system message, if there is one, and the user message.

    >>> [message["role"] for message in render_messages("Be brief.", "Hello")]
    ['system', 'user']
    """
    messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": user})
    return messages
