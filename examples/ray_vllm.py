"""A batch of any length, planned on Ray and answered there: one vLLM engine for each shard.

    python examples/ray_vllm.py contexts.jsonl --model Qwen/Qwen3-8B --engines 4 --out answers
    python examples/ray_vllm.py contexts.jsonl --base-url http://one:8000/v1 --base-url http://two:8000/v1 --out answers

Each line of the file has a ``qid``, a ``question``, and what a retriever found for it, best first: ``context_ids`` and
their ``texts``. With --model, Ray starts the engines (`ray.data.llm`, which needs ``pip install 'ray[llm]'``); with
--base-url they run already, and whatever speaks OpenAI's API will do. Without a file, the questions are about the
agreement beside this program. Answers are written as JSON lines, in the order of sending.
"""

# ruff: noqa: INP001, T201  a script, not a package; it prints

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import ray.data
from agreement import SECTIONS

from contextpilot_rag import ContextPilot, Usage
from contextpilot_rag.batches import ShardedPlan, plan_on_ray, planned_prompts

SYSTEM = "Answer from the documents, in one sentence."
ANSWER_TOKENS = 64
SENT_AT_ONCE = 256
"""Rows that a stage is given at a time."""

Stage = Callable[[ray.data.Dataset], ray.data.Dataset]


def planned(contexts: ray.data.Dataset, engines: int) -> ShardedPlan:
    """The batch in shards. Lengths are estimates; a tokenizer's would be better."""

    def with_lengths(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "tokens": [1 + len(text) // 4 for text in row["texts"]]}

    return plan_on_ray(contexts.map(with_lengths), engines, order="throughput")


def blocks(row: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """A row's blocks as they were retrieved."""
    return list(zip(map(str, row["context_ids"]), row["texts"], strict=True))


def engine_in_ray(model: str, cpus: int = 0, **engine_kwargs: Any) -> Stage:  # noqa: ANN401  vLLM's
    """A stage that is a vLLM engine of its own, on a GPU, or on so many CPUs.

    Args:
        model: a name, or a folder.
        cpus: 0: a GPU.
        **engine_kwargs: of vLLM.
    """
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    def asked(row: dict[str, Any]) -> dict[str, Any]:
        (plan,) = planned_prompts([row], ContextPilot(), blocks)
        sampling = {"temperature": 0.0, "max_tokens": ANSWER_TOKENS}
        return {"messages": plan[0].messages(SYSTEM), "sampling_params": sampling, **row}

    def answered(row: dict[str, Any]) -> dict[str, Any]:
        kept = {name: row[name] for name in ("qid", "shard", "position", "predicted_cached_tokens")}
        return {**kept, "answer": row["generated_text"], "prompt_tokens": row["num_input_tokens"]}

    little = {"num_cpus": 0.1}  # what stages beside the engine need
    beside = {"enabled": True, **little}
    place: dict[str, Any] = {"placement_group_config": {"bundles": [{"CPU": cpus}]}} if cpus else {}
    config = vLLMEngineProcessorConfig(
        model_source=model,
        engine_kwargs={"enable_prefix_caching": True, **engine_kwargs},
        batch_size=SENT_AT_ONCE,
        max_concurrent_batches=2,  # enough to keep the engine busy, and no more, so that prompts arrive in order
        concurrency=1,  # one engine for a shard: each has a cache of its own
        chat_template_stage=beside,
        tokenize_stage=beside,
        detokenize_stage=beside,
        **place,
    )
    stage: Stage = build_processor(config, asked, answered, preprocess_map_kwargs=little, postprocess_map_kwargs=little)
    return stage


def engine_at(url: str) -> Stage:
    """A stage that sends to an engine: each prompt after the one that computes its prefix."""

    def stage(rows: ray.data.Dataset) -> ray.data.Dataset:
        one = ray.data.ActorPoolStrategy(size=1)
        return rows.map_batches(
            _Sender, fn_constructor_args=(url,), batch_size=SENT_AT_ONCE, batch_format="pyarrow", compute=one
        )

    return stage


class _Sender:
    """Sends rows as prompts, and gives what was answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pilot = ContextPilot()

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        rows = table.to_pylist()
        (plan,) = planned_prompts(rows, self._pilot, blocks, piece=len(rows))
        report = asyncio.run(self._pilot.run(plan, self._url, system=SYSTEM, max_tokens=ANSWER_TOKENS))
        found = []
        for row, result in zip(rows, report, strict=True):
            kept = {name: row[name] for name in ("qid", "shard", "position", "predicted_cached_tokens")}
            used = result.usage or Usage()  # nothing was reported
            counts = {"prompt_tokens": used.prompt_tokens, "cached_tokens": used.cached_tokens}
            found.append({**kept, "answer": result.text, "error": result.error, **counts})
        return pyarrow.Table.from_pylist(found)


def answer(plan: ShardedPlan, stages: Sequence[Stage], folder: Path) -> None:
    """Have each shard answered by its own engine, all at the same time, and write what they say."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(number: int) -> None:
        rows = stages[number](plan.shards[number].to_dataset())
        with (folder / f"shard-{number}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows.iter_rows():
                file.write(json.dumps(row) + "\n")

    with ThreadPoolExecutor(len(stages)) as threads:
        list(threads.map(one, range(len(stages))))


def about_the_agreement() -> list[dict[str, Any]]:
    """Some questions, and sections of the agreement that share words with each."""
    words = {title: set(f"{title} {text}".lower().replace(".", " ").split()) for title, text in SECTIONS.items()}
    rows = []
    for first in SECTIONS:
        for second in SECTIONS:
            wanted = words[first] | words[second]
            shared = {title: len(wanted & found) / len(found) for title, found in words.items()}
            best = sorted(SECTIONS, key=shared.__getitem__, reverse=True)[:8]
            question = f"What do {first} and {second} have to do with each other?"
            rows.append(
                {
                    "qid": f"{first} / {second}",
                    "question": question,
                    "context_ids": best,
                    "texts": [SECTIONS[title] for title in best],
                }
            )
    return rows


def main() -> None:
    """Plan, answer, and say what was predicted and found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contexts", nargs="?", help="JSON lines; without: about the agreement")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the answers")
    parser.add_argument("--base-url", action="append", help="an engine that runs; several: a shard for each")
    parser.add_argument("--model", help="without --base-url: what vLLM loads in Ray")
    parser.add_argument("--engines", type=int, default=1, help="with --model: how many (default: 1)")
    parser.add_argument("--cpus", type=int, default=0, help="with --model: CPUs of an engine (default: a GPU)")
    parser.add_argument("--ray", default="local", help="the cluster's address (default: one of this machine alone)")
    options = parser.parse_args()
    if bool(options.model) == bool(options.base_url):
        parser.error("give --model, or --base-url for each engine")
    ray.init(address=options.ray, log_to_driver=False)
    contexts = ray.data.read_json(options.contexts) if options.contexts else ray.data.from_items(about_the_agreement())
    if options.base_url:
        stages = [engine_at(url) for url in options.base_url]
    else:
        stages = [engine_in_ray(options.model, options.cpus) for _ in range(options.engines)]
    plan = planned(contexts, len(stages))
    print(plan.explain())
    answer(plan, stages, options.out)
    rows = [
        json.loads(line) for path in sorted(options.out.glob("shard-*.jsonl")) for line in path.open(encoding="utf-8")
    ]
    prompt, cached = (sum(row.get(name) or 0 for row in rows) for name in ("prompt_tokens", "cached_tokens"))
    print(f"{len(rows):,} answers in {options.out}; {prompt:,} prompt tokens, {cached:,} of them reported as cached")


if __name__ == "__main__":
    main()
