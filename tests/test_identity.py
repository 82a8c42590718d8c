from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot, Namespace, Settings, identity
from contextpilot_rag.identity import block_key, cache_salt
from contextpilot_rag.proxy.life import assemble
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service.secret import secret_of
from contextpilot_rag.service.settings import ServiceSettings
from tests.strategies import texts

fields = st.text(max_size=6)


@given(texts, texts)
def test_equal_keys_mean_equal_texts(one, other):
    assert (block_key(one) == block_key(other)) == (one == other)


@given(st.builds(Namespace, fields, fields, fields), st.builds(Namespace, fields, fields, fields))
def test_different_namespaces_have_different_salts(one, other):
    assert (cache_salt(one) == cache_salt(other)) == (one == other)


def test_fields_cannot_run_into_each_other():
    assert cache_salt(Namespace("org_1", "2345")) != cache_salt(Namespace("org_12345"))
    assert cache_salt(Namespace("a")) != cache_salt(Namespace("", "a"))


def test_a_salt_is_short_urlsafe_and_depends_on_the_secret():
    salt = cache_salt(Namespace("acme"), "s3cret")
    assert salt is not None
    assert len(salt) <= 128
    assert salt.replace("-", "").replace("_", "").isalnum()
    assert salt != cache_salt(Namespace("acme"))


def test_keys_and_salts_are_equal_in_every_process():
    code = (
        "from contextpilot_rag.identity import *; from contextpilot_rag import Namespace;"
        "print(block_key('é\\n').hex(), cache_salt(Namespace('acme', 'm'), 'k'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.split()[0]
        for seed in ("1", "2")
    }
    assert outputs == {block_key("é\n").hex()}
    # pinned, so that a change that would make every cache cold at once cannot go unnoticed
    assert block_key("").hex() == "cae66941d9efbd404e4d88758ea67670"
    assert cache_salt(Namespace("acme")) == "LOZbKdlS_XiQ9YOvHeGXiNe6sdV5jYaiNMWXPahy4P8"


@pytest.fixture
def unsaid(monkeypatch):
    monkeypatch.setattr(identity, "_said", threading.Event())


def warnings_of(caplog):
    return [one.getMessage() for one in caplog.records if "found by trying" in one.getMessage()]


@pytest.mark.parametrize(
    "start",
    [
        lambda secret: ContextPilot(salt_secret=secret),
        lambda secret: secret_of(ServiceSettings(salt_secret=secret)),
        lambda secret: assemble(ProxySettings(upstreams="http://127.0.0.1:1", salt_secret=secret), Settings()),
    ],
    ids=["pilot", "service", "proxy"],
)
def test_a_short_secret_is_warned_of_once_and_never_shown(start, unsaid, caplog):
    for secret in ("hunter2", "another"):
        start(secret)
    (said,) = warnings_of(caplog)
    assert "7 characters" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("secret", ["", "x" * identity.GOOD_SECRET])
def test_a_good_secret_and_none_are_not_warned_of(secret, unsaid, caplog):
    ContextPilot(salt_secret=secret)
    assert not warnings_of(caplog)
