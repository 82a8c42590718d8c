"""Writes the references of settings, commands and metrics from the code, into docs/reference/.

    python scripts/docs_reference.py

What they say is what docstrings, parsers and expositions say. A test fails where the files are not what this writes.
"""

from __future__ import annotations

import argparse
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from contextpilot_rag import proxy_command, serve_command
from contextpilot_rag.cli import command_parser
from contextpilot_rag.proxy.settings import SECRETS as PROXY_SECRETS
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.settings import option_of as proxy_option
from contextpilot_rag.service.settings import SECRETS as SERVICE_SECRETS
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.settings import option_of as service_option
from contextpilot_rag.settings import ENVIRONMENT_PREFIX, PROXY_PREFIX, SERVICE_PREFIX, RequestOptions, Settings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
WRITTEN = "<!-- Written by scripts/docs_reference.py; do not edit. -->\n"
_NAMES = {bool: "yes or no", int: "integer", float: "number", str: "text", Path: "file"}


def main() -> None:
    """Write all of them."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Each file's text, by its name."""
    written = {"settings.md": settings_page, "cli.md": commands_page, "metrics.md": metrics_page}
    return {name: WRITTEN + "\n".join(lines()) + "\n" for name, lines in written.items()}


# Settings


def settings_page() -> Iterator[str]:
    """Those of pilots, of the service and of the proxy."""
    yield "# Settings"
    yield ""
    yield (
        "Each setting is a keyword, an environment variable, and where it is a server's also an option of its command. "
        "What the code or the command line names wins over the environment; an empty variable counts as not set. A "
        "value that cannot be, or a name that is none, is refused with what is allowed."
    )
    yield ""
    yield from _heading("Of a pilot")
    yield (
        "`ContextPilot(min_gain=0.2)`, `Settings(min_gain=0.2)`, or `CONTEXTPILOT_MIN_GAIN=0.2`. Those that one "
        "request may have of its own, as `pilot.align(..., min_gain=0.2)`, say so."
    )
    yield ""
    requests = frozenset(RequestOptions.__annotations__)
    yield "| setting | values | what it does |"
    yield "|---|---|---|"
    for name, values, said in _settings(Settings):
        belongs = "<br>of a request, too" if name in requests else ""
        names = f"{_anchor(name)}`{name}`<br>`{ENVIRONMENT_PREFIX}{name.upper()}`"
        yield f"| {names} | {values}{belongs} | {said} |"
    yield ""
    yield from _heading("Of the service")
    yield "`contextpilot-rag serve`: its options, or variables. Limits are per tenant unless they say otherwise."
    yield ""
    yield from _of_server(
        ServiceSettings, SERVICE_PREFIX, "serve", serve_command.GROUPS, service_option, SERVICE_SECRETS
    )
    yield from _heading("Of the proxy")
    yield (
        "`contextpilot-rag proxy`: its options, or variables. How prompts are changed is set as for any pilot, by the "
        "variables [above](#of-a-pilot) or by options of the same names."
    )
    yield ""
    yield from _of_server(ProxySettings, PROXY_PREFIX, "proxy", proxy_command.GROUPS, proxy_option, PROXY_SECRETS)


def _of_server(
    kind: type,
    prefix: str,
    command: str,
    groups: Mapping[str, Iterable[str]],
    option_of: Callable[[str], str],
    secrets: frozenset[str],
) -> Iterator[str]:
    rows = {name: (values, said) for name, values, said in _settings(kind)}
    grouped = [*groups.items(), ("only as variables: options can be seen by others", sorted(secrets))]
    for title, names in grouped:
        yield f"### {title[0].upper()}{title[1:]}"
        yield ""
        yield "| setting | values | what it does |"
        yield "|---|---|---|"
        for name in names:
            values, said = rows.pop(name)
            option = "" if name in secrets else f"`{option_of(name)}`<br>"
            yield f"| {_anchor(f'{command}-{name}')}{option}`{prefix}{name.upper()}` | {values} | {said} |"
        yield ""
    if rows:
        raise ValueError(f"settings of `{command}` that no group names: {', '.join(rows)}")


def _settings(kind: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401  any dataclass
    """Of a dataclass of settings: each name, its values and its default, its meaning."""
    hints = get_type_hints(kind, include_extras=True)
    said = _args_of(kind)
    for field in fields(kind):
        values = f"{_values(hints[field.name])}<br>default: {_shown(field.default)}"
        yield field.name, values, said[field.name]


def _args_of(kind: type) -> dict[str, str]:
    """What a docstring says of each argument."""
    text = cleandoc(kind.__doc__ or "")
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)$", text, re.MULTILINE)
    return {name: _cell(_sentence(said)) for name, said in found}


def _sentence(text: str) -> str:
    r"""A text of a docstring in one line, as Markdown.

    >>> _sentence("as ``order``; None:\n no limit.")
    'As `order`; none: no limit.'
    """
    text = re.sub(r"\s+", " ", text).replace("``", "`").replace("None:", "none:")
    return text[0].upper() + text[1:] if text[:1].isalpha() else text


def _values(kind: Any) -> str:  # noqa: ANN401
    """A type in words.

    >>> _values(Annotated[float, Meta(ge=0, le=1)]), _values(Literal["a", "b"] | None)
    ('number, 0 to 1', '`"a"`, `"b"`, or none')
    """
    if get_origin(kind) in {Union, types.UnionType}:
        some = [_values(one) for one in get_args(kind) if one is not type(None)]
        return ", or ".join([*some, "none"] if type(None) in get_args(kind) else some)
    if get_origin(kind) is Literal:
        return ", ".join(f'`"{one}"`' for one in get_args(kind))
    if get_origin(kind) is Annotated:
        of, *metas = get_args(kind)
        return ", ".join([_values(of), *[bound for meta in metas if (bound := _bounds(meta))]])
    return _NAMES[kind]


def _bounds(meta: Meta) -> str:
    if meta.gt is not None:
        return f"more than {_number(meta.gt)}" + (f", {_number(meta.le)} at most" if meta.le is not None else "")
    if meta.ge is not None:
        return f"{_number(meta.ge)} to {_number(meta.le)}" if meta.le is not None else f"{_number(meta.ge)} or more"
    return ""


def _shown(value: object) -> str:
    """A default as one would write it.

    >>> _shown(1_000_000), _shown(True), _shown(None), _shown("")
    ('1,000,000', 'yes', 'none', 'empty')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, str):
        return f'`"{value}"`' if value else "empty"
    if isinstance(value, float) and not value.is_integer():
        return str(value)
    return _number(int(str(value).removesuffix(".0")))


def _number(value: float) -> str:
    """A number with commas where it is long enough to need them.

    >>> _number(8765), _number(86_400)
    ('8765', '86,400')
    """
    return f"{value:,}" if value >= 10_000 else str(value)


# Commands


def commands_page() -> Iterator[str]:
    """Every command, and what it takes."""
    yield "# Command line"
    yield ""
    parser = command_parser()
    yield f"`contextpilot-rag COMMAND ...`, or `python -m contextpilot_rag COMMAND ...`. {parser.description}"
    yield ""
    yield "| command | what it does |"
    yield "|---|---|"
    for name, _, said in _commands(parser):
        yield f"| [`{name}`](#{name}) | {_cell(said)} |"
    yield ""
    for name, command, said in _commands(parser):
        yield from _command(name, command, said, "##")


def _command(name: str, parser: argparse.ArgumentParser, said: str, level: str) -> Iterator[str]:
    yield f"{level} {name}"
    yield ""
    yield _sentence(_cell(parser.description or said)).rstrip(".") + "."
    yield ""
    options = [action for action in parser._actions if not isinstance(action, _NOT_SHOWN)]  # noqa: SLF001  no other way
    if options:
        yield "| argument | what it is |"
        yield "|---|---|"
        for action in options:
            yield f"| {_argument(action)} | {_meaning(action, parser)} |"
        yield ""
    if parser.epilog:
        yield _cell(parser.epilog)
        yield ""
    for act, under, means in _commands(parser):
        yield from _command(f"{name} {act}", under, means, f"{level}#")


_NOT_SHOWN = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)  # noqa: SLF001


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            said = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            for name, command in action.choices.items():
                yield name, command, said.get(name, "")


def _argument(action: argparse.Action) -> str:
    """An option, or an argument by its place.

    >>> parser = argparse.ArgumentParser()
    >>> _argument(parser.add_argument("--port", "-p", metavar="N")), _argument(parser.add_argument("files", nargs="+"))
    ('`--port`, `-p` `N`', '`FILES ...`')
    """
    value = ""
    if action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction):
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        value = metavar if action.choices is None else ", ".join(map(str, action.choices))
        value = f"`{value}{' ...' if action.nargs in {'+', '*'} else ''}`"
    return " ".join(filter(None, [", ".join(f"`{one}`" for one in action.option_strings), value]))


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    values = {name: value for name, value in vars(action).items() if value is not argparse.SUPPRESS}
    said = _cell((action.help or "") % {**values, "prog": parser.prog})
    return f"required; {said}".rstrip("; ") if action.required and (action.option_strings or not said) else said


# Metrics


def metrics_page() -> Iterator[str]:
    """Every family of metrics, of the service and of the proxy."""
    from contextpilot_rag.proxy.counts import Counts
    from contextpilot_rag.proxy.exposition import Collector as ProxyCollector
    from contextpilot_rag.replicas.status import ReplicaStatus
    from contextpilot_rag.service.engine_watch import FollowedFigures
    from contextpilot_rag.service.exposition import PREFIX as OF_SERVICE
    from contextpilot_rag.service.exposition import Collector, Sizes
    from contextpilot_rag.service.followed_exposition import followed_metrics
    from contextpilot_rag.service.metrics import Metrics
    from contextpilot_rag.service.replica_exposition import replica_metrics

    yield "# Metrics"
    yield ""
    yield (
        "What Prometheus reads at the service's `/metrics` and at the proxy's `/contextpilot/metrics`; what matters of "
        "it, and what to do then: [watching it](../operating/metrics.md). Tokens are counters, and never shares: "
        "divide two of them over the time that you ask about. Python's own `process_...` stand beside them."
    )
    yield ""
    yield "## Of the service"
    yield ""
    yield from _families(Collector(Metrics(ServiceSettings()), Sizes()).collect())
    yield (
        "Where it is set to (`--tenant-labels`), those of requests and tokens have the label `tenant`, too: a hash of "
        "the tenant's name."
    )
    yield ""
    yield "### Where it follows engines"
    yield ""
    yield from _families(followed_metrics(FollowedFigures(), OF_SERVICE, named=True))
    yield "### Where it has replicas"
    yield ""
    yield "The same of a proxy with a log begin with `contextpilot_proxy_replica_`."
    yield ""
    yield from _families(replica_metrics(ReplicaStatus(), OF_SERVICE))
    yield "## Of the proxy"
    yield ""
    yield from _families(ProxyCollector(Counts(), ()).collect())


def _families(families: Iterable[Any]) -> Iterator[str]:
    yield "| metric | kind | labels | what it says |"
    yield "|---|---|---|---|"
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family._labelnames)  # noqa: SLF001  no sample has any yet
        yield f"| `{name}` | {family.type} | {labels} | {_cell(family.documentation)} |"
    yield ""


# Markdown


def _heading(title: str) -> Iterator[str]:
    yield f"## {title}"
    yield ""


def _anchor(name: str) -> str:
    return f'<a id="{name}"></a>'


def _cell(text: str) -> str:
    r"""A text that can stand in a table; what looks like a tag is none.

    >>> print(_cell("a | b <c>"))
    a \| b &lt;c>
    """
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
