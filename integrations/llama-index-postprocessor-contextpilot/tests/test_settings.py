"""Settings: what is no setting is refused, and a changed copy has what it was changed to."""

from __future__ import annotations

import copy

import pytest
from contextpilot_rag import AsyncContextPilot, ContextPilot
from contextpilot_rag.errors import SettingsError
from li_support import Listed, pick
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import MockLLM

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine, ContextPilotPostprocessor

MISSPELT = [
    ({"name_space": "acme"}, "did you mean 'namespace'"),
    ({"namespce": "acme"}, "did you mean 'namespace'"),
    ({"Namespace": "acme"}, "did you mean 'namespace'"),
    ({"pilots": None}, "did you mean 'pilot'"),
    ({"mingain": 0.1}, "did you mean 'min_gain'"),
    ({"hide_metadata": None}, "did you mean 'hidden_metadata'"),
    ({"dedup": "off"}, "one of the pilot's: pilot=ContextPilot(dedup=...)"),
    ({"capacity_token": 1}, "one of the pilot's: pilot=ContextPilot(capacity_tokens=...)"),
    ({"xyz": 1}, "settings are "),
]


def chat_engine(**options):
    return ContextPilotChatEngine.from_defaults(Listed(pick(0)), llm=MockLLM(), **options)


@pytest.mark.parametrize("make", [ContextPilotPostprocessor, chat_engine])
@pytest.mark.parametrize(("wrong", "said"), MISSPELT)
def test_what_is_no_setting_is_refused(make, wrong, said):
    with pytest.raises(SettingsError) as refused:
        make(**wrong)
    assert said in str(refused.value)
    assert repr(next(iter(wrong))) in str(refused.value)


def test_each_knows_its_own():
    with pytest.raises(SettingsError, match="did you mean 'namespace_key'"):
        ContextPilotPostprocessor(namespacekey="tenant")
    with pytest.raises(SettingsError, match="did you mean 'conversation_id'"):
        chat_engine(conversationid="c")
    with pytest.raises(SettingsError, match="no setting 'annotation'"):
        chat_engine(annotation="node")
    with pytest.raises(SettingsError, match="did you mean 'system_prompt'"):
        ContextPilotChatEngine(Listed(), MockLLM(), chat_engine()._memory, system_promt="x")


def test_what_the_framework_adds_is_known():
    manager = CallbackManager([])
    postprocessor = ContextPilotPostprocessor(callback_manager=manager, class_name="ContextPilotPostprocessor")
    assert postprocessor.callback_manager is manager
    assert ContextPilotPostprocessor.from_dict(postprocessor.to_dict()).to_dict() == postprocessor.to_dict()
    assert ContextPilotPostprocessor.model_validate(postprocessor.to_dict()).to_dict() == postprocessor.to_dict()
    with pytest.raises(SettingsError, match="did you mean 'namespace'"):
        ContextPilotPostprocessor.from_dict({"name_space": "acme"})


@pytest.mark.parametrize("wrong", ["score", b"score", 7, ["score", 7]])
@pytest.mark.parametrize("make", [ContextPilotPostprocessor, chat_engine])
def test_patterns_are_a_sequence_of_texts(make, wrong):
    with pytest.raises(SettingsError, match="hidden_metadata"):
        make(hidden_metadata=wrong)


@pytest.mark.parametrize("deep", [False, True])
def test_a_changed_copy_has_what_it_was_changed_to(deep):
    pilot = ContextPilot()
    original = ContextPilotPostprocessor(pilot, namespace="acme", callback_manager=CallbackManager([]))
    original.postprocess_nodes(pick(0, 1, 2))
    changed = original.model_copy(update={"namespace": "other", "min_gain": 0.3}, deep=deep)
    assert changed.extra_body() == pilot.extra_body("other") != original.extra_body()
    assert [node.node_id for node in changed.postprocess_nodes(pick(2, 1, 0))] == ["n2", "n1", "n0"]
    assert [node.node_id for node in original.postprocess_nodes(pick(2, 1, 0))] == ["n0", "n1", "n2"]
    assert changed.adapter.pilot is pilot
    assert changed.callback_manager is original.callback_manager
    assert (changed.namespace, changed.min_gain, changed.pilot) == ("other", 0.3, None)
    assert original.model_copy(deep=deep).adapter is original.adapter
    assert copy.copy(original).adapter is original.adapter


def test_a_copy_can_have_another_pilot_but_no_wrong_settings():
    original = ContextPilotPostprocessor(AsyncContextPilot())
    other = ContextPilot()
    assert original.model_copy(update={"order": "throughput"}).adapter.pilot is original.adapter.pilot
    assert original.model_copy(update={"pilot": other}).adapter.pilot is other
    for wrong in ({"name_space": "z"}, {"min_gain": 2}, {"namespace": "z", "namespace_key": "tenant"}):
        with pytest.raises(SettingsError):
            original.model_copy(update=wrong)
