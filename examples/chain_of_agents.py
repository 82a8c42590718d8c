"""A chain of agents reads a long agreement: workers one after another, each with its chunks, then a manager.

    python examples/chain_of_agents.py --base-url http://127.0.0.1:8000/v1 --base-url http://127.0.0.1:8766/v1

The scheme is that of Chain-of-Agents (Zhang et al., NeurIPS 2024): each worker reads a part of a document and what the
worker before it noted, and passes its own notes on; a manager answers from the last notes. Here a worker has one aspect
of the question and reads the chunks that fit it best, so workers' chunks overlap, each time in another order. That is
what an engine's prefix cache cannot use, and what a proxy puts in order. The code knows nothing of a proxy: give it the
engine's address, the proxy's, or both to compare them.
"""

# ruff: noqa: INP001, T201  a script, not a package; it prints

from __future__ import annotations

import argparse
import math
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from agreement import SECTIONS
from openai import OpenAI

QUESTION = "What should the customer know before it signs?"
ASPECTS = (
    "When does the term begin and end, and what notice ends the agreement?",
    "What does the customer pay, when, and how may the yearly fee rise?",
    "What does the supplier owe the customer if the service fails for a month?",
    "How is the customer's personal data kept, and who else may see the data?",
    "Who is liable for a breach, and up to what part of the yearly fee?",
    "What happens to the customer's data and documents at the end of the term?",
    "What may the supplier change, and with what notice to the customer?",
    "What may the customer check within a year, and what notice of a breach does it get?",
)
CHUNKS = 10
"""Chunks that a worker reads."""


@dataclass(frozen=True)
class Step:
    """One agent's request.

    Args:
        agent: who.
        prompt_tokens: as the engine reports them.
        cached_tokens: those of them that it had in its cache.
        said: the answer.
    """

    agent: str
    prompt_tokens: int
    cached_tokens: int
    said: str


def chain(client: OpenAI, model: str, chunks: Mapping[str, str], aspects: Sequence[str] = ASPECTS) -> Iterator[Step]:
    """Let the workers read, one after another, and the manager answer.

    Args:
        client: of the engine, or of a proxy before it.
        model: to be asked.
        chunks: of the document, by title.
        aspects: one for each worker.
    """
    # Another beginning for each run: one that is compared with another must not find that one's prompts in the cache.
    case = secrets.randbelow(9 * 10**8) + 10**8
    system = f"You are one of several readers of an agreement (case {case}). Be short and exact."
    notes = "none"
    for number, aspect in enumerate(aspects, start=1):
        read = fitting(chunks, aspect)[:CHUNKS]
        # The documents first: whatever stands before them has to be equal for them to be found in the cache.
        inside = "\n".join(f'<document id="{title}">\n{chunks[title]}\n</document>' for title in read)
        task = f"Notes so far: {notes}\n\nAdd what the documents say about this, and pass all on: {aspect}"
        step = _asked(client, model, system, f"worker {number}", f"<documents>\n{inside}\n</documents>\n\n{task}")
        notes = step.said
        yield step
    yield _asked(client, model, system, "manager", f"Notes of all readers: {notes}\n\n{QUESTION}")


def fitting(chunks: Mapping[str, str], aspect: str) -> list[str]:
    """The titles of the chunks, best first: by the words that they share with an aspect, rare ones counting more."""
    words = {title: Counter(_words(f"{title} {text}")) for title, text in chunks.items()}
    common = Counter(word for found in words.values() for word in found)

    def score(title: str) -> float:
        shared = [word for word in set(_words(aspect)) if word in words[title]]
        return sum(math.log(1 + len(chunks) / common[word] / 4) for word in shared)

    return sorted(chunks, key=score, reverse=True)


def main() -> None:
    """Run the chain once for each address, and show what each agent's prompt took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", action="append", required=True, help="an engine, or a proxy; several: one by one")
    parser.add_argument("--model", default="any", help="the model's name (default: any)")
    parser.add_argument("--api-key", default="none", help="for the engine (default: none)")
    options = parser.parse_args()
    for url in options.base_url:
        print(f"{url}\n{'agent':<12}{'prompt tokens':>14}{'cached':>9}")
        with OpenAI(base_url=url, api_key=options.api_key) as client:
            steps = []
            for step in chain(client, options.model, SECTIONS):
                steps.append(step)
                print(f"{step.agent:<12}{step.prompt_tokens:>14,}{step.cached_tokens:>9,}", flush=True)
        prompt, cached = (sum(getattr(step, name) for step in steps) for name in ("prompt_tokens", "cached_tokens"))
        print(f"{'all':<12}{prompt:>14,}{cached:>9,}   {cached / prompt:.0%} cached\n{steps[-1].said}")


def _asked(client: OpenAI, model: str, system: str, agent: str, user: str) -> Step:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": user}],
        max_tokens=200,
    )
    usage = answer.usage
    details = usage.prompt_tokens_details if usage else None
    prompt, cached = (usage.prompt_tokens if usage else 0), (details.cached_tokens if details else None)
    return Step(agent, prompt, cached or 0, cast("str", answer.choices[0].message.content) or "")


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{4,}", text.lower())


if __name__ == "__main__":
    main()
