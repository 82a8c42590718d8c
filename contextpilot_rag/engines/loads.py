"""Loads: what each engine still has to prefill, and what it was given lately.

What is taken is given back when the request was answered or failed; what nobody reports on expires. A request costs
something even where all of its blocks are cached: its question is computed, and its answer is written. Not thread-safe:
its owner holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from statistics import median_low

from ..types import Request
from .choice import RAMP_REQUESTS, Joining, Standing

LOAD_SECONDS = 120.0
MAX_OPEN = 100_000
TOLD_SECONDS = 30.0
"""What an engine says of its queue is true for so long."""
MEMORY_REQUESTS = 100
"""How many requests ago, for each engine, what still counts was given, on average; it fades exponentially."""
BESIDE_TOKENS = 32
"""What a request costs at least beside its blocks; more, where answers are reported that cost more."""
LATEST = 32  # reports that this is taken from
_LARGE = 1e100


@dataclass(slots=True, eq=False)
class Open:
    """A request that was not reported on yet.

    Args:
        book: of the engine where it went.
        key: what it is found by.
        tokens: to prefill, of its blocks.
        at: when, by the owner's clock.
        number: how many were taken before it.
        closed: it was given back.
    """

    book: _Book
    key: Hashable
    tokens: float
    at: float
    number: int
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Book:
    """What is noted of an engine."""

    engine: str
    open: dict[Hashable, deque[Open]] = field(default_factory=dict)  # each with the oldest first
    open_tokens: float = 0.0
    open_requests: int = 0
    recent: float = 0.0  # times the scale
    joined_at: float | None = None  # what all had been given when it joined; None: it is there as long as the others
    given: float = 0.0
    requests: int = 0
    running: int = 0
    waiting: int = 0
    told_at: float | None = None
    away: bool = False
    void: bool = False  # its requests are nobody's any more

    def close(self, request: Open) -> None:
        """The oldest of its key is not open any more."""
        request.closed = True
        requests = self.open[request.key]
        requests.popleft()
        if not requests:
            del self.open[request.key]
        self.open_requests -= 1
        self.open_tokens = max(0.0, self.open_tokens - request.tokens) if self.open_requests else 0.0


class Loads:
    """What engines have to do.

    Args:
        clock: seconds.
        load_seconds: what was not reported on for so long counts no more.
        max_open: requests that are kept; beyond, the oldest counts no more.

    Attributes:
        usual: tokens of a request that cost something, on average.
        beside: those of them that are none of its blocks, usually.
        expired: requests that nobody reported on.

    >>> now = [0.0]
    >>> loads = Loads(lambda: now[0])
    >>> loads.join("a")
    >>> loads.take("a", "request", 900)
    >>> loads.standing("a").queue, loads.give_back("request"), loads.standing("a").queue
    (932.0, 'a', 0.0)
    """

    def __init__(
        self, clock: Callable[[], float], load_seconds: float = LOAD_SECONDS, max_open: int = MAX_OPEN
    ) -> None:
        self._clock = clock
        self._load_seconds = load_seconds
        self._max_open = max_open
        self._books: dict[str, _Book] = {}
        self._here: list[_Book] = []  # those that are not away; all, if all are
        self._by_age: deque[Open] = deque()  # closed ones, too, until they are swept out
        self._opened = self._taken = 0
        self._scale = 1.0  # grows, so that what was noted before counts less
        self._total = 0.0  # given to all, ever
        self._latest: deque[int] = deque(maxlen=LATEST)
        self.usual = 0.0
        self.beside = BESIDE_TOKENS
        self.expired = 0

    def __len__(self) -> int:
        """Requests that are not reported on yet."""
        return self._opened

    def join(self, engine: str, *, late: bool = False) -> None:
        """An engine is there; also one that was away.

        Args:
            engine: its name.
            late: the others were there before, so it is warmed gradually: it begins with what they were given on
                average, as if it had been there all the time.
        """
        self._close_all(engine)
        others = [book for book in self._here if book.engine != engine]
        book = _Book(engine)
        if late and others:
            book.recent = sum(other.recent for other in others) / len(others)
            book.joined_at = self._total
        self._books[engine] = book
        self._count()

    def leave(self, engine: str) -> None:
        """An engine is gone, and what it had to do with it."""
        self._close_all(engine)
        self._books.pop(engine, None)
        self._count()

    def away(self, engine: str) -> None:
        """An engine does not answer: what it had to do is gone. If none is there, all are tried, and equally often."""
        book = self._books.get(engine)
        if book is None:
            return
        self._close_all(engine)
        self._books[engine] = _Book(engine, recent=book.recent, away=True)
        self._count()
        if all(other.away for other in self._here):
            mean = sum(other.recent for other in self._here) / len(self._here)
            for other in self._here:
                other.recent = mean

    def take(self, engine: str, key: Hashable, tokens: float) -> None:
        """A request goes to an engine.

        Args:
            engine: its name.
            key: to find it by when it is given back; several may have the same.
            tokens: to prefill there, of its blocks.
        """
        book = self._books.get(engine)
        if book is None:
            return
        request = Open(book, key, tokens, self._clock(), self._taken)
        self._taken += 1
        book.open.setdefault(key, deque()).append(request)
        self._by_age.append(request)
        self._opened += 1
        book.open_tokens += tokens
        book.open_requests += 1
        self.note(engine, tokens)
        self.sweep()

    def note(self, engine: str, tokens: float) -> None:
        """A request with so many tokens to prefill went to an engine; what it costs besides is added."""
        book = self._books.get(engine)
        if book is None:
            return
        tokens += self.beside
        self._scale *= 1 + 1 / (MEMORY_REQUESTS * len(self._here))
        if self._scale > _LARGE:
            for other in self._books.values():
                other.recent /= self._scale
            self._scale = 1.0
        book.recent += tokens * self._scale
        book.given += tokens
        book.requests += 1
        self._total += tokens
        self.usual += (tokens - self.usual) / MEMORY_REQUESTS if self.usual else tokens

    def cost(self, tokens: int) -> None:
        """A request was answered that cost so many tokens beside those of its blocks."""
        self._latest.append(tokens)
        self.beside = max(BESIDE_TOKENS, median_low(self._latest))  # one absurd report moves no median

    def give_back(self, key: Hashable, engine: str | None = None) -> str | None:
        """A request was answered, or failed: the oldest with that key, if there is one.

        Args:
            key: as it was taken.
            engine: where it went; None: wherever.

        Returns:
            Where it went; None: there is none.
        """
        oldest: Open | None = None
        for book in self._books.values():
            if engine in {None, book.engine} and key in book.open:
                first = book.open[key][0]
                oldest = first if oldest is None or first.number < oldest.number else oldest
        if oldest is None:
            return None
        self._close(oldest)
        return oldest.book.engine

    def told(self, engine: str, running: int | None, waiting: int | None) -> None:
        """An engine said how many requests it works on, and how many wait there. Others may send to it, too."""
        book = self._books.get(engine)
        if book is not None and waiting is not None:
            book.running, book.waiting, book.told_at = running or 0, waiting, self._clock()

    def standing(self, engine: str) -> Standing:
        """How an engine stands; as one that has nothing to do, if it is not known."""
        book = self._books.get(engine)
        if book is None:
            return Standing()
        joining = None
        if book.joined_at is not None:
            if book.requests >= RAMP_REQUESTS:
                book.joined_at = None
            else:
                fair = (self._total - book.joined_at) / len(self._here)
                joining = Joining(book.requests, book.given, fair)
        queue = book.open_tokens + book.open_requests * self.beside + self._others(book)
        return Standing(queue, book.recent / self._scale, joining)

    def outstanding(self, engine: str) -> int:
        """Tokens that an engine has to prefill, of the blocks of requests that are not reported on yet."""
        book = self._books.get(engine)
        return 0 if book is None else round(book.open_tokens)

    def sweep(self) -> None:
        """Drop what is too old or too much."""
        ages = self._by_age
        oldest = self._clock() - self._load_seconds
        while ages and (_over(ages[0]) or ages[0].at <= oldest or self._opened > self._max_open):
            request = ages.popleft()
            if not _over(request):
                self._close(request)
                self.expired += 1
        if len(ages) > 2 * self._opened + 1_000:  # closed ones behind an old one
            self._by_age = deque(request for request in ages if not _over(request))

    def clear(self) -> None:
        """Forget all requests: they are somebody else's, as in a forked child."""
        for book in self._books.values():
            book.open, book.open_tokens, book.open_requests = {}, 0.0, 0
        self._by_age.clear()
        self._opened = 0

    def _others(self, book: _Book) -> float:
        """Tokens to prefill of requests that wait there and are not ours, as well as it is known."""
        if book.told_at is None or self._clock() - book.told_at > TOLD_SECONDS:
            return 0.0
        strangers = max(0, book.running + book.waiting - book.open_requests)
        return min(book.waiting, strangers) * self.usual

    def _close(self, request: Open) -> None:
        request.book.close(request)
        self._opened -= 1

    def _close_all(self, engine: str) -> None:
        """None of an engine's requests is open any more. They are not looked at one by one: there may be very many."""
        book = self._books.get(engine)
        if book is not None:
            book.void = True
            self._opened -= book.open_requests
            self._books[engine] = _Book(engine)

    def _count(self) -> None:
        self._here = [book for book in self._books.values() if not book.away] or list(self._books.values())


def _over(request: Open) -> bool:
    return request.closed or request.book.void


def key_of(request: Request) -> Hashable:
    """What a request is found by when it is reported on, whatever copies were made of it."""
    return hash((request.namespace, frozenset([block.key for block in request.blocks])))
