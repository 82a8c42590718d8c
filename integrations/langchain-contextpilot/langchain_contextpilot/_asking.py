"""How to ask somebody else's retriever for a number of documents."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.vectorstores import VectorStoreRetriever
from pydantic import BaseModel

_WRAPPERS = (RunnableBindingBase, RunnableWithFallbacks, DynamicRunnable)
_INNER = (
    "bound",
    "base_retriever",
    "runnable",
    "default",
)  # where a wrapper has the retriever that it passes its keywords to


def asking(base: RetrieverLike, k: int, *, waiting: bool = False) -> tuple[RetrieverLike, dict[str, Any]] | None:
    """The retriever to ask for k documents, and the keywords to ask it with.

    Args:
        base: is not changed. One that has a field ``k`` and takes no keyword is copied with another.
        k: how many.
        waiting: it will be awaited. A retriever may take the keyword only where it is not, or the other way round.

    Returns:
        None if it cannot be told how many.

    >>> from langchain_core.runnables import RunnableLambda
    >>> asking(RunnableLambda(lambda question: []), 3) is None
    True
    """
    if isinstance(base, BaseRetriever):
        parameters = inspect.signature(_method(base, waiting=waiting)).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        has_k = isinstance(base, VectorStoreRetriever) or type(getattr(base, "k", None)) is int
        if "k" in parameters or (takes_any and has_k):
            return base, {"k": k}
        if has_k and "k" in type(base).model_fields:
            return base.model_copy(update={"k": k}), {}
        if not takes_any:
            return None
    elif not isinstance(base, _WRAPPERS):
        return None
    return _through(base, k, waiting=waiting)


def _method(base: BaseRetriever, *, waiting: bool) -> Callable[..., Any]:
    """What the retriever's invoke, or ainvoke, hands the keywords to."""
    return base._aget_relevant_documents if waiting else base._get_relevant_documents  # noqa: SLF001  no other way


def _through(wrapper: BaseModel, k: int, *, waiting: bool) -> tuple[Any, dict[str, Any]] | None:
    """Asking what a wrapper wraps, through the wrapper."""
    for name in _INNER:
        inner = getattr(wrapper, name, None)
        asked = None if inner is None else asking(inner, k, waiting=waiting)
        if asked is not None:
            return (wrapper if asked[0] is inner else wrapper.model_copy(update={name: asked[0]})), asked[1]
    return None
