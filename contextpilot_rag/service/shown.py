"""Figures and names as people read them."""

from __future__ import annotations

_LONGEST = 72  # characters of a name
_NOTHING = "—"


def percent(share: float | None) -> str:
    """A share.

    >>> percent(0.734), percent(0.003), percent(0.0), percent(None)
    ('73%', '<1%', '0%', '—')
    """
    if share is None:
        return _NOTHING
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{share:.0%}"


def amount(count: float) -> str:
    """A number, in three digits or so.

    >>> amount(950), amount(12_340), amount(1_250_000), amount(20_000_000)
    ('950', '12.3 k', '1.25 M', '20 M')
    """
    if count < 1_000:
        return f"{count:.0f}"
    for unit in ("k", "M", "G", "T"):
        count /= 1_000
        if count < 999.5 or unit == "T":
            break
    digits = 0 if count >= 100 else 1 if count >= 10 else 2
    text = f"{count:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def span(seconds: float) -> str:
    """How long.

    >>> span(5), span(125), span(7300), span(200_000)
    ('5 s', '2 min', '2 h 1 min', '2 d 7 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86_400
    if whole < 3600:
        return f"{minutes} min"
    parts = (f"{hours} h", f"{minutes} min") if not days else (f"{days} d", f"{hours} h")
    return " ".join(part for part in parts if not part.startswith("0 "))


def name(text: str) -> str:
    r"""A name that somebody else chose: what cannot be seen, or turns the line round, is written out; not too long.

    >>> name("doc\n7"), name("\u202egnp.doc")
    ('doc\\n7', '\\u202egnp.doc')
    """
    seen = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text[: _LONGEST + 1]
    )
    return seen if len(text) <= _LONGEST else f"{seen[:_LONGEST]}…"


def space(namespace: tuple[str, str, str] | None) -> str:
    """A namespace.

    >>> space(("", "", "")), space(("acme", "", "manuals")), space(None)
    ('default namespace', 'acme · manuals', 'all others')
    """
    if namespace is None:
        return "all others"
    return " · ".join(name(field) for field in namespace if field) or "default namespace"
