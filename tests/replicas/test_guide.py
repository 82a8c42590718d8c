"""The guide's examples, run as they stand there, with a real log; what it says of a user is enough for one."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS
from tests.test_guides import test_all_links_lead_somewhere as check_links

from .log_server import LogServer, User

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "replicas.md"
ADDRESS = "redis://log.example:6379"


def test_all_examples_work_as_they_stand_there(log_server, monkeypatch):
    monkeypatch.delenv("CONTEXTPILOT_INDEX", raising=False)
    text = GUIDE.read_text(encoding="utf-8").replace(ADDRESS, log_server.url)
    names = {"stop_the_log": log_server.kill}
    examples = doctest.DocTestParser().get_doctest(text, names, GUIDE.name, str(GUIDE), 0)
    assert len(examples.examples) >= 20, "the examples are gone"
    runner = doctest.DocTestRunner()
    try:
        runner.run(examples, clear_globs=False)
    finally:
        for pilot in [value for value in examples.globs.values() if isinstance(value, ContextPilot)]:
            pilot.close()
    assert not runner.failures


def test_the_links_lead_somewhere():
    check_links(GUIDE.name)


def test_the_rules_for_a_user_are_those_that_a_replica_needs():
    text = GUIDE.read_text(encoding="utf-8")
    block = re.search(r"```text\n(user .*?)```", text, re.DOTALL)
    assert block is not None
    commands = set(re.findall(r"\+\S+", block[1])) | {"+cluster|slots", "+asking"}
    assert commands == set(ACL_COMMANDS)


@pytest.mark.parametrize("prefix", ["contextpilot", "shop"])
def test_such_a_user_can_do_what_a_pilot_needs(tmp_path, prefix):
    text = GUIDE.read_text(encoding="utf-8")
    block = re.search(r"```text\n(user .*?)```", text, re.DOTALL)
    assert block is not None
    rules = block[1].replace("contextpilot:", f"{prefix}:").split()[4:]
    user = User("replica", "hunter2hunter2", tuple(rules))
    with LogServer(tmp_path, users=[user]) as server:
        address = f"{server.url_of(user)}?prefix={prefix}"
        with ContextPilot(address, salt_secret="s") as one, ContextPilot(address, salt_secret="s") as other:
            one.align(["Slices. " * 40, "Steps. " * 40])
            assert one.replica.drained(20)
            assert other.replica.ready(20)
            one.forget()
            assert one.replica.drained(20)
            assert one.replica.status.joined
            assert one.replica.status.outages == 0
