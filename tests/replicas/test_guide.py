"""What the guide says of a user of the log is enough for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS

from .log_server import LogServer, User

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "replicas.md"


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
