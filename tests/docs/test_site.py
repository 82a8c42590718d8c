"""The site's pages and links, without the program that builds it: `make docs` does the rest, strictly."""

from __future__ import annotations

import doctest
import importlib
import re
from importlib import import_module

import pytest

from scripts import docs_site

from .shell import ROOT

PAGES = [*docs_site.outside(), *(f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md"))]
OURS = ("docs_pages", "docs_reference", "docs_site")


def links(text: str) -> list[str]:
    found: list[str] = []
    docs_site.with_links(text, lambda target: found.append(target) or target)  # type: ignore[func-returns-value]
    return found


def anchors(text: str) -> set[str]:
    """Those of headings, as GitHub and the site make them, and those that stand there."""
    code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings} | set(
        re.findall(r'id="([^"]+)"', text)
    )


@pytest.mark.parametrize("page", PAGES)
def test_all_links_lead_somewhere(page):
    text = docs_site.page_text(page)
    for link in links(text):
        if ":" in link:
            assert link.startswith(("https://", "http://", "mailto:")), link
            continue
        file, _, anchor = link.partition("#")
        there = docs_site.resolved(page, file) if file else page
        assert there is not None, f"{page}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(docs_site.page_text(there)), f"{page}: {link} leads to no heading"


@pytest.mark.parametrize("page", PAGES)
def test_lists_are_lists_on_the_site_too(page):
    """GitHub begins a list right below a line of text; the site's Markdown wants an empty line between."""
    text = re.sub(r"^ *```.*?^ *```$", "", docs_site.page_text(page), flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"^(?![-*+] |\d+\. |[|#> ]).+\n(?:- |1\. ).*", text, re.MULTILINE)
    assert not re.findall(r"^(?: {2,3}|\t)(?:- |\d\. ).*", text, re.MULTILINE), "an inner list takes four blanks"


def test_links_that_lead_nowhere_are_seen():
    assert docs_site.resolved("docs/service.md", "nowhere.md") is None
    assert links("[a](b.md#c), `[d](e)`, ![f](g.png)\n```\n[h](i)\n```\n") == ["b.md#c", "g.png"]
    assert anchors('# One & two\n<a id="x"></a>\n```\n# three\n```\n') == {"one--two", "x"}


def test_links_between_pages_lead_back_to_the_same_file():
    assert (
        docs_site.relinked("concepts/tails.md", "[a](../../benchmarks/README.md#b)") == "[a](../benchmarks/README.md#b)"
    )
    assert docs_site.relinked("CONTRIBUTING.md", "[a](docs/engines.md), [b](README.md#c)") == (
        "[a](engines.md), [b](overview.md#c)"
    )
    assert docs_site.relinked("overview.md", "[a](notebooks/mem0.ipynb)") == "[a](notebooks/mem0.md)"


def test_every_page_is_in_the_navigation():
    config = import_module("yaml").safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        return [page for one in (entry if isinstance(entry, list) else entry.values()) for page in pages(one)]

    named = pages(config["nav"])
    assert len(named) == len(set(named))
    assert set(named) == {docs_site.place_of(page) for page in PAGES}


@pytest.mark.parametrize("name", OURS)
def test_the_examples_in_the_scripts_work(name):
    failed, tried = doctest.testmod(importlib.import_module(f"scripts.{name}"))
    assert tried
    assert not failed


def test_a_page_that_loads_something_from_elsewhere_is_seen():
    assert docs_site.loads_from_elsewhere('<script src="https://cdn.example/x.js"></script>')
    assert docs_site.loads_from_elsewhere("<link rel=stylesheet href=//fonts.example/x.css>")
    assert not docs_site.loads_from_elsewhere('<a href="https://example.org">there</a><img src="images/a.png">')


def test_notebooks_are_shown_with_what_they_printed_and_plotted():
    for page in [page for page in PAGES if page.endswith(".ipynb")]:
        text = docs_site.page_text(page)
        assert "```text\n" in text, page
        assert 'src="data:image/png;base64,' in text, page
        assert text.count("```") % 2 == 0
