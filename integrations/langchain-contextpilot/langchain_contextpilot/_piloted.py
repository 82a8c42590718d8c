"""What a retriever and a compressor have in common: a pilot, its settings, and placing documents with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.prompt.prompt import AlignedPrompt
from contextpilot_rag.settings import Order, RequestOptions, Wording
from contextpilot_rag.types import Rule
from langchain_core.documents import Document
from langchain_core.prompts import BasePromptTemplate
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SkipValidation
from typing_extensions import Self

from ._checking import check_names, prompt_checked
from ._config import NamespaceLike, named, namespace_in, required
from ._placing import Found, found, placed


class Piloted(BaseModel):
    """Places documents with a pilot. What is set later counts from the next request on.

    Args:
        pilot: a `ContextPilot` or `AsyncContextPilot` to share, an index or its address, or None: an index of its own
            in this process. Reads as the `ContextPilot` in use.
        namespace: what may share cached prefixes: a `Namespace`, or a tenant's name, number or UUID; None: the pilot's.
            A request's config can name another.
        require_namespace: whether a request that no namespace is named for is an error.
        document_prompt: renders a document where your chain does; None: only its content reaches the prompt.
        order: as all that follow, a setting of `contextpilot_rag.Settings`; None: the pilot's.

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have.
        ValidationError: pydantic's, for a wrong type.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    pilot: Any = Field(default=None, exclude=True, repr=False)
    namespace: NamespaceLike | None = None
    require_namespace: bool = False
    document_prompt: SkipValidation[BasePromptTemplate[str] | None] = Field(default=None, exclude=True, repr=False)
    order: Order | None = None
    min_gain: float | None = None
    protect_top: int | None = None
    max_displacement: int | None = None
    echo: int | None = None
    order_hint: bool | Wording | None = None
    _adapter: Adapter = PrivateAttr()

    if not TYPE_CHECKING:  # type checkers know the fields; these let our own errors through as they are

        def __init__(self, **values: Any) -> None:  # noqa: ANN401
            check_names(values, type(self).model_fields, type(self).__name__)
            super().__init__(**{name: _checked(name, value) for name, value in values.items()})
            self._adapter = Adapter(self.pilot, **self._options())
            self.__dict__["pilot"] = self._adapter.pilot  # so that whoever is made from these fields shares the index

        def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
            value = _checked(name, value)
            adapter = None
            if name == "pilot" or name in RequestOptions.__annotations__:
                if value is not getattr(self, name):
                    pilot = value if name == "pilot" else self.pilot
                    adapter = Adapter(pilot, **self._options(**({} if name == "pilot" else {name: value})))
                value = adapter.pilot if adapter is not None and name == "pilot" else value
            super().__setattr__(name, value)
            if adapter is not None:
                self._adapter = adapter

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that shares the index, with some settings changed. They are checked as if they were set."""
        changes = {} if update is None else update
        check_names(changes, type(self).model_fields, type(self).__name__)
        copied = super().model_copy(deep=deep)
        for name, value in changes.items():
            setattr(copied, name, value)
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Piloted:
        """A copy that shares the index: there is one engine, whoever asks it."""
        memo = {} if memo is None else memo
        memo[id(self.pilot)], memo[id(self._adapter)] = self.pilot, self._adapter
        return super().__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        """Everything but the pilot, which has locks: after pickling there is another one."""
        state = dict(super().__getstate__())
        return {**state, "__dict__": {**state["__dict__"], "pilot": None}, "__pydantic_private__": {}}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        self._adapter = Adapter(None, **self._options())
        self.__dict__["pilot"] = self._adapter.pilot

    @property
    def adapter(self) -> Adapter:
        """What places the documents; `ContextPilotCallbackHandler` reports to it."""
        return self._adapter

    @property
    def failures(self) -> int:
        """How often something of ours failed, and the documents went out as they were retrieved."""
        return self._adapter.failures

    def _options(self, **changed: Any) -> RequestOptions:  # noqa: ANN401
        given = {name: getattr(self, name) for name in RequestOptions.__annotations__} | changed
        return cast("RequestOptions", {name: value for name, value in given.items() if value is not None})

    def _place(
        self, documents: Sequence[Document], question: str, namespace: Namespace | str | None, k: int | None = None
    ) -> Sequence[Document]:
        given = self._read(documents, k)
        prompt = self._adapter.arrange(given.texts, question, namespace=namespace) if given else None
        return self._result(documents, given, prompt, k)

    async def _aplace(
        self, documents: Sequence[Document], question: str, namespace: Namespace | str | None, k: int | None = None
    ) -> Sequence[Document]:
        given = self._read(documents, k)
        prompt = await self._adapter.aarrange(given.texts, question, namespace=namespace) if given else None
        return self._result(documents, given, prompt, k)

    def _space(
        self, *places: Mapping[str, Any] | None, default: Mapping[str, Any] | None = None
    ) -> Namespace | str | None:
        """The namespace that a request's config names, or ours. The adapter knows none, so all copies can share it."""
        space = namespace_in(*places)
        if space is None:
            space = namespace_in(default)
        return required(space, named(self.namespace), required=self.require_namespace)

    def _read(self, documents: Sequence[Document], k: int | None) -> Found | None:
        """The texts of the first k documents; None if something failed, or there is none."""
        try:
            given = found(documents, self.document_prompt).first(k, normalise=self._normalise)
        except Exception as error:  # noqa: BLE001  fails open: the documents are there
            self._adapter.failed(error)
            return None
        return given if given.texts else None

    def _result(
        self, documents: Sequence[Document], given: Found | None, prompt: AlignedPrompt | None, k: int | None
    ) -> Sequence[Document]:
        if given is not None and prompt is not None and prompt.rule is not Rule.FAILED_OPEN:
            try:
                return placed(given, prompt)
            except Exception as error:  # noqa: BLE001  fails open: the documents are there
                self._adapter.failed(error)
        return documents if k is None else documents[:k]

    def _differing(self, documents: Sequence[Document]) -> int | None:
        """How many documents differ in their texts; None if that cannot be told."""
        try:
            return found(documents, self.document_prompt).count(normalise=self._normalise)
        except Exception:  # noqa: BLE001  placing them will fail in the same way, and count it
            return None

    @property
    def _normalise(self) -> bool:
        pilot: ContextPilot = self._adapter.pilot
        return pilot.settings.normalise


def _checked(name: str, value: Any) -> Any:  # noqa: ANN401
    """A setting's value, as far as we look at it ourselves."""
    if name == "namespace":
        return named(value)
    return prompt_checked(value) if name == "document_prompt" else value
