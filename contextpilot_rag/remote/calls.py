"""Calls: asks the service, says what went wrong in words, and leaves it alone where that is best."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..errors import IndexFailed, IndexRefused, IndexUnreachable
from .asks import Ask, Busy, Full, Late, Lost, Reply
from .breaker import Breaker, Leave
from .questions import Question
from .wire import Problem

if TYPE_CHECKING:
    from .transport import Transport

T = TypeVar("T")

NOT_FOUND = "urn:contextpilot-rag:problem:not-found"
MOST_BYTES = 16 * 2**20  # of an answer to a request
MOST_BYTES_PATIENT = 512 * 2**20
_MOST_BESIDES = 65_536  # of an answer that takes as long to read as it is long: so many, and so many for each asked
_MOST_TIMES = 16
_REST = 1.0  # seconds, where the service asks to be left alone and does not say for how long


class Calls:
    """The calls of one process.

    Args:
        transport: sends.
        breaker: knows whether the service is left alone.
        name: the service's, for messages.
        timeout: seconds for a request.
        patience: seconds for all else.
        secret: the API key, which no message shows.
    """

    def __init__(
        self, transport: Transport, breaker: Breaker, name: str, timeout: float, patience: float, secret: str = ""
    ) -> None:
        self.transport = transport
        self.breaker = breaker
        self.name = name
        self.timeout = timeout
        self.patience = patience
        self.secret = secret

    def ask(self, question: Question[T]) -> T:
        """The result.

        Raises:
            IndexUnreachable: no answer in time, or the service is left alone.
            IndexRefused: an error for an answer.
            IndexFailed: an answer that cannot be used.
        """
        with _Attempt(self, question.patient) as attempt:
            return self.transport.send(self._sent(question, attempt), partial(self._result, question))

    async def aask(self, question: Question[T]) -> T:
        """As `ask`, awaited."""
        with _Attempt(self, question.patient) as attempt:
            return await self.transport.asend(self._sent(question, attempt), partial(self._result, question))

    def _sent(self, question: Question[T], attempt: _Attempt) -> Ask:
        most = MOST_BYTES_PATIENT
        if not question.patient:
            most = min(MOST_BYTES, _MOST_BESIDES + _MOST_TIMES * len(question.body or b""))
        patient, fresh = question.patient, attempt.is_probe
        return Ask(question.method, question.path, question.body, attempt.seconds, most, patient, fresh)

    def _result(self, question: Question[T], reply: Reply) -> T:
        """What an answer means."""
        if reply.status // 100 == 2:
            return question.read(reply.body)
        if reply.status == 404 and question.missing is not None and _is_own(reply):
            return question.missing()
        raise IndexRefused(f"{reply.status} {_detail(reply, self.secret)}".rstrip(), reply.status, _retry_after(reply))


class _Attempt:
    """One call, from the leave to make it to what is learnt from it."""

    def __init__(self, calls: Calls, patient: bool) -> None:
        self._calls = calls
        self._breaker = None if patient else calls.breaker
        self._leave: Leave | None = None
        self.seconds = calls.patience if patient else calls.timeout

    @property
    def is_probe(self) -> bool:
        """Whether it alone tries a service that is left alone."""
        return self._leave is not None and self._leave.probe

    def __enter__(self) -> _Attempt:
        if self._breaker is not None:
            self._leave = self._breaker.ask()
            if self._leave is None:
                alone = f"it is left alone for another {self._breaker.wait:.1f} s"
                raise IndexUnreachable(f"{self._calls.name} failed again and again; {alone}")
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        breaker, leave = self._breaker, self._leave
        if breaker is not None and leave is not None:
            self._learn(breaker, leave, error)
        if isinstance(error, Lost):
            within = f"within {self.seconds * 1000:g} ms"
            why = f"cannot be reached: {error}"
            if isinstance(error, Late):
                why = f"did not answer {within}"
            elif isinstance(error, Full):
                why = f"was not asked: no connection was free {within}"
            raise IndexUnreachable(_without(self._calls.secret, f"{self._calls.name} {why}")) from error
        if isinstance(error, IndexFailed):
            said = f" refused: {error}" if isinstance(error, IndexRefused) else f": {error}"
            error.args = (_without(self._calls.secret, self._calls.name + said),)

    def _learn(self, breaker: Breaker, leave: Leave, error: BaseException | None) -> None:
        if error is None:
            breaker.succeeded(leave)
        elif isinstance(error, IndexRefused) and error.status in {429, 503}:
            breaker.asked_for_rest(leave, _REST if error.retry_after is None else error.retry_after)
        elif isinstance(error, IndexRefused) and 400 <= error.status < 500:
            breaker.succeeded(leave)  # it is there; the request is at fault
        elif isinstance(error, IndexFailed | Lost) and not isinstance(error, Busy | Full):
            breaker.failed(leave)
            if breaker.is_open:
                self._calls.transport.close()  # whoever tries again makes a new connection
        else:  # cancelled, or too much of our own at a time
            breaker.given_up(leave)


def _is_own(reply: Reply) -> bool:
    """Whether it is the service that answers that there is no such thing, and not something else at a wrong address."""
    try:
        return msgspec.json.decode(reply.body, type=Problem).type == NOT_FOUND
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _without(secret: str, text: str) -> str:
    """A text that does not show the API key, whoever put it there."""
    return text.replace(secret, "[the API key]") if secret else text


def _detail(reply: Reply, secret: str) -> str:
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
    return "".join(character if character.isprintable() else " " for character in _without(secret, text)[:300])


def _retry_after(reply: Reply) -> float | None:
    value = reply.headers.get(b"retry-after", b"")
    return float(value) if value.isdigit() and len(value) < 9 else None
