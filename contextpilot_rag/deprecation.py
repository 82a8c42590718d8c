"""What goes with a later version, and says so until then. CONTRIBUTING has the policy.

Each mark names, as literal texts, the version since which it warns and the major version that removes it; a test reads
them from the source and fails when that version has come and the name is still there.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(*, since: str, removed_in: str, instead: str) -> Callable[[F], F]:
    """Mark a function, a method or a class: calling it warns, once for each place that calls it.

    Beneath ``@property``, ``@classmethod`` or ``@staticmethod``, not above them.

    Args:
        since: the version that warns first: ``"1.2"``.
        removed_in: the version that no longer has it: ``"2.0"``.
        instead: what to use: ``"ContextPilot.align"``, or a sentence's end: ``"nothing: it is always on"``.

    >>> @deprecated(since="1.2", removed_in="2.0", instead="new")
    ... def old() -> int:
    ...     return 1
    >>> import warnings
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     old()
    1
    >>> print(caught[0].message)
    old is deprecated since 1.2 and goes with 2.0; use new
    """

    def mark(named: F) -> F:
        message = _message(named.__qualname__, since, removed_in, instead)
        if isinstance(named, type):
            _warn_when_made(named, message)
            return named

        @functools.wraps(named)
        def warning(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever it takes and gives
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return named(*args, **kwargs)

        return _as_it_is_called(warning, named)

    return mark


def renamed_argument(old: str, new: str, *, since: str, removed_in: str) -> Callable[[F], F]:
    """Mark a function or a method whose argument has another name now; the old one is still taken, and warns.

    Args:
        old: the argument's name until now; the function itself does not have it any more.
        new: its name from now on.
        since: the version that warns first.
        removed_in: the version that takes only the new name.

    Raises:
        TypeError: of the marked function: a call has both.

    >>> @renamed_argument("count", "blocks", since="1.2", removed_in="2.0")
    ... def keep(*, blocks: int) -> int:
    ...     return blocks
    >>> keep(blocks=3)
    3
    """

    def mark(named: F) -> F:
        what = f"{named.__qualname__}: the argument {old}"
        message = _message(what, since, removed_in, new)

        @functools.wraps(named)
        def renaming(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever it takes and gives
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{named.__qualname__}() got both {new} and {old}, which is its former name")
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return named(*args, **kwargs)

        return _as_it_is_called(renaming, named)

    return mark


def renamed_names(
    module: Mapping[str, object], names: Mapping[str, str], *, since: str, removed_in: str
) -> Callable[[str], object]:
    """A module's ``__getattr__`` that still knows its former names, and warns where they are used.

    Args:
        module: the module's ``globals()``.
        names: the new name by the former one; the module has the new ones.
        since: the version that warns first.
        removed_in: the version that only has the new names.

    >>> __getattr__ = renamed_names({"Alignment": "new", "__name__": "here"}, {"Order": "Alignment"}, since="1.2",
    ...     removed_in="2.0")
    >>> __getattr__("Orders")
    Traceback (most recent call last):
    AttributeError: module 'here' has no attribute 'Orders'
    """

    def former(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        warnings.warn(_message(name, since, removed_in, names[name]), DeprecationWarning, stacklevel=2)
        return module[names[name]]

    return former


def _message(what: str, since: str, removed_in: str, instead: str) -> str:
    return f"{what} is deprecated since {since} and goes with {removed_in}; use {instead}"


def _warn_when_made(named: type, message: str) -> None:
    """Making one warns. Making one of a class that inherits from it does not: whoever wrote that has been warned."""
    making = named.__init__  # type: ignore[misc]
    made_before = making is object.__init__ and any("__new__" in vars(one) for one in named.__mro__[:-1])

    @functools.wraps(making)
    def warning(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  whatever it takes
        if type(self) is named:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        if made_before:  # it has no __init__ of its own, and object's takes no arguments
            return
        making(self, *args, **kwargs)

    named.__init__ = warning  # type: ignore[misc]


def _as_it_is_called(wrapper: Callable[..., Any], named: F) -> F:
    """The wrapper, which is taken for a coroutine function if what it wraps is one (where Python can be told)."""
    if inspect.iscoroutinefunction(named) and sys.version_info >= (3, 12):
        wrapper = inspect.markcoroutinefunction(wrapper)
    return wrapper  # type: ignore[return-value]
