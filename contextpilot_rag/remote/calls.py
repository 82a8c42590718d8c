"""Calls: asks the service, says what went wrong in words, and leaves it alone where that is best."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..errors import IndexFailed, IndexRefused, IndexUnreachable
from .asks import Ask, Full, Late, Lost, Reply
from .breaker import Breaker, Leave
from .questions import Question
from .wire import Problem

if TYPE_CHECKING:
    from .transport import Transport

T = TypeVar("T")

MOST_BYTES = 16 * 2**20  # of an answer to a request
MOST_BYTES_PATIENT = 512 * 2**20
_REST = 1.0  # seconds, where the service asks to be left alone and does not say for how long


class Calls:
    """The calls of one process.

    Args:
        transport: sends.
        breaker: knows whether the service is left alone.
        name: the service's, for messages.
        timeout: seconds for a request.
        patience: seconds for all else.
    """

    def __init__(self, transport: Transport, breaker: Breaker, name: str, timeout: float, patience: float) -> None:
        self.transport = transport
        self.breaker = breaker
        self._name = name
        self._timeout = timeout
        self._patience = patience

    def ask(self, question: Question[T]) -> T:
        """The result.

        Raises:
            IndexUnreachable: no answer in time, or the service is left alone.
            IndexRefused: an error for an answer.
            IndexFailed: an answer that cannot be used.
        """
        with self._attempt(question) as attempt:
            return attempt.result(question, self.transport.send(self._sent(question)))

    async def aask(self, question: Question[T]) -> T:
        """As `ask`, awaited."""
        with self._attempt(question) as attempt:
            return attempt.result(question, await self.transport.asend(self._sent(question)))

    def _attempt(self, question: Question[T]) -> _Attempt:
        seconds = self._patience if question.patient else self._timeout
        return _Attempt(None if question.patient else self.breaker, self._name, seconds)

    def _sent(self, question: Question[T]) -> Ask:
        seconds, most = self._timeout, MOST_BYTES
        if question.patient:
            seconds, most = self._patience, MOST_BYTES_PATIENT
        return Ask(question.method, question.path, question.body, seconds, most)


class _Attempt:
    """One call, from the leave to make it to what is learnt from it."""

    def __init__(self, breaker: Breaker | None, name: str, seconds: float) -> None:
        self._breaker = breaker
        self._name = name
        self._seconds = seconds
        self._leave: Leave | None = None

    def __enter__(self) -> _Attempt:
        if self._breaker is not None:
            self._leave = self._breaker.ask()
            if self._leave is None:
                raise IndexUnreachable(
                    f"{self._name} failed again and again; it is left alone for another {self._breaker.wait:.1f} s"
                )
        return self

    def result(self, question: Question[T], reply: Reply) -> T:
        """What an answer means."""
        if reply.status // 100 == 2:
            return question.read(reply.body)
        if reply.status == 404 and question.missing is not None:
            return question.missing()
        raise IndexRefused(f"{reply.status} {_detail(reply)}".rstrip(), reply.status, _retry_after(reply))

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        breaker, leave = self._breaker, self._leave
        if breaker is not None and leave is not None:
            self._learn(breaker, leave, error)
        if isinstance(error, Lost):
            within = f"within {self._seconds * 1000:g} ms"
            why = f"cannot be reached: {error}"
            if isinstance(error, Late):
                why = f"did not answer {within}"
            elif isinstance(error, Full):
                why = f"was not asked: no connection was free {within}"
            raise IndexUnreachable(f"{self._name} {why}") from error
        if isinstance(error, IndexRefused):
            error.args = (f"{self._name} refused: {error}",)
        elif isinstance(error, IndexFailed):
            error.args = (f"{self._name}: {error}",)

    def _learn(self, breaker: Breaker, leave: Leave, error: BaseException | None) -> None:
        if error is None:
            breaker.succeeded(leave)
        elif isinstance(error, IndexRefused) and error.status in {429, 503}:
            breaker.asked_for_rest(leave, _REST if error.retry_after is None else error.retry_after)
        elif isinstance(error, IndexRefused) and 400 <= error.status < 500:
            breaker.succeeded(leave)  # it is there; the request is at fault
        elif isinstance(error, IndexFailed | Lost) and not isinstance(error, Full):
            breaker.failed(leave)
        else:  # cancelled, or too much of our own at a time
            breaker.given_up(leave)


def _detail(reply: Reply) -> str:
    """What the answer says of itself. One that is not the service's tells little, but perhaps where to look."""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
        text = problem.detail or problem.title
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = ""
        if reply.status // 100 == 3:
            text = (
                f"and sends on to {reply.headers.get(b'location', b'').decode('latin-1').split('?')[0]}: not followed"
            )
        elif reply.status == 400 and b"HTTPS" in reply.body:  # as servers and proxies say it to who speaks http there
            text = "does it speak https?"
    return "".join(character if character.isprintable() else " " for character in text[:300])


def _retry_after(reply: Reply) -> float | None:
    value = reply.headers.get(b"retry-after", b"")
    return float(value) if value.isdigit() and len(value) < 9 else None
