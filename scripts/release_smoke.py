"""Uses what is installed, as a stranger would: release_smoke.py PART..., run by an environment's own Python.

Run it isolated (``python -I``), in a folder that may be written to, outside of any checkout. Ends with a traceback at
the first thing that is not as it should be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextpilot_rag import ContextPilot

TEXTS = {
    name: f"{name} are borrowed at the gate, and are back by nine. " * 20 for name in ("Bicycles", "Helmets", "Boats")
}
QUESTIONS = {"What is at the gate?": ("Bicycles", "Helmets"), "And what floats?": ("Boats", "Bicycles", "Helmets")}
COMMAND = Path(sys.executable).parent / ("contextpilot-rag.exe" if sys.platform == "win32" else "contextpilot-rag")


def core() -> None:
    """What needs no extra: the package as it is installed, an order, the command line."""
    import contextpilot_rag
    from contextpilot_rag import ContextPilot

    assert Path(sys.prefix) in Path(contextpilot_rag.__file__).parents, contextpilot_rag.__file__
    assert contextpilot_rag.__version__ == version("contextpilot-rag")
    pilot = ContextPilot()
    orders = [order(pilot, asked) for asked in QUESTIONS]
    assert orders == [["Bicycles", "Helmets"], ["Bicycles", "Helmets", "Boats"]], orders
    assert command("--version") == f"contextpilot-rag {contextpilot_rag.__version__}"
    lines = [json.dumps({"qid": asked, "context_ids": names}) for asked, names in QUESTIONS.items()]
    Path("trace.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = {
        row["policy"]: row["hit_ratio"] for row in json.loads(command("replay", "trace.jsonl", "--json"))["policies"]
    }
    assert rows["balanced"] > rows["retrieved"], rows


def missing() -> None:
    """Without extras: whatever needs one says which, in the words for pip."""
    from contextpilot_rag import ContextPilot, Engine
    from contextpilot_rag.errors import MissingPackage
    from contextpilot_rag.retrieval import BM25Retriever
    from contextpilot_rag.testing import FakeEngine
    from contextpilot_rag.types import Block

    engine = Engine("http://127.0.0.1:9", events="tcp://127.0.0.1:9")
    needing: dict[str, Callable[[], object]] = {
        "testing": lambda: FakeEngine().start(),
        "retrieval": lambda: BM25Retriever([Block("a text")]),
        "events": lambda: ContextPilot(engines=[engine]).close(),
        "replicas": lambda: ContextPilot("redis://127.0.0.1:9"),
    }
    for extra, use in needing.items():
        try:
            use()
        except MissingPackage as error:
            said = str(error)
        else:
            said = "nothing is missing"
        assert said.endswith(f": pip install 'contextpilot-rag[{extra}]'"), (extra, said)
    for extra, arguments in {
        "service": ["serve"],
        "proxy": ["proxy", "--upstream", "http://127.0.0.1:9"],
        "demo": ["demo"],
    }.items():
        ended = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
        assert ended.returncode == 1, ended
        assert ended.stderr.strip().endswith(f": pip install 'contextpilot-rag[{extra}]'"), ended


def engine() -> None:
    """A round trip to the FakeEngine, over HTTP, with the client that every engine is spoken to with."""
    from openai import OpenAI

    from contextpilot_rag import ContextPilot
    from contextpilot_rag.testing import FakeEngine

    with FakeEngine() as fake, OpenAI(base_url=fake.base_url, api_key="none") as client:
        pilot = ContextPilot()
        cached = []
        for asked, names in QUESTIONS.items():
            alignment = pilot.align([(name, TEXTS[name]) for name in names], asked)
            response = client.chat.completions.create(
                model="any", messages=alignment.messages(), extra_body=alignment.extra_body
            )
            usage = pilot.observe(alignment, response)
            assert usage is not None
            cached.append(usage.cached_tokens)
        assert cached[0] == 0 < cached[1], cached


def retrieval() -> None:
    """The retrievers of ours."""
    from contextpilot_rag.retrieval import BM25Retriever
    from contextpilot_rag.types import Block

    corpus = [Block(text, id=name) for name, text in TEXTS.items()]
    assert BM25Retriever(corpus).retrieve("boats").blocks[0].id == "Boats"
    assert find_spec("faiss") is not None


def service() -> None:
    """The index as a service: its command, an order from it, its page."""
    from contextpilot_rag import ContextPilot

    with subprocess.Popen([COMMAND, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            address = next(word for word in serving.stdout.readline().split() if word.startswith("http://")).rstrip(
                ".,;"
            )
            with ContextPilot(address, on_error="raise", index_timeout=10) as pilot:
                orders = [order(pilot, asked) for asked in QUESTIONS]
            assert orders[1] == ["Bicycles", "Helmets", "Boats"], orders
            with urllib.request.urlopen(f"{address}/") as page:
                assert b"</html>" in page.read()
        finally:
            serving.terminate()


def langchain() -> None:
    """The line for LangChain, and the extra for agents."""
    from langchain_contextpilot import ContextPilotMiddleware, ContextPilotRetriever
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableLambda

    base = RunnableLambda(lambda asked: [Document(TEXTS[name], id=name) for name in QUESTIONS[asked]])
    retriever = ContextPilotRetriever(base_retriever=base)
    orders = [[document.id for document in retriever.invoke(asked)] for asked in QUESTIONS]
    assert orders[1] == ["Bicycles", "Helmets", "Boats"], orders
    assert ContextPilotMiddleware.__name__ == "ContextPilotMiddleware"


def llamaindex() -> None:
    """The line for LlamaIndex."""
    from llama_index.core import QueryBundle
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor

    postprocessor = ContextPilotPostprocessor()
    for asked, names in QUESTIONS.items():
        nodes = [
            NodeWithScore(node=TextNode(text=TEXTS[name], id_=name), score=1 - place / 9)
            for place, name in enumerate(names)
        ]
        order = [node.node.node_id for node in postprocessor.postprocess_nodes(nodes, QueryBundle(asked))]
    assert order == ["Bicycles", "Helmets", "Boats"], order


def mem0() -> None:
    """The line for Mem0, around something that searches like a `Memory`, which would need an embedder."""
    from mem0_contextpilot import ContextPilotMemory

    class Notes:
        def search(self, query: str, **_: object) -> dict[str, object]:
            return {"results": [{"id": name, "memory": TEXTS[name], "score": 0.5} for name in QUESTIONS[query]]}

    memory = ContextPilotMemory(Notes())
    orders = [
        [found["id"] for found in memory.search(asked, filters={"user_id": "alice"})["results"]] for asked in QUESTIONS
    ]
    assert orders[1] == ["Bicycles", "Helmets", "Boats"], orders
    assert find_spec("mem0") is not None


def order(pilot: ContextPilot, asked: str) -> list[object]:
    """The ids of a question's blocks, as its pilot orders them."""
    alignment = pilot.align([(name, TEXTS[name]) for name in QUESTIONS[asked]], asked)
    return list(alignment.labels.values())


def command(*arguments: str) -> str:
    """What the installed command prints."""
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    for part in sys.argv[1:]:
        globals()[part]()
        print(f"   {part}: as it should be", flush=True)
