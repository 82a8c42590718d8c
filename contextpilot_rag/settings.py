"""All settings in one frozen object, checked when it is made.

Each can be given by keyword, or by an environment variable: ``CONTEXTPILOT_`` and the name in capitals.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from .checking import check_known, checked, kinds_of, parsed, repr_of, warn_of_unknown
from .errors import SettingsError
from .types import OrderBudget

ENVIRONMENT_PREFIX = "CONTEXTPILOT_"
SERVICE_PREFIX = "CONTEXTPILOT_SERVE_"  # of the service's settings, which are its own
PROXY_PREFIX = "CONTEXTPILOT_PROXY_"  # and of the proxy's
SECRETS = frozenset({"api_key", "engines", "salt_secret"})  # never shown: an engine may have a key, too

Order = Literal["retrieved", "balanced", "throughput", "fixed"]
OnError = Literal["open", "raise"]
Routing = Literal["pilot", "external"]
DedupLevel = Literal["off", "blocks", "blocks+chunks"]
Wording = Literal["order", "best", "title", "sentence"]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Half = Annotated[float, Meta(gt=0, le=0.5)]


class RequestOptions(TypedDict, total=False):
    """The settings that one request may have of its own; see `Settings`."""

    order: Order
    min_gain: float
    protect_top: int
    max_displacement: int | None
    echo: int
    order_hint: bool | Wording


class PilotOptions(RequestOptions, total=False):
    """All settings, as keywords; see `Settings`."""

    capacity_tokens: int | None
    kv_block_tokens: int | None
    cache_seconds: float | None
    max_blocks: int
    max_namespaces: int
    history_requests: int
    on_error: OnError
    salt_secret: str
    enabled: bool
    dedup: DedupLevel
    normalise: bool
    max_text: int
    max_conversations: int
    conversation_seconds: float
    conversation_characters: int
    api_key: str
    index_timeout: float
    routing: Routing
    quality_drop: float | None
    quality_control: float


# Settings that shape the index or belong to the whole pilot.
_FIXED = frozenset(PilotOptions.__annotations__) - frozenset(RequestOptions.__annotations__) | {"index", "engines"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set. Every value is checked; a wrong or unknown one raises `SettingsError` with what is allowed.

    Args:
        order: "retrieved" never reorders; "balanced" puts the heaviest cached prefix first, the rest as retrieved;
            "throughput" puts the rest, too, in the order that requests like the recent ones can share best; "fixed"
            sorts by text, whatever was asked before: for processes that share an engine but no index.
        min_gain: "balanced" reorders only if the predicted gain is at least this share (0 to 1) of the blocks' tokens;
            "throughput" takes every gain; "fixed" asks for none.
        protect_top: this many of the best blocks keep their places.
        max_displacement: no block moves further than this many places; None: no limit.
        echo: this many of the best blocks stand once more after the last one, if the order changed and they are not the
            last ones anyway. Costs their tokens, not the shared prefix.
        order_hint: how the model is told the order of relevance, where it changed. "order": all labels in that order;
            "best": the best block's label; "title": that, and how the block begins; "sentence": that, and the sentence
            of the block that has most words of the question. True: "order". False: it is not told; docs/quality.md says
            what was measured.
        capacity_tokens: what the engine's cache holds for one namespace, in tokens; None: not known, no limit.
        kv_block_tokens: tokens of one of the engine's KV blocks: what is shared below one counts as nothing; None: not
            known.
        cache_seconds: what was not used for so long is taken as evicted from the engine's cache; None: however long.
        max_blocks: entries the index keeps for each namespace.
        max_namespaces: namespaces the index keeps.
        history_requests: recent requests of each namespace that "throughput" learns its orders from.
        on_error: "open": if the index fails, the retriever's order goes out; "raise": `IndexFailed` is raised.
        salt_secret: secret that the engine's cache salts are derived with, and that replicas sign with; all have one.
        enabled: False: as ``order="retrieved"``, whatever orders the code asks for; a switch for incidents.
        dedup: "off" gives every block in full, each time; "blocks" gives a block once in a conversation, and a location
            hint for it from then on; "blocks+chunks" does the same for parts of blocks and of tools' results.
        normalise: texts that differ only in line ends, Unicode form (NFC) or blanks at the ends of lines are the same.
        max_text: characters of one text; longer ones are an error where they would be searched for repeats.
        max_conversations: conversations the pilot keeps; the one used longest ago goes.
        conversation_seconds: a conversation that was not used for so long goes.
        conversation_characters: of all conversations together; the ones used longest ago go.
        api_key: for an index that is a service.
        index_timeout: seconds that such an index has to answer in; after that the retriever's order goes out.
        index: "embedded", or the address of a service or of replicas' log, for pilots that are given no index.
        engines: for pilots that are given none: addresses, each perhaps with settings of `Engine` behind it
            (``http://HOST:PORT events=tcp://HOST:PORT``), separated by commas.
        routing: "pilot" says for each request which engine it should go to; "external": somebody else chooses, and one
            tree stands for all engines.
        quality_drop: alignment is turned off for a namespace once it is sure that ratings (``pilot.rate``) of aligned
            requests are lower by more than this than those of requests sent as retrieved; None: never.
        quality_control: the share of requests that are sent as retrieved to compare with, where ``quality_drop`` is
            set; as many are still aligned where alignment is turned off.

    Raises:
        SettingsError: a value of the wrong type or out of range.

    >>> Settings(min_gain=0.2).min_gain
    0.2
    >>> Settings(min_gain=2)
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.SettingsError: min_gain: Expected `float` <= 1.0 (got 2)
    """

    order: Order = "balanced"
    min_gain: Share = 0.25
    protect_top: Count = 0
    max_displacement: Count | None = None
    echo: Count = 0
    order_hint: bool | Wording = False
    capacity_tokens: Positive | None = None
    kv_block_tokens: Positive | None = None
    cache_seconds: Seconds | None = None
    max_blocks: Positive = 1_000_000
    max_namespaces: Positive = 1_000
    history_requests: Positive = 2_000
    on_error: OnError = "open"
    salt_secret: str = ""
    enabled: bool = True
    dedup: DedupLevel = "blocks"
    normalise: bool = True
    max_text: Positive = 64 * 2**20
    max_conversations: Positive = 10_000
    conversation_seconds: Seconds = 86_400.0
    conversation_characters: Positive = 256 * 2**20
    api_key: str = ""
    index_timeout: Seconds = 0.05
    index: str = "embedded"
    engines: str = ""
    routing: Routing = "pilot"
    quality_drop: Share | None = None
    quality_control: Half = 0.1

    def __post_init__(self) -> None:
        for name, kind in _kinds().items():
            object.__setattr__(self, name, checked(name, getattr(self, name), kind, secret=name in SECRETS))

    def __repr__(self) -> str:
        return repr_of(self, _kinds(), _shown)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:  # noqa: ANN401
        """Settings from the environment, overridden by keywords.

        Args:
            environ: where to look; None: the process's environment.
            **given: settings by name.

        Raises:
            SettingsError: a name that is no setting, or a value that it cannot have.

        >>> Settings.from_env({"CONTEXTPILOT_PROTECT_TOP": "2"}).protect_top
        2
        """
        environ = os.environ if environ is None else environ
        ours = {name: text for name, text in environ.items() if not name.startswith((SERVICE_PREFIX, PROXY_PREFIX))}
        warn_of_unknown(ours, ENVIRONMENT_PREFIX, _kinds())
        values = {field.name: of_environment(field.name, field.default, environ) for field in fields(cls)}
        check_known(given, _kinds())
        return cls(**{**values, **given})

    def with_(self, **given: Any) -> Settings:  # noqa: ANN401
        """A copy with some settings changed.

        Raises:
            SettingsError: a name that is no setting, or a value that it cannot have.

        >>> Settings().with_(ordr="balanced")
        Traceback (most recent call last):
            ...
        contextpilot_rag.errors.SettingsError: unknown setting 'ordr'; did you mean 'order'?
        """
        if not given:
            return self
        check_known(given, _kinds())
        return replace(self, **given)

    def for_request(self, options: Mapping[str, Any]) -> Settings:
        """A copy for one request.

        Raises:
            SettingsError: a name that is no setting, or none of a single request, or a value that it cannot have.

        >>> Settings().for_request({"max_blocks": 5})
        Traceback (most recent call last):
            ...
        contextpilot_rag.errors.SettingsError: max_blocks belongs to the pilot and cannot be set for one request
        """
        fixed = _FIXED.intersection(options)
        if fixed:
            raise SettingsError(f"{min(fixed)} belongs to the pilot and cannot be set for one request")
        return self.with_(**options)

    @property
    def budget(self) -> OrderBudget:
        """The part that the index needs."""
        if not self.enabled:
            return OrderBudget("retrieved")
        return OrderBudget(self.order, self.min_gain, self.protect_top, self.max_displacement)


def _shown(name: str, value: Any) -> str:  # noqa: ANN401
    if value and name in SECRETS:
        return repr("***")
    if name == "index" and ("@" in value or "?" in value):  # there may be a password in it
        return repr(f"{value.partition('://')[0]}://***" if "://" in value else "***")
    return repr(value)


def _kinds() -> dict[str, Any]:
    return kinds_of(Settings)


def of_environment(setting: str, otherwise: Any, environ: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
    """A single setting as the environment has it.

    Args:
        setting: its name.
        otherwise: what it is where the environment does not have it.
        environ: where to look; None: the process's environment.

    Raises:
        SettingsError: a value that it cannot have.

    >>> of_environment("min_gain", 0.1, {"CONTEXTPILOT_MIN_GAIN": "0.2"})
    0.2
    """
    text = (os.environ if environ is None else environ).get(name_of(setting))
    if not text:  # an empty variable is one that was not set, as compose files write it
        return otherwise
    return parsed(name_of(setting), text, _kinds()[setting], secret=setting in SECRETS)


def name_of(setting: str) -> str:
    """A setting's environment variable.

    >>> name_of("min_gain")
    'CONTEXTPILOT_MIN_GAIN'
    """
    return ENVIRONMENT_PREFIX + setting.upper()
