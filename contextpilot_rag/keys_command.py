"""``contextpilot-rag keys``: the service's file of API keys, made and changed. A running service sees it."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from .errors import SettingsError
from .types import short

ENVIRONMENT = "CONTEXTPILOT_SERVE_KEYS"
LOG_FORMAT = "CONTEXTPILOT_SERVE_LOG_FORMAT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.description = (
        "Makes and changes the service's file of API keys. Only hashes of the keys stand in it: a key is shown once, "
        "when it is made. A running service sees changes by itself, within seconds."
    )
    acts = parser.add_subparsers(required=True, metavar="ACT", dest="act")
    add = acts.add_parser("add", help="make a key, for a new tenant or one more for an old one; prints it")
    add.add_argument("--tenant", required=True, metavar="NAME", help="whose key it is")
    add.add_argument(
        "--operator",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the tenant, with all its keys, may (or may no longer) see all tenants' figures",
    )
    add.add_argument("--rate", type=float, metavar="N", help="the tenant's requests a second; 0: no limit")
    add.add_argument("--note", default="", metavar="TEXT", help="stands with the key")
    acts.add_parser("list", help="tenants, ids of keys and when they were made")
    remove = acts.add_parser("remove", help="a key is refused from now on; or a tenant goes with all that it has")
    which = remove.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help="of the key, as listed")
    which.add_argument("--tenant", metavar="NAME", help="remove the tenant; the service forgets what it knows of it")
    share = acts.add_parser("share", help="let tenants share what is cached of a corpus")
    share.add_argument("corpus", metavar="CORPUS")
    share.add_argument("tenants", nargs="+", metavar="TENANT")
    unshare = acts.add_parser("unshare", help="let a corpus be shared no longer, by these tenants or by any")
    unshare.add_argument("corpus", metavar="CORPUS")
    unshare.add_argument("tenants", nargs="*", metavar="TENANT", help="default: all")
    for act in acts.choices.values():
        act.add_argument("--file", type=Path, metavar="FILE", help=f"default: {ENVIRONMENT}")


def run(options: argparse.Namespace, told: Callable[[str], None]) -> int:
    """Run the command. What was changed is audited, to the error stream.

    Args:
        options: its arguments.
        told: prints a line, and all of it when it returns.

    Raises:
        SettingsError: the file cannot be used, or does not have what is named.
        OSError: nothing can be printed; no key was added.
    """
    given = options.file or os.environ.get(ENVIRONMENT)
    if not given:
        raise SettingsError(f"say which file of keys: --file FILE, or {ENVIRONMENT}")
    _formatter()  # one that is not to be had is said before anything is changed
    if options.act == "add":
        _add(options, Path(given), told)
        return 0
    acts: dict[str, Callable[[argparse.Namespace, Path], str]] = {
        "list": _list,
        "remove": _remove,
        "share": _share,
        "unshare": _unshare,
    }
    told(acts[options.act](options, Path(given)))
    return 0


def _add(options: argparse.Namespace, path: Path, told: Callable[[str], None]) -> None:
    from .service.keyfile import TenantEntry, changing, new_key

    if options.rate is not None and not 0 <= options.rate < math.inf:
        raise SettingsError(f"--rate must be a number of requests a second, 0 or more, not {options.rate}")
    key, entry = new_key(options.note)
    with changing(path, create=True, first=lambda: told(key)) as content:  # one that nobody saw is none
        tenant = content.tenants.setdefault(options.tenant, TenantEntry())
        tenant.keys.append(entry)
        if options.operator is not None:
            tenant.operator = options.operator
        if options.rate is not None:
            tenant.rate = options.rate
        operator, rate = tenant.operator, tenant.rate
    _audit("key added", path, tenant=options.tenant, key=entry.id, operator=operator, rate=rate)


def _list(options: argparse.Namespace, path: Path) -> str:  # noqa: ARG001
    from .service.keyfile import read

    content, _ = read(path)
    lines = []
    for name, tenant in sorted(content.tenants.items()):
        rate = "" if tenant.rate is None else f", {tenant.rate:g} requests/s" if tenant.rate else ", no limit"
        lines.append(f"{name}{' (operator)' if tenant.operator else ''}{rate}{'' if tenant.keys else ': no keys'}")
        for key in tenant.keys:
            made = "" if key.created is None else key.created.isoformat()
            lines.append(f"  {key.id:<12}  {made}  {key.note if key.note.isprintable() else short(key.note)}".rstrip())
    for corpus, members in sorted(content.shared_corpora.items()):
        lines.append(f"corpus {corpus}: shared by {', '.join(members)}")
    return "\n".join(lines)


def _remove(options: argparse.Namespace, path: Path) -> str:
    from .service.keyfile import changing

    with changing(path) as content:
        if options.tenant is not None:
            _known(options.tenant, content.tenants)
            del content.tenants[options.tenant]
            for corpus in list(content.shared_corpora):
                _leave(content.shared_corpora, corpus, [options.tenant])
            what = {"tenant": options.tenant}
        else:
            owner = next((n for n, t in content.tenants.items() if any(k.id == options.id for k in t.keys)), None)
            if owner is None:
                raise SettingsError(f"no key has the id {short(options.id)}")
            keys = content.tenants[owner].keys
            keys[:] = [key for key in keys if key.id != options.id]
            what = {"tenant": owner, "key": options.id}
    _audit("key removed" if "key" in what else "tenant removed", path, **what)
    return f"removed {what.get('key', what['tenant'])}"


def _share(options: argparse.Namespace, path: Path) -> str:
    from .service.keyfile import changing

    with changing(path) as content:
        for name in options.tenants:
            _known(name, content.tenants)
        members = list(dict.fromkeys([*content.shared_corpora.get(options.corpus, ()), *options.tenants]))
        content.shared_corpora[options.corpus] = members
    _audit("corpus shared", path, corpus=options.corpus, tenants=members)
    return f"{options.corpus} is shared by {', '.join(members)}"


def _unshare(options: argparse.Namespace, path: Path) -> str:
    from .service.keyfile import changing

    with changing(path) as content:
        members = content.shared_corpora.get(options.corpus)
        if members is None:
            raise SettingsError(f"no corpus {short(options.corpus)} is shared")
        for name in options.tenants:
            if name not in members:
                raise SettingsError(f"tenant {short(name)} does not share the corpus {short(options.corpus)}")
        _leave(content.shared_corpora, options.corpus, options.tenants or members)
        left = content.shared_corpora.get(options.corpus, [])
    _audit("corpus unshared", path, corpus=options.corpus, tenants=left)
    return f"{options.corpus} is shared by {', '.join(left) or 'nobody'}"


def _known(name: str, tenants: Collection[str]) -> None:
    if name not in tenants:
        raise SettingsError(f"there is no tenant {short(name)}")


def _leave(shared: dict[str, list[str]], corpus: str, names: list[str]) -> None:
    left = [name for name in shared[corpus] if name not in names]
    if left:
        shared[corpus] = left
    else:
        del shared[corpus]


def _formatter() -> logging.Formatter:
    """As the service has it."""
    from .service.logs import formatter

    return formatter(os.environ.get(LOG_FORMAT) or "text")


def _audit(act: str, path: Path, **what: object) -> None:
    """For whoever records what is done at this machine: on the error stream, as no log is set up in a command."""
    from .service.audit import audit, logger

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        uid = os.getuid() if sys.platform != "win32" else None
        audit(act, None, **what, file=str(path), uid=uid, result="done")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
