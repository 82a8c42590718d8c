"""The text-QA template: documents first, everything that varies after them."""

from __future__ import annotations

from contextpilot_rag.prompt.render import CLOSE, OPEN
from llama_index.core.prompts import ChatPromptTemplate

SYSTEM_PROMPT = (
    "You answer questions. Use only the documents given with each, cite them by their labels, such as [1], be brief, "
    "and say so if they do not help."
)


def order_hint_part(**values: object) -> str:
    """What stands for ``{order_hint}``: the hint in a paragraph of its own, or nothing where nobody gives one.

    >>> order_hint_part(query_str="Why?")
    ''
    """
    hint = values.get("order_hint")
    return f"\n\n{hint}" if isinstance(hint, str) and hint else ""


CONTEXTPILOT_TEXT_QA = ChatPromptTemplate.from_messages(
    [("system", SYSTEM_PROMPT), ("user", OPEN + "{context_str}" + CLOSE + "{order_hint}\n\n{query_str}")],
    function_mappings={"order_hint": order_hint_part},
)
"""Documents, order hint, question: byte for byte the prompt that contextpilot-rag itself renders. Works with every
synthesizer that takes a text-QA template; those that know of no order hint give none."""
