"""What runs the documentation's blocks sees when one does not do what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextpilot_rag.errors import ContextPilotError
from scripts.docs_pages import BlockFailed, CodeBlock, PythonOfPage, blocks_of, check_imports, run_python

from .calls import CannotWork, check, extras
from .shell import Call, Shell
from .standins import stage_name, staged
from .test_pages import PAGES, parse

FENCE = "`" * 3


def block(text: str, language: str = "sh") -> CodeBlock:
    return CodeBlock(language, text, 1)


def test_blocks_are_found_with_their_lines():
    page = f"# One\n\n{FENCE}sh\ntrue\n{FENCE}\n\n- in a list\n\n  {FENCE}python\n  if x:\n      y\n  {FENCE}\n"
    assert blocks_of(page) == [CodeBlock("sh", "true\n", 4), CodeBlock("python", "if x:\n    y\n", 10)]


def test_a_reason_goes_for_the_next_block_alone():
    reason = "<!-- not run: it takes a GPU -->\n"
    page = f"{reason}{FENCE}sh\none\n{FENCE}\n\n{FENCE}sh\ntwo\n{FENCE}\n\n{reason}{FENCE}sh\nthree\n{FENCE}\n"
    assert [block.not_run for block in blocks_of(page)] == ["it takes a GPU", "", "it takes a GPU"]


def test_python_and_sessions_share_names(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{FENCE}python\none = 1\n{FENCE}\n{FENCE}pycon\n>>> one + two\n3\n\n{FENCE}\n")
    assert run_python(page, {"two": 2}) == 2


def test_python_may_await():
    page = PythonOfPage("page", {})
    page.run(block("import asyncio\nawait asyncio.sleep(0)\ndone = True\n", "python"))
    page.close()
    assert page.names["done"]


def test_what_raises_says_where_it_stands():
    with pytest.raises(ZeroDivisionError) as failed:
        PythonOfPage("page.md", {}).run(CodeBlock("python", "1\n1 / 0\n", 40))
    assert "page.md:41" in str(failed.getrepr(style="short"))


def test_a_session_that_shows_something_else_is_seen():
    with pytest.raises(BlockFailed, match="line 7"):
        PythonOfPage("page.md", {}).run(CodeBlock("pycon", ">>> 1 + 1\n3\n", 7))
    with pytest.raises(BlockFailed, match="without a prompt"):
        PythonOfPage("page.md", {}).run(block("1 + 1\n", "pycon"))


def test_what_does_not_run_is_read():
    check_imports("from contextpilot_rag import ContextPilot\n", 1, "page.md")
    with pytest.raises(BlockFailed, match="no Pilot"):
        check_imports("x = 1\nfrom contextpilot_rag import Pilot\n", 1, "page.md")
    with pytest.raises(SyntaxError):
        check_imports("from\n", 1, "page.md")


def test_addresses_are_replaced_for_the_test():
    page = PythonOfPage("page.md", {}, {"http://10.0.0.1:8000": "http://127.0.0.1:4711"})
    page.run(block("one, other = 'http://10.0.0.1:8000/v1', 'http://10.0.0.1:80001'\n", "python"))
    assert page.names["one"] == "http://127.0.0.1:4711/v1"
    assert page.names["other"] == "http://10.0.0.1:80001"


def test_a_command_that_fails_is_seen(tmp_path):
    shell = Shell(tmp_path)
    assert shell.run(block("x"), "echo one | tr a-z A-Z") == "ONE\n"
    for text in ("false; true", "false | true", "echo $NOBODY", "nobody-has-this-program"):
        with pytest.raises(BlockFailed):
            shell.run(block("x"), text)


def test_a_command_that_prints_something_else_is_seen(tmp_path):
    shell = Shell(tmp_path)
    shell.run_session(block("x", "console"), "$ echo one \\\n  two\none two\n$ seq 3\n1\n...\n3\n")
    for text in ("$ echo one\ntwo\n", "$ echo one\n", "echo one\none\n"):
        with pytest.raises(BlockFailed):
            shell.run_session(block("x", "console"), text)


def test_a_script_that_is_none_is_seen(tmp_path):
    shell = Shell(tmp_path)
    shell.parse(block("x"), "if true; then nobody-has-this-program; fi")
    with pytest.raises(BlockFailed):
        shell.parse(block("x"), "if true; then")


def test_our_own_commands_run_and_servers_are_only_noted(tmp_path):
    shell = Shell(tmp_path)
    trace = "\n".join(json.dumps({"qid": str(one), "context_ids": ["a", "b"]}) for one in range(3))
    (tmp_path / "trace.jsonl").write_text(trace)
    assert json.loads(shell.run(block("x"), "contextpilot-rag replay trace.jsonl --json"))
    assert not shell.run(block("x"), "CONTEXTPILOT_SERVE_PORT=1 contextpilot-rag serve --state 'a b' | cat\n")
    assert list(shell.calls()) == [
        Call("contextpilot-rag", ("serve", "--state", "a b"), {"CONTEXTPILOT_SERVE_PORT": "1"})
    ]


GOOD = (
    ("contextpilot-rag", "serve", "--port", "0"),
    ("contextpilot-rag", "proxy", "--upstream", "http://127.0.0.1:8000"),
    ("contextpilot-rag", "demo", "--help"),
    ("pip", "install", ".[service,proxy]"),
    ("pip", "install", "-U", "contextpilot-rag[events]", "./integrations/mem0-contextpilot", "langchain-openai"),
    ("make", "demo", "ARGS=--limit 3"),
    ("docker", "build", "-f", "deploy/Dockerfile", "."),
    ("kubectl", "apply", "-k", "deploy/kubernetes/overlays/small"),
    ("sudo", "cp", "deploy/contextpilot-rag.service", "/etc"),
    ("python", "examples/ray_vllm.py"),
)
BAD = (
    ("contextpilot-rag", "serve", "--prot", "0"),
    ("contextpilot-rag", "serve", "--port", "seven"),
    ("contextpilot-rag", "proxy"),
    ("pip", "install", ".[servise]"),
    ("pip", "install", "contextpilot"),
    ("pip", "instal", "."),
    ("make", "coffee"),
    ("make", "demo", "ARGS=--limits 3"),
    ("docker", "build", "-f", "Dockerfile", "."),
    ("kubectl", "apply", "-k", "deploy"),
    ("sudo", "/opt/bin/pip", "install", ".[servise]"),
    ("sudo", "cp", "deploy/nothing", "/etc"),
    ("python", "examples/nothing.py"),
    ("rm", "-rf", "."),
)


@pytest.mark.parametrize("words", GOOD)
def test_a_call_that_could_work_passes(words, tmp_path):
    with staged("page.md", [], tmp_path):
        check(Call(words[0], words[1:]), tmp_path)


@pytest.mark.parametrize("words", BAD)
def test_a_call_that_could_not_work_is_seen(words, tmp_path):
    with staged("page.md", [], tmp_path), pytest.raises((CannotWork, ContextPilotError, AssertionError)):
        check(Call(words[0], words[1:]), tmp_path)


def test_a_setting_of_the_environment_is_looked_at(tmp_path):
    with pytest.raises(ContextPilotError, match="PORT"):
        check(Call("contextpilot-rag", ("serve",), {"CONTEXTPILOT_SERVE_PORT": "seven"}), tmp_path)


def test_languages_that_nothing_knows_are_refused():
    parse("page.md", block("{}", "json"))
    parse("page.md", block("a: 1", "yaml"))
    for language in ("", "bash", "py"):
        with pytest.raises(BlockFailed, match="what is a block"):
            parse("page.md", block("x", language))
    with pytest.raises(ValueError, match="Expecting"):
        parse("page.md", block("{", "json"))


def test_an_engine_stands_at_the_address_that_a_page_asks(tmp_path):
    asking = block("x = 'http://10.0.0.1:8000'", "python")
    with staged("page.md", [asking], tmp_path) as stage:
        assert stage.addresses.keys() == {"http://10.0.0.1:8000", "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"}


def test_stages_belong_to_pages():
    stages = {path.stem for path in (Path(__file__).parent / "stages").glob("*.py")}
    assert stages - {"__init__"} <= {stage_name(page) for page in PAGES}


def test_the_extras_are_those_of_the_packages():
    assert {"service", "proxy", "demo"} <= extras()["contextpilot-rag"]
    assert "agents" in extras()["langchain-contextpilot"]
