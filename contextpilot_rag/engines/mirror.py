"""Mirror: what engines tell of their KV blocks, as what it means for the paths of prefix trees."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..forking import after_fork, was_held
from ..types import BlockRef
from .asked import Asked, AskedLast, Holder
from .covering import Covering
from .fair_lock import FairLock
from .kv import Event, in_parts
from .passages import Changes, Passage, Passages, Path, Space
from .resident import Resident

__all__ = ["Changes", "Holder", "Mirror", "MirrorCounts", "Space"]


AT_ONCE = 256
"""KV blocks that are taken in at once; that is about a millisecond's work."""
LOOKS = 10_000
"""Steps in which the prompt of an orphan is looked for; what takes more is unclear."""


@dataclass(frozen=True, slots=True)
class MirrorCounts:
    """What a mirror knows, and what it did.

    Args:
        kv_blocks: that are there, of all holders.
        orphans: KV blocks that nobody knows the prompt of.
        passages: that are followed.
        covered: prompts whose events were to be expected.
        matched: of those, how many came, or were there already.
        mismatched: of those, how many never came: the engine has other tokens than it was thought to have.
        adopted: how often orphans were found to belong to a prompt.
        revoked: how often that proved a mistake.
        unclear: how often they could have belonged to several.
        ignored: KV blocks that were removed but not known, or of no use.
        forgotten: KV blocks and orphans that there was no room for.
    """

    kv_blocks: int = 0
    orphans: int = 0
    passages: int = 0
    covered: int = 0
    matched: int = 0
    mismatched: int = 0
    adopted: int = 0
    revoked: int = 0
    unclear: int = 0
    ignored: int = 0
    forgotten: int = 0


class Mirror:
    """Follows which paths of the trees are in some holder's cache. A holder is an engine, or one of its ranks.

    Thread-safe. Those who tell of caches and prompts take turns: the changes have to be applied in the order in which
    they were returned. Those who ask never wait for all that one of them tells: it is taken in in pieces of about a
    millisecond, and whoever asks gets in between. So while much is told, some of it may be known and the rest not yet.

    Args:
        max_kv_blocks: copies of KV blocks that are known of one holder, and names of KV blocks that are kept with
            passages. Those stored, or used, longest ago are forgotten first.
        max_orphans: of one holder; also KV blocks that are taken as there without having been told of.
        max_passages: that are followed.

    >>> from contextpilot_rag.engines.chain import chain, content
    >>> from contextpilot_rag.engines.kv import Removed, Stored
    >>> mirror, a, b = Mirror(), BlockRef("a", 4), BlockRef("b", 4)
    >>> tokens = tuple(range(12))  # two of the head, four of each block, and a question
    >>> contents = tuple(content(tokens[start : start + 2]) for start in range(0, 12, 2))
    >>> covering = Covering(chain(tokens, 2), contents, (2, 6, 10), 12, 2)
    >>> mirror.apply(("vllm", 0), [Stored(tuple(range(100, 106)), None, tokens, 2)])
    Changes(gone=(), back=())
    >>> [len(path) for _, path in mirror.cover("tree", None, [a, b], covering).back]
    [2]
    >>> mirror.expected("tree", [a, b]), mirror.expected("tree", [a])
    (10, 6)
    >>> [len(path) for _, path in mirror.apply(("vllm", 0), [Removed((104,))]).gone]
    [2]
    """

    def __init__(self, max_kv_blocks: int = 2_000_000, max_orphans: int = 20_000, max_passages: int = 500_000) -> None:
        self._limits = max_kv_blocks, max_orphans, max_passages
        self._telling, self._lock = threading.Lock(), FairLock()
        self._start()
        after_fork(self, Mirror._renew)

    def apply(self, holder: Holder, events: Sequence[Event]) -> Changes:
        """A holder told what happened in its cache.

        Args:
            holder: who.
            events: in the order in which they happened, each once.
        """
        with self._telling:
            with self._lock:
                resident = self._resident(holder)
            for part in in_parts(events, AT_ONCE):
                with self._lock:
                    resident.apply(part)
            return self._settled(resident, holder)

    def lost(self, holder: Holder) -> Changes:
        """Some of what a holder told was lost, or it was begun anew: nothing is known of its cache."""
        with self._telling:
            with self._lock:
                resident = self._residents.get(holder)
                if resident is None:
                    return Changes()
                resident.drop()
                resident.left.clear()
                resident.complete = False
            return self._settled(resident, holder)

    def whole(self, holder: Holder) -> Changes:
        """A holder told all that happened in its cache since its start; nothing changes by that."""
        with self._telling, self._lock:
            self._resident(holder).complete = True
        return Changes()

    def remove(self, engine: str) -> Changes:
        """An engine is gone, with all its ranks."""
        with self._telling:
            for holder in [one for one in self._residents if one[0] == engine]:
                resident = self._residents[holder]
                with self._lock:
                    resident.drop()
                self._show(resident)
                with self._lock:
                    for name in ("ignored", "adopted", "revoked", "forgotten"):
                        self._counts[name] += getattr(resident, name)
                    self._counts["forgotten"] += resident.orphans.dropped
                    del self._residents[holder]
            return self._passages.changes()

    def cover(
        self,
        space: Space,
        salt: str | None,
        blocks: Sequence[BlockRef],
        covering: Covering,
        holder: Holder | None = None,
        cached_tokens: int | None = None,
    ) -> Changes:
        """A prompt was answered, and where its blocks stand among the KV blocks is known.

        Args:
            space: whose tree its blocks are in.
            salt: its cache salt.
            blocks: in prompt order.
            covering: where they stand.
            holder: who answered; None: not known.
            cached_tokens: of the prompt, as the engine reported; None: it did not.
        """
        with self._telling, self._lock:
            if holder is None and len(self._residents) == 1:
                (holder,) = self._residents
            if holder is not None:
                resident = self._resident(holder)
                if cached_tokens is not None:
                    cached = cached_tokens // covering.block_size
                    resident.assume(covering.keys[:cached])
                    resident.doubt(covering.keys[cached:])
                self._show_now(resident)
            if covering.keys:
                self._expect(Asked(covering, cached_tokens, holder))
            passages = self._passages.cover(space, salt, blocks, covering)
            changes = self._passages.changes()
            return Changes(changes.gone + self._evidence(space, passages), changes.back)

    def expected(self, space: Space, blocks: Sequence[BlockRef]) -> int | None:
        """Tokens of a prompt that the engine should report as cached.

        Whole KV blocks. It may report more where the question, too, begins like that of another prompt.

        Args:
            space: whose tree its blocks are in.
            blocks: the first ones of the prompt, in its order.

        Returns:
            None: no prompt of this space was covered yet.
        """
        with self._lock:
            found = 0
            walked = list(self._passages.walk(space, [block.key for block in blocks]))
            for passage in walked:
                if passage.there:
                    found += len(passage.keys)
                    continue
                before = passage.parent.there if passage.parent else -1
                runs = [one.run(passage.keys) for one in self._residents.values() if one.bit & before]
                found += max(runs, default=0)
                break
            heads = self._passages.heads(space)
            if heads and len(walked) == len(blocks) + 1:  # what follows its last block is its end, which may be new
                found = min(found, walked[-1].last // heads[-1].block_size)
            return found * heads[-1].block_size if heads else None

    def knows(self, space: Space, path: Sequence[Hashable]) -> bool:
        """Whether it is known which KV blocks cover a path.

        Args:
            space: whose tree it is in.
            path: keys of blocks in prompt order.
        """
        with self._lock:
            return sum(1 for _ in self._passages.walk(space, path)) == len(path) + 1

    def spaces(self) -> list[Space]:
        """Those of which something was covered."""
        with self._lock:
            return self._passages.spaces()

    def forget(self, space: Space | None = None) -> None:
        """Drop what is known of a space's prompts, or of all. What is known of caches stays."""
        with self._telling, self._lock:
            for one in self._passages.spaces() if space is None else [space]:
                self._passages.forget(one)
            if space is None:
                self._asked.clear()

    def counts(self) -> MirrorCounts:
        """What is known, and what was done."""
        with self._lock:
            counts = self._counts.copy()
            for one in self._residents.values():
                counts["kv_blocks"] += len(one.there)
                counts["orphans"] += len(one.orphans)
                counts["adopted"] += one.adopted
                counts["revoked"] += one.revoked
                counts["ignored"] += one.ignored
                counts["forgotten"] += one.forgotten + one.orphans.dropped
            return MirrorCounts(**counts, passages=len(self._passages))

    def _start(self) -> None:
        most, _, most_passages = self._limits
        self._residents: dict[Holder, Resident] = {}
        self._passages = Passages(self._holders, most_passages, most)
        self._asked = AskedLast(self._missed)
        self._counts: Counter[str] = Counter()

    def _renew(self) -> None:
        """In a forked child. What a thread was in the middle of may be half done: then nothing is known."""
        if was_held(self._telling) or was_held(self._lock):
            self._start()
        self._telling, self._lock = threading.Lock(), FairLock()

    def _resident(self, holder: Holder) -> Resident:
        resident = self._residents.get(holder)
        if resident is None:
            taken = {one.bit for one in self._residents.values()}
            bit = next(1 << place for place in range(len(taken) + 1) if 1 << place not in taken)
            resident = self._residents[holder] = Resident(bit, self._limits[0], self._limits[1])
        return resident

    def _holders(self, keys: tuple[bytes, ...]) -> int:
        return sum(one.bit for one in self._residents.values() if one.has_all(keys))

    def _show(self, resident: Resident) -> None:
        """Look at what changed, in pieces. Nobody else tells anything meanwhile."""
        while resident.changed or resident.dropped:
            with self._lock:
                self._show_some(resident, AT_ONCE)

    def _show_now(self, resident: Resident) -> None:
        while resident.changed or resident.dropped:
            self._show_some(resident, AT_ONCE)

    def _show_some(self, resident: Resident, most: int) -> None:
        changed = resident.take_changed(most)
        for asked in self._asked.ending_in(changed):
            self._match(asked)
        self._passages.shows(changed, resident.there)

    def _settled(self, resident: Resident, holder: Holder) -> Changes:
        """What follows from what a holder told. Nobody else tells anything meanwhile."""
        strange, resident.strange = resident.strange, set()
        for content in strange:
            with self._lock:
                self._adopt(resident, holder, content)
        self._show(resident)
        return self._passages.changes()  # those who ask do not see what changes there

    def _expect(self, asked: Asked) -> None:
        """Events tell, or told already, of an answered prompt, at least of its last full KV block."""
        covering, last = asked.covering, asked.covering.keys[-1]
        known = [one for one in self._of(asked.holder) if last in one.there or last in one.left]
        cached = asked.cached_tokens  # never the last token: if all others are cached, there is nothing to tell
        silent = cached is not None and cached // covering.block_size >= (covering.tokens - 1) // covering.block_size
        if cached is None and not (self._of(asked.holder) and all(one.complete for one in self._of(asked.holder))):
            silent = True  # it may be all of it cached, and who listens late would not know
        asked.waits = not silent
        if known:
            self._counts["covered"] += asked.waits
            self._match(asked)
            return
        self._counts["covered"] += asked.waits
        for other in self._asked.like(covering.contents[-1]):
            if other.tail and asked.same_end(other, other.tail):
                self._revoke(other)
        self._asked.add(asked)
        for holder in [asked.holder] if asked.holder else list(self._residents):
            resident = self._resident(holder)
            self._adopt(resident, holder, covering.contents[-1])
            self._show_now(resident)

    def _match(self, asked: Asked) -> None:
        self._counts["matched"] += asked.waits
        asked.waits = False

    def _missed(self, asked: Asked) -> None:
        self._counts["mismatched"] += 1
        asked.waits = False

    def _adopt(self, resident: Resident, holder: Holder, content: bytes) -> None:
        """Find the prompt that orphans belong to: one that has just been answered, and ends as they do.

        Equal tokens alone prove little: another tenant may have asked the same. So there must be one possibility only,
        as far as the engine's reports leave several. Where many prompts and many orphans end alike, none are found.
        """
        looks = LOOKS
        alike = [one for one in self._asked.like(content) if one.holder in {None, holder}]
        for asked in alike:
            keys = asked.covering.keys
            if asked.tail or keys[-1] in resident.there:
                continue
            found, steps = resident.orphans.runs(asked.covering.contents, looks)
            looks -= steps
            if looks <= 0:
                self._counts["unclear"] += 1
                return
            runs = dict.fromkeys(found)
            fitting = [(before, parent) for before, parent in runs if asked.could_begin(len(keys) - before)]
            if not fitting:
                continue
            before, parent = fitting[0]
            tail = len(keys) - before
            looks -= tail * len(alike)
            rivals = any(one.could_begin(tail) and one.same_end(asked, tail) for one in alike)
            if len(fitting) > 1 or rivals:
                self._counts["unclear"] += 1
                continue
            asked.tail, asked.parent = tail, parent
            resident.adopt(parent, keys[:before])
            self._match(asked)

    def _revoke(self, asked: Asked) -> None:
        for resident in self._of(asked.holder):
            if asked.parent is not None:
                resident.revoke(asked.parent)
                resident.doubt(asked.covering.keys)
                if asked.cached_tokens is not None:
                    resident.assume(asked.covering.keys[: asked.cached_tokens // asked.covering.block_size])
                self._show_now(resident)
        asked.tail, asked.parent = 0, None

    def _of(self, holder: Holder | None) -> Sequence[Resident]:
        if holder is None:
            return list(self._residents.values())
        return [self._residents[holder]] if holder in self._residents else []

    def _evidence(self, space: Space, passages: Sequence[Passage]) -> tuple[tuple[Space, Path], ...]:
        """Of a prompt that was just answered, what is gone by now, if events told so. Absence alone proves nothing."""
        for number, passage in enumerate(passages):
            if not passage.there and any(key in one.left for key in passage.keys for one in self._residents.values()):
                path = passage.path() if number else passages[min(1, len(passages) - 1)].path()
                return ((space, path),) if path and not self._passages.has(space, path) else ()
        return ()
