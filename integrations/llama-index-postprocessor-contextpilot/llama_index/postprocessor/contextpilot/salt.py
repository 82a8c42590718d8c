"""Salt: what keeps namespaces apart in the engine's cache, sent with each call to an LLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.llms import LLM

from .told import TOLD

_OPENAI_LIKE = "llama_index.llms.openai_like"


def takes_salt(llm: LLM, wanted: bool | None = None) -> bool:
    """Whether calls to an LLM carry a salt: as it is wanted, and if that is None, if the LLM is an ``OpenAILike``."""
    return type(llm).__module__.startswith(_OPENAI_LIKE) if wanted is None else wanted


def salted(llm: LLM, extra_body: Mapping[str, Any], wanted: bool | None = None) -> dict[str, Any]:
    """Keywords for a call to an LLM, so that it sends a namespace's salt.

    Classes that derive from ``OpenAILike`` are left alone: some speak to services that refuse what they do not know.

    Args:
        llm: that is called; it may send an ``extra_body`` of its own, which has precedence in the framework.
        extra_body: of the namespace; empty if it has no salt.
        wanted: None: if the LLM is an ``OpenAILike``.

    >>> from llama_index.core.llms import MockLLM
    >>> salted(MockLLM(), {"cache_salt": "x"}), salted(MockLLM(), {"cache_salt": "x"}, wanted=True)
    ({}, {'extra_body': {'cache_salt': 'x'}})
    """
    if not extra_body or not takes_salt(llm, wanted):
        return {}
    always = getattr(llm, "additional_kwargs", None)
    own = always.get("extra_body") if isinstance(always, Mapping) else None
    if own is None:
        return {"extra_body": dict(extra_body)}
    if not (isinstance(own, Mapping) and "cache_salt" in own):
        TOLD.warn(
            "the llm has an extra_body of its own, which takes the place of the namespace's cache_salt: add "
            "chat_engine.extra_body() to it, so that the engine's cache keeps namespaces apart"
        )
    return {}
