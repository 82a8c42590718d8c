"""MkDocs' hook: pages that stand outside ``docs/`` come onto the site, links between all of them lead somewhere.

A link is written for whoever reads the repository: relative to its file, also out of ``docs/``. Here it becomes one
between pages. A file that is no page (a dashboard, an example) comes onto the site as it is. Notebooks become pages of
their text, their code, and the outputs that are stored in them.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs/"
OUTSIDE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/*.md",
    "deploy/README.md",
    "integrations/README.md",
    "integrations/*/README.md",
    "notebooks/README.md",
    "notebooks/*.ipynb",
)
README = "overview.md"  # beside index.md a README.md would be another home page
_CODE = re.compile(r"(^ *(```+|~~~+).*?^ *\2 *$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()([^)\s]+)(?=[)\s])")
_ASSET = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401  MkDocs has no stable names for them
    """Add what stands outside, and the files that links of pages lead to."""
    from mkdocs.structure.files import File

    pages = {
        f"{DOCS}{file.src_uri}": Path(file.abs_src_path).read_text("utf-8") for file in files.documentation_pages()
    }
    for path in outside():
        pages[path] = page_text(path)
        files.append(File.generated(config, place_of(path), content=pages[path]))
    for path, text in pages.items():
        for target in files_linked(path, text):
            if files.get_file_from_path(place_of(target)) is None:
                files.append(File.generated(config, place_of(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Links as they are between pages of the site."""
    return relinked(page.file.src_uri, markdown)


def on_post_build(config: Any) -> None:  # noqa: ANN401
    """No page may load anything from elsewhere: whoever reads it tells nobody, and it works without a network."""
    from mkdocs.exceptions import PluginError

    for page in Path(config.site_dir).rglob("*.html"):
        found = loads_from_elsewhere(page.read_text("utf-8"))
        if found:
            raise PluginError(f"{page} loads something from elsewhere: {found}")


def loads_from_elsewhere(page: str) -> str:
    """What a page of HTML would have a browser load from elsewhere; empty: nothing."""
    found = _ASSET.search(page)
    return found[0] if found else ""


def outside() -> list[str]:
    """The pages that do not stand in ``docs/``."""
    return sorted(path.relative_to(ROOT).as_posix() for pattern in OUTSIDE for path in ROOT.glob(pattern))


def place_of(path: str) -> str:
    """Where a file of the repository stands on the site.

    >>> place_of("docs/service.md"), place_of("CONTRIBUTING.md"), place_of("notebooks/mem0.ipynb")
    ('service.md', 'CONTRIBUTING.md', 'notebooks/mem0.md')
    """
    if path.endswith(".ipynb"):
        return f"{path.removesuffix('.ipynb')}.md"
    return README if path == "README.md" else path.removeprefix(DOCS)


def path_of(place: str) -> str:
    """The file of the repository that became a page.

    >>> path_of("service.md"), path_of("CONTRIBUTING.md"), path_of("notebooks/mem0.md")
    ('docs/service.md', 'CONTRIBUTING.md', 'notebooks/mem0.ipynb')
    """
    if place == README:
        return "README.md"
    if (ROOT / DOCS / place).exists():
        return f"{DOCS}{place}"
    notebook = f"{place.removesuffix('.md')}.ipynb"
    return notebook if (ROOT / notebook).exists() else place


def page_text(path: str) -> str:
    """A file as Markdown."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return notebook_text(text) if path.endswith(".ipynb") else text


def notebook_text(notebook: str) -> str:
    """A notebook's cells, one after the other.

    >>> print(notebook_text('{"cells": [{"cell_type": "code", "source": ["1 + 1"]}]}'))
    ```python
    1 + 1
    ```
    """
    parts = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"]).strip("\n")
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += map(_output_text, cell.get("outputs", ()))
    return "\n\n".join(filter(None, parts))


def _output_text(output: dict[str, Any]) -> str:
    """What a cell printed or plotted; a picture is part of its page."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="what this cell plots" src="data:image/png;base64,{picture}">'
    printed = "".join(output.get("text", data.get("text/plain", ""))).strip("\n")
    return f"```text\n{printed}\n```" if printed else ""


def files_linked(path: str, text: str) -> list[str]:
    """The files outside ``docs/`` that a page links to and that are no pages."""
    found = []

    def note(target: str) -> str:
        there = resolved(path, target.partition("#")[0])
        if there and not there.endswith((".md", ".ipynb")) and not there.startswith(DOCS) and (ROOT / there).is_file():
            found.append(there)
        return target

    with_links(text, note)
    return found


def relinked(place: str, text: str) -> str:
    """A page's text with its links as they are on the site.

    >>> relinked("service.md", "[Figures](../benchmarks/README.md#time), [proxy](proxy.md), `[x](../y)`")
    '[Figures](benchmarks/README.md#time), [proxy](proxy.md), `[x](../y)`'
    """
    path = path_of(place)

    def moved(target: str) -> str:
        file, mark, anchor = target.partition("#")
        there = resolved(path, file)
        if there is None:
            return target
        return posixpath.relpath(place_of(there), posixpath.dirname(place) or ".") + mark + anchor

    return with_links(text, moved)


def resolved(path: str, target: str) -> str | None:
    """The file of the repository that a relative link leads to; a folder stands for its README. None: none.

    >>> resolved("docs/service.md", "../deploy"), resolved("docs/service.md", "https://example.org")
    ('deploy/README.md', None)
    """
    if not target or ":" in target or target.startswith("/"):
        return None
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if (ROOT / there).is_dir():
        there = f"{there}/README.md"
    return there if (ROOT / there).exists() else None


def with_links(text: str, change: Callable[[str], str]) -> str:
    """A text with each link's target changed; what is code stays."""
    parts = _CODE.split(text)
    for number in range(0, len(parts), 3):  # between: code, and its fence
        parts[number] = _LINK.sub(lambda found: found[1] + change(found[2]), parts[number])
    return "".join(part for number, part in enumerate(parts) if number % 3 != 2)
