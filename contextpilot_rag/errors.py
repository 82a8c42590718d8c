"""Every exception this library raises on purpose.

ContextPilotError
├── InputError(ValueError)        what the caller gave cannot be used; nothing was changed
│   ├── InvalidBlock              a block that is no text, or carries an unusable id or token count
│   ├── ConflictingBlocks         one id with two different texts in one request
│   ├── SettingsError             an unknown setting, or a value out of range
│   ├── CorpusError               no documents or questions where there should be some
│   ├── RetrievalError            a retriever's raw result that does not fit the blocks it came with
│   ├── TextTooLong               a text that is longer than ``max_text`` allows
│   ├── BrokenHint                a location hint that points to nothing
│   ├── TraceError                a recorded trace that cannot be read
│   ├── ResultsError              a file of results that cannot be read or written, or is another batch's
│   └── StateError                what an index knows, as data that cannot be written or read
├── MissingPackage(ImportError)    an optional package is not installed; the message says which
├── IndexFailed                   the context index broke; only raised with ``on_error="raise"``
│   ├── IndexUnreachable          a service that is the index does not answer, or is left alone for a while
│   ├── IndexRefused              it answered with an error status
│   └── LogUnavailable            the log that replicas converge by does not answer, refuses, or is full
└── EngineError                   the engine did not do its part
    ├── EngineUnreachable         nothing answers at its address
    ├── EngineRefused             it answered with an error status
    ├── EngineBrokeOff            its answer ended before it was complete
    ├── EventError                what it tells of its cache cannot be understood
    └── EngineUnavailable         a local engine cannot be started here
"""

from __future__ import annotations

_PACKAGES = {"faiss": "faiss-cpu", "opentelemetry": "opentelemetry-api", "zmq": "pyzmq"}
"""By what they are imported as: optional packages that are published under another name."""


class ContextPilotError(Exception):
    """Base of all errors raised by this library."""


class InputError(ContextPilotError, ValueError):
    """What the caller gave cannot be used. Nothing was changed."""


class InvalidBlock(InputError):
    """A block that is no text, or that carries an unusable id or token count."""


class ConflictingBlocks(InputError):
    """Two blocks of one request have the same id and different texts."""


class SettingsError(InputError):
    """An unknown setting, or a value that it cannot have."""


class CorpusError(InputError):
    """No documents or questions where there should be some."""


class RetrievalError(InputError):
    """A retriever's raw result does not fit the blocks it came with."""


class TextTooLong(InputError):
    """A text is longer than ``max_text`` allows."""


class BrokenHint(InputError):
    """A location hint points to nothing: the text was not made here, or what it points to is gone."""


class TraceError(InputError):
    """A recorded trace, or its block lengths, cannot be read; the message says where."""


class ResultsError(InputError):
    """A file of results cannot be read or written, or holds another batch's; the message says where."""


class StateError(InputError):
    """What an index knows cannot be put into data, or data that should tell it does not."""


class MissingPackage(ContextPilotError, ImportError):
    """An optional package is needed for this and is not installed; the message says what to install."""

    @classmethod
    def of(cls, error: ImportError, needs: str, install: str) -> MissingPackage:
        """The error for an import that failed. If what failed is a module of ours, that is raised as it is.

        Args:
            error: the import's.
            needs: what needs it, as the beginning of a sentence: ``"replicas need"``.
            install: what brings it, as pip is told: ``"contextpilot-rag[replicas]"``.

        >>> print(MissingPackage.of(ImportError(name="zmq.asyncio"), "events need", "contextpilot-rag[events]"))
        events need pyzmq: pip install 'contextpilot-rag[events]'
        """
        module = (error.name or "").partition(".")[0]
        if module == __package__:
            raise error
        package = _PACKAGES.get(module, module.replace("_", "-"))
        return cls(f"{needs} {package or error}: pip install '{install}'", name=error.name)


class IndexFailed(ContextPilotError):
    """The context index broke. Only raised with ``on_error="raise"``; otherwise the retriever's order goes out."""


class IndexUnreachable(IndexFailed):
    """A service that is the index did not answer in time, or is left alone for a while because it did not."""


class IndexRefused(IndexFailed):
    """A service that is the index answered with an error status.

    Attributes:
        status: the HTTP status.
        retry_after: seconds that it asked to be left alone for, or None.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class LogUnavailable(IndexFailed):
    """The log that replicas converge by does not answer, refuses, or is full. Each replica goes on alone."""


class EngineError(ContextPilotError):
    """The engine did not do its part."""


class EngineUnreachable(EngineError):
    """Nothing answers at the engine's address."""


class EngineRefused(EngineError):
    """The engine answered with an error status.

    Attributes:
        status: the HTTP status, or None where the engine gave none.
        retry_after: seconds that it asked to be left alone for, or None.
    """

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class EngineBrokeOff(EngineError):
    """The engine's answer ended before it was complete."""


class EventError(EngineError):
    """What an engine tells of its cache cannot be understood, or nobody can be listened to any more."""


class EngineUnavailable(EngineError):
    """A local engine cannot be started on this machine; the message says what is missing."""
