"""The audit log: one line for each administrative act, in the logger ``contextpilot_rag.audit``.

Who, what, and how it ended; never a key, a salt or a secret. What is named comes from callers, and is quoted: nobody
writes a line of their own into it.
"""

from __future__ import annotations

import json
import logging

from .auth import Caller

logger = logging.getLogger("contextpilot_rag.audit")

_LONGEST = 2_000  # characters of one value
_MOST = 200  # values of one list


def audit(act: str, caller: Caller | None, **what: object) -> None:
    """Note an act.

    Args:
        act: in a word or two, the same each time: "namespace forgotten".
        caller: who did it over the network; None: the service itself, or somebody at its machine.
        what: the rest: what it was done to, and the result. Values that are no str, int, float, bool or None, or lists
            of these, are shown as their types.
    """
    fields: dict[str, object] = {"act": act}
    if caller is not None:
        fields |= {"tenant": caller.tenant, "key": caller.key_id}
    fields |= {name: _plain(value) for name, value in what.items()}
    shown = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items() if name != "act")
    logger.info("%s: %s", act, shown or "-", extra={"audit": fields})


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        some = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        more = [f"and {len(some) - _MOST} more"] if len(some) > _MOST else []
        return [_plain(one) for one in some[:_MOST]] + more
    return f"<{type(value).__name__}>"
