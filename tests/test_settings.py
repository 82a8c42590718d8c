from __future__ import annotations

from dataclasses import fields

import pytest

from contextpilot_rag import ContextPilot, OrderBudget, Settings
from contextpilot_rag.errors import ContextPilotError, InputError, SettingsError
from contextpilot_rag.settings import PilotOptions, RequestOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"order": "best"}, r"order: .*'best'"),
        ({"min_gain": -0.1}, "min_gain"),
        ({"min_gain": 1.5}, "min_gain"),
        ({"min_gain": "lots"}, "min_gain"),
        ({"min_gain": float("nan")}, "min_gain"),
        ({"protect_top": -1}, "protect_top"),
        ({"protect_top": 1.5}, "protect_top"),
        ({"max_displacement": -1}, "max_displacement"),
        ({"echo": None}, "echo"),
        ({"order_hint": "yes"}, "order_hint"),
        ({"capacity_tokens": 0}, "capacity_tokens"),
        ({"max_blocks": 0}, "max_blocks"),
        ({"max_namespaces": 0}, "max_namespaces"),
        ({"on_error": "ignore"}, "on_error"),
        ({"salt_secret": 5}, r"salt_secret: .*\*\*\*"),
    ],
)
def test_values_out_of_range_are_refused_by_name(given, message):
    with pytest.raises(SettingsError, match=message):
        Settings(**given)


def test_the_switch_for_incidents_overrules_what_the_code_asks_for(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ENABLED", "off")
    pilot = ContextPilot(order="throughput", min_gain=0, order_hint=True)
    pilot.align(["b" * 400, "a" * 400])
    prompt = pilot.align(["a" * 400, "b" * 400], order="balanced")
    assert (prompt.changed, prompt.rule, prompt.order_hint) == (False, "off", None)
    assert [alignment.changed for alignment in pilot.plan([["a", "b"], ["b", "a"]])] == [False, False]


def test_a_misspelt_variable_is_said(caplog):
    Settings.from_env({"CONTEXTPILOT_MIN_GIAN": "0.2", "CONTEXTPILOT_SERVICE": "x", "HOME": "y"})
    assert [record.getMessage() for record in caplog.records] == [
        "environment variable CONTEXTPILOT_MIN_GIAN is no setting; did you mean CONTEXTPILOT_MIN_GAIN?"
    ]


def test_an_unknown_name_is_refused_with_what_was_meant():
    with pytest.raises(SettingsError, match="unknown setting 'protecttop'; did you mean 'protect_top'"):
        Settings.from_env({}, protecttop=1)
    with pytest.raises(SettingsError, match="settings are order, min_gain"):
        Settings().with_(xyz=1)


def test_whole_numbers_are_fine_as_shares():
    assert Settings(min_gain=0).min_gain == 0.0


def test_with_changes_a_copy():
    first = Settings()
    assert first.with_(echo=2).echo == 2
    assert first.echo == 0
    assert first.with_() is first


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ORDER", "retrieved", "retrieved"),
        ("MIN_GAIN", "0.5", 0.5),
        ("MAX_DISPLACEMENT", "3", 3),
        ("MAX_DISPLACEMENT", "none", None),
        ("CAPACITY_TOKENS", "", None),
        ("MIN_GAIN", "", 0.25),
        ("ORDER", " balanced ", "balanced"),
        ("ORDER_HINT", "", False),
        ("ORDER_HINT", "off", False),
        ("ORDER_HINT", "yes", True),
        ("ORDER_HINT", "false", False),
        ("ORDER_HINT", "1", True),
        ("SALT_SECRET", "none", "none"),
        ("SALT_SECRET", "12", "12"),
        ("INDEX", "http://index:8765", "http://index:8765"),
        ("INDEX", "", "embedded"),
    ],
)
def test_reads_the_environment(name, text, value):
    assert getattr(Settings.from_env({f"CONTEXTPILOT_{name}": text}), name.lower()) == value


@pytest.mark.parametrize(
    ("name", "text"), [("MIN_GAIN", "much"), ("PROTECT_TOP", "-1"), ("ORDER", "best"), ("ECHO", "none")]
)
def test_a_bad_variable_is_named(name, text):
    with pytest.raises(SettingsError, match=f"CONTEXTPILOT_{name}"):
        Settings.from_env({f"CONTEXTPILOT_{name}": text})


def test_keywords_override_the_environment():
    assert Settings.from_env({"CONTEXTPILOT_ECHO": "1"}, echo=2).echo == 2


def test_the_secret_is_never_shown():
    settings = Settings(salt_secret="hunter2")
    assert "hunter2" not in repr(settings)
    assert "salt_secret='***'" in repr(settings)
    assert "salt_secret=''" in repr(Settings())


def test_the_budget_is_the_part_the_index_needs():
    assert Settings(min_gain=0.2, protect_top=1, max_displacement=4).budget == OrderBudget("balanced", 0.2, 1, 4)
    assert Settings().budget == OrderBudget()


def test_input_errors_are_value_errors():
    assert issubclass(SettingsError, InputError)
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, ContextPilotError)


def test_an_index_is_no_option_of_a_request():
    with pytest.raises(SettingsError, match="index belongs to the pilot"):
        ContextPilot().align(["x"], index="embedded")


def test_every_setting_is_an_option_and_every_option_a_setting():
    # The index is a pilot's first argument.
    assert set(PilotOptions.__annotations__) == {field.name for field in fields(Settings)} - {"index", "engines"}
    assert set(RequestOptions.__annotations__) < set(PilotOptions.__annotations__)


def test_the_services_variables_are_not_taken_for_misspelt_ones(caplog):
    Settings.from_env({"CONTEXTPILOT_SERVE_HISTORY_REQUESTS": "5"})
    assert not [record for record in caplog.records if "contextpilot" in record.name]
    Settings.from_env({"CONTEXTPILOT_HISTORY_REQUEST": "5"})
    assert "did you mean CONTEXTPILOT_HISTORY_REQUESTS?" in caplog.text


@pytest.mark.parametrize("value", ["order", "best", "title", "sentence", True, False])
def test_an_order_hint_is_a_wording_or_yes_or_no(value):
    assert Settings(order_hint=value).order_hint is value
    text = {True: "on", False: "No"}.get(value, f" {value} ")
    assert Settings.from_env({"CONTEXTPILOT_ORDER_HINT": text}).order_hint == value


def test_any_other_wording_is_refused_with_those_there_are():
    with pytest.raises(SettingsError, match=r"'worst' is none of True, False, 'order', 'best', 'title', 'sentence'"):
        Settings(order_hint="worst")
    with pytest.raises(SettingsError, match="CONTEXTPILOT_ORDER_HINT: 'maybe' is none of True, False, 'order'"):
        Settings.from_env({"CONTEXTPILOT_ORDER_HINT": "maybe"})
    with pytest.raises(SettingsError, match="order_hint: 1 is none of"):
        ContextPilot().align(["x"], order_hint=1)
