"""Loads: what each engine still has to prefill, and what it was given lately.

What is taken is given back when the request was answered or failed; what nobody reports on expires. Not thread-safe:
its owner holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from ..types import Request
from .choice import RAMP_REQUESTS, Joining, Standing

LOAD_SECONDS = 120.0
MAX_OPEN = 100_000
TOLD_SECONDS = 30.0
"""What an engine says of its queue is true for so long."""
MEMORY_REQUESTS = 100
"""How many requests ago, for each engine, what still counts was given, on average; it fades exponentially."""
_LARGE = 1e100


@dataclass(slots=True, eq=False)
class Open:
    """A request that was not reported on yet.

    Args:
        engine: where it went.
        key: what it is found by.
        tokens: to prefill.
        at: when, by the owner's clock.
        closed: it was given back.
    """

    engine: str
    key: Hashable
    tokens: float
    at: float
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Book:
    """What is noted of an engine."""

    open_tokens: float = 0.0
    open_requests: int = 0
    recent: float = 0.0  # times the scale
    joined_at: float | None = None  # what all had been given when it joined; None: it is there as long as the others
    given: float = 0.0
    requests: int = 0
    running: int = 0
    waiting: int = 0
    told_at: float | None = None


class Loads:
    """What engines have to do.

    Args:
        clock: seconds.
        load_seconds: what was not reported on for so long counts no more.
        max_open: requests that are kept; beyond, the oldest counts no more.

    Attributes:
        usual: tokens to prefill of a request, on average.
        expired: requests that nobody reported on.

    >>> now = [0.0]
    >>> loads = Loads(lambda: now[0])
    >>> loads.join("a")
    >>> loads.take("a", "request", 900)
    >>> loads.standing("a").queue, loads.give_back("request"), loads.standing("a").queue
    (900.0, 'a', 0.0)
    """

    def __init__(
        self, clock: Callable[[], float], load_seconds: float = LOAD_SECONDS, max_open: int = MAX_OPEN
    ) -> None:
        self._clock = clock
        self._load_seconds = load_seconds
        self._max_open = max_open
        self._books: dict[str, _Book] = {}
        self._open: dict[Hashable, deque[Open]] = {}
        self._by_age: deque[Open] = deque()  # closed ones, too, until they are swept out
        self._opened = 0
        self._scale = 1.0  # grows, so that what was noted before counts less
        self._total = 0.0  # given to all, ever
        self.usual = 0.0
        self.expired = 0

    def __len__(self) -> int:
        """Requests that are not reported on yet."""
        return self._opened

    def join(self, engine: str, *, late: bool = False) -> None:
        """An engine is there.

        Args:
            engine: its name.
            late: the others were there before, so it is warmed gradually: it begins with what they were given on
                average, as if it had been there all the time.
        """
        book = _Book()
        if late and self._books:
            book.recent = sum(other.recent for other in self._books.values()) / len(self._books)
            book.joined_at = self._total
        self._books[engine] = book

    def leave(self, engine: str) -> None:
        """An engine is gone, and what it had to do with it."""
        self._books.pop(engine, None)
        for requests in list(self._open.values()):
            for request in [request for request in requests if request.engine == engine]:
                self._close(request)

    def take(self, engine: str, key: Hashable, tokens: float) -> None:
        """A request goes to an engine.

        Args:
            engine: its name.
            key: to find it by when it is given back; several may have the same.
            tokens: to prefill there.
        """
        book = self._books.get(engine)
        if book is None:
            return
        request = Open(engine, key, tokens, self._clock())
        self._open.setdefault(key, deque()).append(request)
        self._by_age.append(request)
        self._opened += 1
        book.open_tokens += tokens
        book.open_requests += 1
        self.note(engine, tokens)
        self.sweep()

    def note(self, engine: str, tokens: float) -> None:
        """Tokens to prefill went to an engine, and nobody will report on them."""
        book = self._books.get(engine)
        if book is None:
            return
        self._scale *= 1 + 1 / (MEMORY_REQUESTS * len(self._books))
        if self._scale > _LARGE:
            for other in self._books.values():
                other.recent /= self._scale
            self._scale = 1.0
        book.recent += tokens * self._scale
        book.given += tokens
        book.requests += 1
        self._total += tokens
        self.usual += (tokens - self.usual) / MEMORY_REQUESTS if self.usual else tokens

    def give_back(self, key: Hashable, engine: str | None = None) -> str | None:
        """A request was answered, or failed: the oldest with that key, if there is one.

        Args:
            key: as it was taken.
            engine: where it went; None: wherever.

        Returns:
            Where it went; None: there is none.
        """
        for request in self._open.get(key, ()):
            if engine in {None, request.engine}:
                self._close(request)
                return request.engine
        return None

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
                fair = (self._total - book.joined_at) / len(self._books)
                joining = Joining(book.requests, book.given, fair)
        return Standing(book.open_tokens + self._others(book), book.recent / self._scale, joining)

    def outstanding(self, engine: str) -> int:
        """Tokens that an engine has to prefill, of requests that are not reported on yet."""
        return round(self._books.get(engine, _Book()).open_tokens)

    def sweep(self) -> None:
        """Drop what is too old or too much."""
        ages = self._by_age
        oldest = self._clock() - self._load_seconds
        while ages and (ages[0].closed or ages[0].at <= oldest or self._opened > self._max_open):
            request = ages.popleft()
            if not request.closed:
                self._close(request)
                self.expired += 1
        if len(ages) > 2 * self._opened + 1_000:  # closed ones behind an old one
            self._by_age = deque(request for request in ages if not request.closed)

    def clear(self) -> None:
        """Forget all requests: they are somebody else's, as in a forked child."""
        for book in self._books.values():
            book.open_tokens, book.open_requests = 0.0, 0
        self._open.clear()
        self._by_age.clear()
        self._opened = 0

    def _others(self, book: _Book) -> float:
        """Tokens to prefill of requests that wait there and are not ours, as well as it is known."""
        if book.told_at is None or self._clock() - book.told_at > TOLD_SECONDS:
            return 0.0
        strangers = max(0, book.running + book.waiting - book.open_requests)
        return min(book.waiting, strangers) * self.usual

    def _close(self, request: Open) -> None:
        request.closed = True
        requests = self._open[request.key]
        requests.remove(request)
        if not requests:
            del self._open[request.key]
        self._opened -= 1
        book = self._books.get(request.engine)
        if book is not None:
            book.open_requests -= 1
            book.open_tokens = max(0.0, book.open_tokens - request.tokens) if book.open_requests else 0.0


def key_of(request: Request) -> Hashable:
    """What a request is found by when it is reported on, whatever copies were made of it."""
    return hash((request.namespace, frozenset([block.key for block in request.blocks])))
