"""Restoring: the inverse of all de-duplication, for a request of any format as it was forwarded.

Nothing needs it to work: it is how a user, or a test, sees that nothing is lost.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ..dedup.marks import is_marked
from ..expand import Reader
from .finding.find import find
from .finding.numbered import first_marker
from .formats.table import FORMATS
from .words import Api, Lists, Message, Path, Role, Span, Text


def expand_body(api: Api, body: Mapping[str, Any], lists: frozenset[Lists] = frozenset()) -> dict[str, Any]:
    """A request's body with every hint replaced by what it stands for. Blocks stay in the order they were sent in.

    Args:
        api: its format.
        body: as it was forwarded, decoded. It is not changed. One that cannot be read passes as it is.
        lists: that counted as blocks.

    Raises:
        BrokenHint: a tool's result points to nothing: messages are missing, or were changed.

    >>> report = "All systems were checked and found to be in working order, as they were last week and before. "
    >>> hint = '[same text as in message 1 at 0: 93 characters from "All systems were checked and found to be in"]'
    >>> messages = [{"role": "user", "content": report}, {"role": "tool", "tool_call_id": "a", "content": hint}]
    >>> expand_body("chat", {"messages": messages})["messages"][1]["content"] == report.rstrip()
    True
    """
    restored = dict(body)
    asked = FORMATS[api].read(body)
    if asked is None:
        return restored
    reader = _Reader(lists)
    own: dict[Path, Any] = {}
    for message in asked.messages:
        cut = reader.cut(message) if api == "messages" else None
        full = reader.full(message) if cut is None else cut
        for path, text in full.items():
            _put(restored, path, text, own)
        if api == "messages":
            reader.joined(message, full)
    return restored


class _Reader(Reader):
    """Reads the texts of a request in full, one after another.

    Args:
        lists: that counted as blocks.
    """

    def __init__(self, lists: frozenset[Lists]) -> None:
        super().__init__(within=self._bodies)
        self._lists = lists

    def full(self, message: Message) -> dict[Path, str]:
        """The texts of the next message that are others than were sent, by path.

        Raises:
            BrokenHint: a tool's result points to nothing.
        """
        # Blocks that a request was given by a field stand in front of a message's first text.
        first = next((text for text in message.texts if text.role == "user"), None)
        found = {}
        for text in message.texts:
            full = self._in_full(text, may_be_ours=text is first)
            if full != text.text:
                found[text.path] = full
        return found

    def cut(self, message: Message) -> dict[Path, str] | None:
        """As `full`, of a text that may have been cut for the sake of a breakpoint, and points into itself.

        Returns:
            None: it cannot be read as one text, or does not differ. Only the last piece of one may have hints.
        """
        texts = message.texts
        if len(texts) < 2 or any(text.role in ("tool", "assistant") for text in texts):
            return None
        if not is_marked(texts[-1].text):
            return None
        sent = "".join(text.text for text in texts)
        whole = self._revealed(message.role, f"message {message.number}", sent)
        ahead = len(sent) - len(texts[-1].text)
        if whole == sent or whole[:ahead] != sent[:ahead]:
            return None
        for text in texts[:-1]:
            self._originals.note(text.place, text.text)
        self._originals.note(texts[-1].place, whole[ahead:])
        return {texts[-1].path: whole[ahead:]}

    def joined(self, message: Message, full: Mapping[Path, str]) -> None:
        """Know a message's texts as one, too: one that was alone may have been cut for the sake of a breakpoint."""
        if len(message.texts) > 1 and message.role != "tool":
            whole = "".join(full.get(text.path, text.text) for text in message.texts)
            for place in (f"message {message.number}", message.texts[0].place):
                self._originals.note(place, whole)

    def _in_full(self, text: Text, *, may_be_ours: bool) -> str:
        if text.role == "assistant":
            return text.text
        if text.role == "tool":
            return self._originals.add(text.place, text.text)
        ours = self._ours(text.text) if may_be_ours else None
        if ours is None or is_marked(ours.rest):  # no hint of ours stands behind blocks of ours
            full = self._revealed(text.role, text.place, text.text)
            if ours is None or full != text.text:
                return full
        self._originals.note(text.place, text.text)
        return ours.text

    def _bodies(self, role: str, text: str) -> Sequence[Span]:
        """Where hints may stand in what a user or the system said: in blocks.

        A list says by its lines where it ends, and has fewer of them with hints. So all behind its beginning may be it.
        """
        said_by: Role = "user" if role == "user" else "system"
        groups = find(Text(said_by, 1, None, text, ()), self._lists)
        bodies = [item.body for group in groups for item in group.items]
        begin = first_marker(text, self._lists)
        if begin is None:
            return bodies
        return [*(body for body in bodies if body[1] <= begin), (begin, len(text))]


def _put(body: dict[str, Any], path: Path, text: str, own: dict[Path, Any]) -> None:
    """Put a text into a body; whatever it stands in is copied first, once.

    Args:
        body: a copy.
        path: to the text.
        text: to stand there.
        own: what was copied already, by path.
    """
    at: Any = body
    for depth, step in enumerate(path[:-1], start=1):
        inner = path[:depth]
        if inner not in own:
            own[inner] = at[step] = copy.copy(at[step])
        at = own[inner]
    at[path[-1]] = text
