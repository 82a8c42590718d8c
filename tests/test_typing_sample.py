"""A user's own code, as a type checker sees it: mypy checks this file strictly, and pytest runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextpilot_rag import Block, ContextPilot, Namespace, Usage

if TYPE_CHECKING:
    from openai import OpenAI


def ask(client: OpenAI, pilot: ContextPilot, question: str, blocks: list[Block]) -> str | None:
    alignment = pilot.align(blocks, question)
    response = client.chat.completions.create(
        model="any",
        messages=alignment.messages(system="Answer from the documents."),
        extra_body=alignment.extra_body,
    )
    usage: Usage | None = pilot.observe(alignment, response)
    return None if usage is None else response.choices[0].message.content


def test_the_sample_runs() -> None:
    pilot = ContextPilot(namespace=Namespace(tenant="acme"), min_gain=0.2)
    labels: dict[int, object] = dict(pilot.align([("a", "text")], "?").labels)
    assert labels == {1: "a"}
