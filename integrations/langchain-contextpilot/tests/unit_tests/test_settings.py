"""Settings: what is misspelt is said, and what is changed later counts."""

from __future__ import annotations

from functools import partial

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import SettingsError
from langchain_hooks import found, returning

from langchain_contextpilot import ContextPilotCompressor, ContextPilotRetriever


def ranks(documents):
    return [one.metadata["contextpilot"]["rank"] for one in documents]


async def test_what_is_changed_later_counts(ask):
    first, second = found("slices", "steps"), found("steps", "slices")
    retriever = ContextPilotRetriever(base_retriever=returning(first, second), namespace="acme")
    await ask(retriever, "1")
    globex = retriever.model_copy(update={"namespace": "globex"})
    as_retrieved = retriever.model_copy(update={"order": "retrieved"})
    for one, expected in [(globex, [0, 1]), (retriever, [1, 0]), (as_retrieved, [0, 1])]:
        assert ranks(await ask(one, "2")) == expected
        assert one.pilot is retriever.pilot
    assert (retriever.namespace, retriever.order) == ("acme", None)
    for namespace, order, expected in [("initech", "retrieved", [0, 1]), ("umbrella", None, [1, 0])]:
        retriever.pilot.align([one.page_content for one in first], namespace=namespace)
        retriever.namespace, retriever.order = namespace, order
        assert ranks(await ask(retriever, "3")) == expected
    retriever.pilot = other = ContextPilot()
    assert ranks(await ask(retriever, "6")) == [0, 1]
    assert other.stats().requests == 1
    for name, wrong in {
        "order": "best",
        "min_gain": 2,
        "k": 0,
        "pilot": "http://",
        "document_prompt": "x",
    }.items():
        before = getattr(retriever, name)
        with pytest.raises(ValueError, match=name if name != "pilot" else "index"):
            setattr(retriever, name, wrong)
        with pytest.raises(ValueError, match=name if name != "pilot" else "index"):
            retriever.model_copy(update={name: wrong})
        assert getattr(retriever, name) is before
    with pytest.raises(SettingsError, match="did you mean 'namespace'"):
        retriever.model_copy(update={"name_space": "x"})


@pytest.mark.parametrize("make", [ContextPilotCompressor, partial(ContextPilotRetriever, base_retriever=returning([]))])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name_space": "x"}, "did you mean 'namespace'"),
        ({"namespce": "x"}, "did you mean 'namespace'"),
        ({"tenant": "x"}, "did you mean 'namespace'"),
        ({"pilots": None}, "did you mean 'pilot'"),
        ({"index": None}, "did you mean 'pilot'"),
        ({"ordr": "balanced"}, "did you mean 'order'"),
        ({"dedup": "off"}, r"dedup is a setting of the pilot: pilot=ContextPilot\(dedup=...\)"),
        ({"zzz": 1}, "settings are .*document_prompt, echo"),
        ({"document_prompt": "{page_content}"}, "not str: PromptTemplate.from_template"),
    ],
)
def test_nothing_that_is_misspelt_passes_in_silence(make, wrong, said):
    with pytest.raises(SettingsError, match=said):
        make(**wrong)


@pytest.mark.parametrize(("wrong", "meant"), [("top_n", "k"), ("top_k", "k"), ("retriever", "base_retriever")])
def test_other_libraries_words(wrong, meant):
    with pytest.raises(SettingsError, match=f"did you mean '{meant}'"):
        ContextPilotRetriever(base_retriever=returning([]), **{wrong: 3})
