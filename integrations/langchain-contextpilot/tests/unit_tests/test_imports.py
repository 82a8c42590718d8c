"""What the package offers, and what importing it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from contextpilot_rag.errors import MissingPackage

import langchain_contextpilot


def test_all_names_are_there():
    assert langchain_contextpilot.__all__ == sorted(langchain_contextpilot.__all__)
    for name in langchain_contextpilot.__all__:
        assert getattr(langchain_contextpilot, name).__doc__
    with pytest.raises(AttributeError, match="Postprocessor"):
        _ = langchain_contextpilot.ContextPilotPostprocessor


def test_the_middleware_is_loaded_when_it_is_used():
    program = (
        "import sys, langchain_contextpilot\n"
        "assert not {'langchain', 'langgraph', 'langchain_classic', 'openai'} & set(sys.modules)\n"
        "from langchain_contextpilot import ContextPilotMiddleware\n"
        "assert 'langchain' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] in {"langchain", "langgraph"} or name == "langchain_contextpilot.middleware":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(langchain_contextpilot, "middleware", raising=False)
    monkeypatch.setitem(sys.modules, "langchain", None)
    with pytest.raises(MissingPackage, match=r"needs langchain: pip install 'langchain-contextpilot\[agents\]'"):
        _ = langchain_contextpilot.ContextPilotMiddleware
