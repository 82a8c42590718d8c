"""Repeating: what of a request's texts stands in it before, and is not sent again."""

from __future__ import annotations

from collections.abc import Sequence

from ..dedup.chunks import Repeats
from ..dedup.marks import is_marked, shield
from ..settings import DedupLevel
from .words import Span, Text


class Repeating:
    """The texts of one request, in order: what is sent for each depends on those before it alone.

    Args:
        level: "off" leaves all as it is; "blocks" leaves out results and blocks that repeat an earlier text, or an
            earlier block, as a whole; "blocks+chunks" parts of them, too.
        normalise: line ends, Unicode forms and blanks at the ends of lines make no difference.
        max_text: characters of a text that is searched; a longer one passes, and nothing repeats it.

    >>> repeating, page = Repeating("blocks", True, 1_000_000), "Returns are free for thirty days, in all shops. " * 4
    >>> first, second = (Text("tool", number, None, page, ("messages", number - 1, "content")) for number in (1, 2))
    >>> repeating.take(first, page, None) == page
    True
    >>> repeating.take(second, page, None)
    '[same text as in message 1 at 0: 192 characters from "Returns are free for thirty days, in all shops."]'
    """

    def __init__(self, level: DedupLevel, normalise: bool, max_text: int) -> None:
        self._repeats = None if level == "off" else Repeats(exact=not normalise, max_text=max_text)
        self._whole = level == "blocks"
        self._max_text = max_text

    def take(
        self, text: Text, sent: str, within: Sequence[Span] | None, quoted: bool = False, *, repeats: bool = True
    ) -> str:
        """What is sent for a text.

        Args:
            text: as it came. What the model said stays, and is not pointed at.
            sent: what would be sent for it in full, if that is another order of its blocks.
            within: the parts of that in which something may be replaced; None: all of a tool's result, and nothing of
                what others said.
            quoted: they are insides of JSON strings.
            repeats: False: nothing in it is replaced; these parts are blocks that others may repeat.
        """
        if self._repeats is None or text.role == "assistant":
            return sent
        tools = text.role == "tool"
        if len(sent) > self._max_text:
            return shield(sent) if tools else sent
        # What looks like a hint is shielded in a result; a user's text stays as it is, and then has none of ours.
        replace = repeats and (tools or (within is not None and not is_marked(sent)))
        return self._repeats.add(text.place, sent, replace=replace, within=within, quoted=quoted, whole=self._whole)

    @property
    def replaced(self) -> int:
        """Hints in what is sent."""
        return 0 if self._repeats is None else self._repeats.hints

    @property
    def left_out(self) -> int:
        """Characters that hints stand for, less those of the hints; at least 0, as hints save bytes first of all."""
        return 0 if self._repeats is None else max(0, self._repeats.left_out)
