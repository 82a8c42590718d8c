"""For mkdocstrings: the examples of docstrings become code blocks.

A docstring shows what a doctest runs; in Markdown, ``>>>`` would be a quotation.
"""

from __future__ import annotations

from typing import Any

import griffe


class ExamplesAsCode(griffe.Extension):
    """Fences the examples of each docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401  as griffe has it
        """Change a docstring as it is read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    r"""A docstring whose examples stand in fences.

    >>> fenced(">>> 1 + 1\n2\n\nAnd so on.").splitlines()
    ['```pycon', '>>> 1 + 1', '2', '```', '', 'And so on.']
    """
    lines: list[str] = []
    inside = False
    for line in docstring.splitlines():
        if not inside and line.lstrip().startswith(">>> "):
            inside = True
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
        elif inside and not line.strip():
            inside = False
            lines.append(f"{indent}```")
        lines.append(line)
    if inside:
        lines.append(f"{indent}```")
    return "\n".join(lines)
