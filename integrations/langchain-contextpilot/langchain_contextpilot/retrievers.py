"""ContextPilotRetriever: around your retriever; its documents in the order that the engine's cache can reuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from contextpilot_rag import Namespace
from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, RetrieverLike
from langchain_core.runnables import RunnableConfig, ensure_config, patch_config
from pydantic import ConfigDict, Field

from ._asking import asking
from ._checking import positive
from ._config import full_config
from ._piloted import Piloted

_MOST = 32  # times as many documents as are wanted are asked for at most


class ContextPilotRetriever(Piloted, BaseRetriever):
    """A retriever around another one: the same documents, in the order that the engine's prefix cache can reuse.

    Texts that come twice are placed once. ``metadata["contextpilot"]`` of each document has its ``rank`` (from 0, as
    it was retrieved), its ``label`` in the prompt, and its ``duplicates``, by id and metadata. All documents are
    copies. If nothing is to be gained they stand as they were retrieved.

    Args:
        base_retriever: any retriever.
        k: how many documents to return. The base is asked for more if too many have the same text, as long as it takes
            a ``k`` and gives more. None: all that the base returns. ``invoke(question, k=...)`` is for one request.
        over_fetch: how many documents more than k the base is asked for at first.
        pilot: see `Piloted`, as for all other settings.

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have; for a request a
            namespace or ``k`` that is none.

    >>> from langchain_core.runnables import RunnableLambda
    >>> lists = iter([["Slices.", "Steps."], ["Copies.", "Steps.", "Slices.", "Steps."]])
    >>> base = RunnableLambda(lambda question: [Document(text) for text in next(lists)])
    >>> retriever = ContextPilotRetriever(base_retriever=base, min_gain=0)
    >>> monday, tuesday = retriever.invoke("What is a slice?"), retriever.invoke("Does a slice copy?")
    >>> [(document.page_content, document.metadata["contextpilot"]["rank"]) for document in tuesday]
    [('Slices.', 2), ('Steps.', 1), ('Copies.', 0)]
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True)

    base_retriever: RetrieverLike
    k: int | None = Field(default=None, ge=1)
    over_fetch: int = Field(default=0, ge=0)

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002, ANN401
        """The documents for a question.

        Args:
            input: the question.
            config: ``configurable`` or ``metadata`` may have a ``contextpilot_namespace``.
            **kwargs: ``k``, and what the base takes.
        """
        config = full_config(config)
        return super().invoke(input, config, given_config=config, **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002, ANN401
        """As `invoke`, awaiting the base and the index."""
        config = full_config(config)
        return await super().ainvoke(input, config, given_config=config, **kwargs)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        given_config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> list[Document]:
        config, wanted, ask_for = self._request(given_config, run_manager, k)
        space = self._named(config, run_manager)  # said before anything is asked
        while True:
            base, extra = self._base(ask_for)
            documents = base.invoke(query, config, **kwargs, **extra)
            more = self._more(documents, wanted, ask_for, can=bool(extra) or base is not self.base_retriever)
            if more is None:
                break
            ask_for = more
        return list(self._place(documents, query, space, wanted))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        given_config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> list[Document]:
        config, wanted, ask_for = self._request(given_config, run_manager, k)
        space = self._named(config, run_manager)  # said before anything is asked
        while True:
            base, extra = self._base(ask_for, waiting=True)
            documents = await base.ainvoke(query, config, **kwargs, **extra)
            more = self._more(documents, wanted, ask_for, can=bool(extra) or base is not self.base_retriever)
            if more is None:
                break
            ask_for = more
        return list(await self._aplace(documents, query, space, wanted))

    def _request(
        self,
        given: RunnableConfig | None,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        k: int | None,
    ) -> tuple[RunnableConfig, int | None, int | None]:
        """The base's config, how many documents are wanted, and how many to ask for."""
        if k is not None:
            positive(k, "k")
        config = patch_config(given or ensure_config(), callbacks=run_manager.get_child())
        wanted = self.k if k is None else k
        return config, wanted, None if wanted is None else wanted + self.over_fetch

    def _base(self, ask_for: int | None, *, waiting: bool = False) -> tuple[RetrieverLike, dict[str, Any]]:
        asked = None if ask_for is None else asking(self.base_retriever, ask_for, waiting=waiting)
        return (self.base_retriever, {}) if asked is None else asked

    def _more(
        self, documents: Sequence[Document], wanted: int | None, asked_for: int | None, *, can: bool
    ) -> int | None:
        """How many to ask for again, since too many have the same text; None if there are enough, or no more."""
        if not can or wanted is None or asked_for is None or len(documents) < asked_for:
            return None
        differing = self._differing(documents)
        if differing is None or differing >= wanted or asked_for >= wanted * _MOST:
            return None
        return asked_for * 2

    def _named(
        self,
        config: RunnableConfig,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
    ) -> Namespace | str | None:
        # The config of who called us; its callbacks, which is all that some of LangChain's classes hand on; our own.
        places = config.get("configurable"), config.get("metadata"), run_manager.inheritable_metadata
        return self._space(*places, default=self.metadata)
