"""Who does the work: processes of a Ray cluster, or this one.

Tasks are pure functions of their arguments, so that one whose process died is done again elsewhere, to the same end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..errors import MissingPackage

RETRIES = 8  # of a task whose process died


class Workers(Protocol):
    """Does tasks. What they return stays there; a reference stands for it, as the argument of another task, too."""

    lanes: int
    """How many tasks are done at a time."""

    def put(self, value: object) -> Any:  # noqa: ANN401  a reference
        """A value that many tasks take."""
        ...

    def submit(self, function: Callable[..., Any], *arguments: object, returns: int = 1) -> Any:  # noqa: ANN401
        """Begin a task; a reference to its result, or a list of references to each of several."""
        ...

    def get(self, reference: object) -> Any:  # noqa: ANN401
        """What a reference stands for, as soon as it is there."""
        ...


class InThisProcess:
    """Does each task at once, here.

    >>> workers = InThisProcess()
    >>> workers.get(workers.submit(max, workers.put(2), 3))
    3
    """

    lanes = 1

    def put(self, value: object) -> Any:  # noqa: ANN401
        """The value itself."""
        return value

    def submit(self, function: Callable[..., Any], *arguments: object, returns: int = 1) -> Any:  # noqa: ANN401
        """The result itself."""
        result = function(*arguments)
        return list(result) if returns > 1 else result

    def get(self, reference: object) -> Any:  # noqa: ANN401
        """The same again."""
        return reference


class RayWorkers:
    """The Ray that this process is connected to; if it is to none, Ray starts or finds one, as it always does.

    Raises:
        MissingPackage: Ray is not installed.
    """

    def __init__(self) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingPackage.of(error, "plans on Ray need", "contextpilot-rag[ray]") from error
        if not ray.is_initialized():
            ray.init()
        self._ray: Any = ray
        self._remote: dict[Callable[..., Any], Any] = {}
        self.lanes = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def put(self, value: object) -> Any:  # noqa: ANN401
        """Into the object store."""
        return self._ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: object, returns: int = 1) -> Any:  # noqa: ANN401
        """A Ray task on one CPU."""
        if function not in self._remote:
            self._remote[function] = self._ray.remote(max_retries=RETRIES)(function)
        return self._remote[function].options(num_returns=returns).remote(*arguments)

    def get(self, reference: object) -> Any:  # noqa: ANN401
        """Out of the object store; the task's own error, if it raised one."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
