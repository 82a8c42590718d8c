"""The words of this library as types: block, context, request, alignment, usage. All frozen.

Two views of a block: `Block` is what the caller has (an id and a text); `BlockRef` is what the index needs (a hash of
the text and its weight in tokens). The index never sees texts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from .errors import InvalidBlock, SettingsError


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of retrieved text.

    Args:
        text: what goes into the prompt, unchanged.
        id: the caller's name for it, any hashable. None: the text's own hash is used.
        tokens: its length in tokens, where the caller knows it. None: counted or estimated.
        score: the retriever's score, kept for the caller; never part of a prompt.

    Raises:
        InvalidBlock: the text is no str, the id is not hashable, or tokens is not a positive int.

    >>> Block("Slices count from zero.", id="doc-7").id
    'doc-7'
    """

    text: str
    id: Hashable = None
    tokens: int | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", plain_text(self.text, f"block {short(self.id)}: text"))
        try:
            hash(self.id)
        except TypeError:
            raise InvalidBlock(
                f"block {short(self.id)}: an id of type {type(self.id).__name__} is not hashable"
            ) from None
        if self.tokens is not None and (type(self.tokens) is not int or self.tokens < 1):
            raise InvalidBlock(f"block {short(self.id)}: tokens must be a positive int, not {short(self.tokens)}")


@dataclass(frozen=True, slots=True)
class Context:
    """The blocks of one request, best first, as a retriever returned them.

    >>> len(Context((Block("a"), Block("b")), question="?"))
    2
    """

    blocks: tuple[Block, ...]
    question: str = ""

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


@dataclass(frozen=True, slots=True)
class Namespace:
    """What may share cached prefixes. Requests of different namespaces never learn from, or are ordered by, each other.

    The default namespace, all fields empty, has no cache salt: its prompts may share the engine's cache with anybody's.

    Args:
        tenant: whose requests they are.
        model: what answers them.
        corpus: where their blocks come from.
        head: stands for what comes before the blocks, where that is not the same for all requests; conversations set
            it. It separates what is believed cached, and no more: the cache salt does not depend on it.

    Raises:
        SettingsError: a field that is no str.
    """

    tenant: str = ""
    model: str = ""
    corpus: str = ""
    head: str = ""

    def __post_init__(self) -> None:
        for name in ("tenant", "model", "corpus", "head"):
            if not isinstance(getattr(self, name), str):
                raise SettingsError(f"a namespace's {name} must be str, not {type(getattr(self, name)).__name__}")

    def __bool__(self) -> bool:
        return bool(self.tenant or self.model or self.corpus)


@dataclass(frozen=True, slots=True)
class OrderBudget:
    """How much of the retriever's order a request may give up, and for how much gain.

    Args:
        order: "retrieved" never reorders; "balanced" puts the heaviest cached prefix first, then the rest as retrieved;
            "throughput" puts the heaviest cached prefix first, then the rest so that later requests can share the most;
            "fixed" sorts by key, whatever was asked before, so that processes that share no index agree.
        min_gain: "balanced" reorders only if the predicted gain over the retriever's own order is at least this share
            (0 to 1) of the blocks' tokens. "throughput" takes every gain: what it reorders today, later requests share;
            "fixed" does not look at gains.
        protect_top: this many of the best blocks keep their places.
        max_displacement: no block moves further than this many places. None: no limit.
    """

    order: str = "balanced"
    min_gain: float = 0.25
    protect_top: int = 0
    max_displacement: int | None = None


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block as the index sees it: a key that is equal for equal text, and its weight in tokens."""

    key: Hashable
    tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the index.

    Args:
        blocks: distinct blocks, best first.
        namespace: whose cache this is about.
        budget: how much reordering is allowed.
        key: the caller's name for the request; comes back on the alignment.
    """

    blocks: tuple[BlockRef, ...]
    namespace: Namespace = Namespace()
    budget: OrderBudget = OrderBudget()
    key: Hashable = None

    @property
    def tokens(self) -> int:
        """Tokens of all blocks."""
        return sum(block.tokens for block in self.blocks)


Arm = Literal["aligned", "control"]
"""What a request shows by its answer: how alignment does, or how the retriever's order would."""


class Rule(str, Enum):
    """What decided the order of an alignment."""

    OFF = "off"
    NOTHING_GAINED = "nothing_gained"
    OVER_BUDGET = "over_budget"
    BELOW_MIN_GAIN = "below_min_gain"
    PREFIX = "prefix"
    PLANNED = "planned"
    TAIL = "tail"
    FIXED = "fixed"
    CONVERSATION = "conversation"
    FAILED_OPEN = "failed_open"
    CONTROL = "control"
    QUALITY = "quality"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Belief:
    """What an index noted when it took a request as sent, to judge by the usage report later how good its belief was.

    Args:
        at: the index's count of uses, after this one.
        since: the same when the prefix that was predicted to be cached had been used last, by a request that was
            answered before this one came; None: there is none, or it was still under way.
        uses: the same for each part of that prefix, which ends after so many blocks: (blocks, since).
        tree: whose count it is. Of a tree that was forgotten since, or is another process's, it says nothing.
    """

    at: int
    since: int | None = None
    uses: tuple[tuple[int, int | None], ...] = ()
    tree: int = 0


@dataclass(frozen=True, slots=True)
class Alignment:
    """The order chosen for a request, with the predicted cached tokens.

    Args:
        request: what was asked.
        order: positions in ``request.blocks``, in prompt order; always a permutation.
        cached_blocks: how many leading blocks of that order are predicted to be cached.
        predicted_cached_tokens: their tokens (of blocks only; the system prompt is not counted).
        retrieved_cached_tokens: what the retriever's own order would have found cached.
        rule: what decided.
        ticket: what an index that is a service calls it; usage is reported with it.
        engine: the name of the engine that it should go to; None: wherever you send it.
        expected_cached_tokens: what the engine should report for the whole prompt, chat template and system prompt
            included, in whole KV blocks; None: not known.
        belief: the index's own.
    """

    request: Request
    order: tuple[int, ...]
    cached_blocks: int = 0
    predicted_cached_tokens: int = 0
    retrieved_cached_tokens: int = 0
    rule: Rule = Rule.NOTHING_GAINED
    ticket: str | None = field(default=None, compare=False)
    engine: str | None = field(default=None, compare=False)
    expected_cached_tokens: int | None = field(default=None, compare=False)
    belief: Belief | None = field(default=None, compare=False, repr=False)

    @property
    def changed(self) -> bool:
        """Whether the order differs from the retriever's."""
        return any(position != rank for position, rank in enumerate(self.order))

    @property
    def reason(self) -> str:
        """Why the order is as it is, in one sentence."""
        gain = self.predicted_cached_tokens - self.retrieved_cached_tokens
        total = self.request.tokens
        share = f"{gain / total:.0%}" if total else "0%"
        return {
            Rule.OFF: "order='retrieved': the retriever's order was kept as asked",
            Rule.NOTHING_GAINED: "no other order would find more in the cache",
            Rule.OVER_BUDGET: "an order that would gain enough breaks protect_top or max_displacement",
            Rule.BELOW_MIN_GAIN: f"less than min_gain ({self.request.budget.min_gain:.0%} of {total} tokens) to gain",
            Rule.PREFIX: f"the first {self.cached_blocks} blocks are believed cached: {gain} tokens "
            f"({share} of the blocks) gained",
            Rule.PLANNED: "requests that follow in the plan share the first blocks of this order",
            Rule.TAIL: "nothing more is cached, but requests like the recent ones can share more of this order",
            Rule.FIXED: "order='fixed': blocks stand in the order of their keys, whatever was asked before",
            Rule.CONVERSATION: "what stands before these blocks is this conversation's alone: no order shares more",
            Rule.FAILED_OPEN: "the index failed; the retriever's order was kept",
            Rule.CONTROL: "another order would gain, but this is one of those that its answers are compared with",
            Rule.QUALITY: "answers in other orders were rated worse: the retriever's order is kept",
        }[self.rule]


@dataclass(frozen=True, slots=True)
class Usage:
    """What an engine reported for one request, in tokens. None means "not reported", never zero."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class IndexStats:
    """Counts since the index was made.

    Tokens are of blocks, by the pilot's own count, except the reported ones: those are of whole prompts, as the engine
    counted. ``predicted_cached_tokens`` over ``block_tokens`` is the hit ratio that the index believes in, and
    ``retrieved_cached_tokens`` over ``block_tokens`` what it believes the retriever's order would have had.
    ``predicted_of_reported`` is what was expected of the requests whose cached tokens were reported, and
    ``reported_of_expected`` what was reported of these: both only of requests with ``expected_cached_tokens``, so of
    those where it was known what stands before the blocks. ``cold_prefixes`` counts the reports that a believed prefix
    was gone, and ``pruned_blocks`` the tree's entries that were dropped for it.
    """

    requests: int = 0
    changed: int = 0
    block_tokens: int = 0
    predicted_cached_tokens: int = 0
    retrieved_cached_tokens: int = 0
    observed: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0
    cached_not_reported: int = 0
    namespaces: int = 0
    tree_blocks: int = 0
    tree_tokens: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    predicted_of_reported: int = 0
    cold_prefixes: int = 0
    pruned_blocks: int = 0
    reported_of_expected: int = 0

    @property
    def calibration(self) -> float | None:
        """Cached tokens as reported over those that were expected of the same requests; None: none were expected.

        More than 1: more was found than was known when the request was aligned, as of requests that were aligned at
        the same time and share a prefix, or of questions that begin alike.
        """
        return self.reported_of_expected / self.predicted_of_reported if self.predicted_of_reported else None


def short(value: object) -> str:
    """A repr that can neither flood a log nor fail."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  somebody else's __repr__, or an int of too many digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def plain_text(value: object, what: str) -> str:
    """A text as a plain str: a subclass may format, compare or encode itself as something else.

    Raises:
        InvalidBlock: it is no str.
    """
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise InvalidBlock(f"{what} must be str, not {type(value).__name__}")
