"""What goes over the wire between the index service and its clients, as types. Both sides import this.

The service checks what it is sent against these, and its OpenAPI document is made from them. Sizes that can be set
(blocks of a request, length of an id) are the service's; those here are what no setting may exceed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ..settings import Wording
from ..types import Namespace, OrderBudget

MAX_FIELD = 256  # characters of a namespace's field, a conversation's name, an engine's name, a request's key
MAX_BLOCK_TOKENS = 100_000_000
MAX_KV_BLOCKS = 65_536  # of a prompt whose blocks' places are told
DIGEST = 16  # bytes

Field = Annotated[str, Meta(max_length=MAX_FIELD)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_FIELD)]
_NAMES = r"^[A-Za-z0-9_-]{16,64}$(?!\n)"
Ticket = Annotated[str, Meta(pattern=_NAMES, description="A ticket: 16 to 64 letters, digits, - or _.")]
Turn = Annotated[str, Meta(pattern=_NAMES, description="``turn`` of the conversation's last answer that was taken.")]
Hash = Annotated[
    str,
    Meta(
        pattern=r"^([0-9a-f]{2}){8,32}$(?!\n)",
        description="8 to 32 bytes in lower-case hexadecimal, equal exactly for equal text.",
    ),
]
Tokens = Annotated[int, Meta(ge=1, le=MAX_BLOCK_TOKENS)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Label = Annotated[int, Meta(ge=1, le=2**31)]
Key = Name | Annotated[int, Meta(ge=-(2**53), le=2**53)] | None
Order = Literal["retrieved", "balanced", "throughput", "fixed"]


class NamespaceIn(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What may share cached prefixes, within the tenant that the API key belongs to."""

    tenant: Field = ""
    model: Field = ""
    corpus: Field = ""
    head: Annotated[
        str, Meta(max_length=MAX_FIELD, description="Stands for what comes before the blocks, if not the same for all.")
    ] = ""


class BlockIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A block: by ``hash`` or ``id`` with its ``tokens``, or by its ``text``. The text is not kept.

    Who a block is follows from its hash, else from its text, else from its id.
    """

    id: Annotated[str, Meta(min_length=1, max_length=65_536)] | None = None
    hash: Hash | None = None
    tokens: Tokens | None = None
    text: str | None = None


class BudgetIn(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much of the retriever's order may be given up, and for how much gain."""

    order: Order = "balanced"
    min_gain: Annotated[float, Meta(ge=0, le=1)] = 0.25
    protect_top: Annotated[int, Meta(ge=0, le=65_536)] = 0
    max_displacement: Annotated[int, Meta(ge=0, le=65_536)] | None = None


class TurnIn(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which turn of which conversation a request is.

    ``after`` is the ``turn`` of the last answer that stands in this conversation's messages, and of no other answer to
    the same turn; without it nothing counts as given, and every block is to be given in full. ``next_label`` is above
    every label that stands in the conversation's messages; it may be left out only together with ``after``, where
    nothing stands there yet.
    """

    id: Name
    after: Turn | None = None
    next_label: Label | None = None


class AlignIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One request: its blocks, best first."""

    blocks: list[BlockIn]
    namespace: NamespaceIn = NamespaceIn()
    budget: BudgetIn = BudgetIn()
    conversation: TurnIn | None = None
    key: Key = None
    ticket: Annotated[
        Ticket | None, Meta(description="Chosen by the client: sent twice, it gets the first answer again.")
    ] = None
    engine: Annotated[Name | None, Meta(description="Which engine it goes to, for the counts.")] = None
    question: Annotated[
        str | None,
        Meta(description="Asks for `content`, the user message ready to send; every block then has to have its text."),
    ] = None
    order_hint: Annotated[
        bool | Wording,
        Meta(
            description="How a changed order is told: by all labels (`order`, or true), by the best block's (`best`), "
            "or with words of it, too (`title`, `sentence`: every block then has to have its text). False: it is not."
        ),
    ] = False


class BatchIn(Struct, forbid_unknown_fields=True):
    """Several requests, aligned one after another."""

    requests: list[AlignIn]


class AlignOut(Struct, omit_defaults=True):
    """The order chosen, what to label and what to leave out, and a ticket to report usage with."""

    ticket: str
    order: Annotated[
        list[int], Meta(description="Positions in the request's blocks, in prompt order; repeated blocks once.")
    ]
    labels: Annotated[list[int], Meta(description="The label of each of them.")]
    cached_blocks: int
    predicted_cached_tokens: int
    retrieved_cached_tokens: int
    rule: str
    reason: str
    key: str | int | None = None
    order_hint: str | None = None
    merged: Annotated[
        dict[int, int], Meta(description="Position of a block that repeats another: position of the other.")
    ] = {}
    location_hints: Annotated[
        dict[int, str], Meta(description="By label: what stands for a block that this conversation was given before.")
    ] = {}
    cache_salt: str | None = None
    turn: Annotated[
        str | None,
        Meta(description="Of a conversation: stands for this answer, as ``after`` of the turn that follows."),
    ] = None
    content: Annotated[
        str | None, Meta(description="Of the user message, if the request has a question: blocks, hint, question.")
    ] = None


class BatchOut(Struct):
    """The answers, in the order asked."""

    alignments: list[AlignOut]


class UsageDetailsIn(Struct, frozen=True, omit_defaults=True):
    """What an engine says of a prompt's tokens; whatever else it says there is ignored."""

    cached_tokens: Count | None = None


class UsageIn(Struct, frozen=True, omit_defaults=True):
    """What the engine reported, in tokens. Left out or null: not reported, which is not zero.

    An engine's usage object is taken as it is: that of chat completions and completions, or that of responses. Cached
    tokens may also stand beside the others. Fields that are not documented are ignored here, and only here.
    """

    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: UsageDetailsIn | None = None
    input_tokens: Annotated[Count | None, Meta(description="As responses call ``prompt_tokens``.")] = None
    input_tokens_details: UsageDetailsIn | None = None
    output_tokens: Annotated[Count | None, Meta(description="As responses call ``completion_tokens``.")] = None


class SentIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request that was sent in an order chosen elsewhere; all as `AlignIn` and `AlignOut` have it."""

    blocks: list[BlockIn]
    order: list[Annotated[int, Meta(ge=0, le=65_536)]]
    namespace: NamespaceIn = NamespaceIn()
    budget: BudgetIn = BudgetIn()
    cached_blocks: Count = 0
    predicted_cached_tokens: Count = 0
    retrieved_cached_tokens: Count = 0
    rule: str = "planned"
    key: Key = None
    ticket: Ticket | None = None
    engine: Name | None = None


class SentOut(Struct):
    """The ticket to report usage with."""

    ticket: str


class ObserveIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the engine reported for a request. A second report on a ticket changes nothing."""

    ticket: Ticket
    usage: UsageIn | None = UsageIn()


class ObserveOut(Struct):
    """Whether this was the first report on the ticket."""

    counted: bool


class CoverIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where the blocks of an answered prompt stand among the engine's KV blocks.

    The prompt's token ids stay with the client; ``contextpilot_rag.engines.chain`` says how the digests are made.
    """

    ticket: Ticket
    keys: Annotated[
        bytes,
        Meta(max_length=MAX_KV_BLOCKS * DIGEST, description="16 bytes for each full KV block: chained, with the salt."),
    ]
    contents: Annotated[
        bytes,
        Meta(max_length=MAX_KV_BLOCKS * DIGEST, description="16 bytes for each of them: its tokens by themselves."),
    ]
    ends: Annotated[
        list[Annotated[int, Meta(ge=0, le=MAX_BLOCK_TOKENS)]],
        Meta(
            max_length=65_537,
            description="For 0, 1, 2, ... blocks in prompt order: tokens that are the same whatever follows them.",
        ),
    ]
    tokens: Annotated[int, Meta(ge=0, le=MAX_BLOCK_TOKENS, description="Of the whole prompt.")]
    block_size: Annotated[int, Meta(ge=1, le=65_536, description="Tokens of a KV block.")]
    cached_tokens: Annotated[Count | None, Meta(description="As the engine reported; null: it did not.")] = None


class CoverOut(Struct):
    """Whether it is of use: an engine's events are listened to, and the ticket was not covered before."""

    taken: bool


class PredictOut(Struct):
    """Tokens that would be cached."""

    predicted_cached_tokens: int


class NamespaceOut(Struct, omit_defaults=True):
    """What is known of a namespace."""

    name: str
    namespace: NamespaceIn
    cache_salt: str | None = None
    tree_blocks: int = 0
    tree_tokens: int = 0


class NamespacesOut(Struct):
    """Namespaces of a tenant, used last first, and how many there are in all."""

    namespaces: list[NamespaceOut]
    total: int


class StatsOut(Struct):
    """Counts of a tenant since the service's start, and the sizes of what is kept for it."""

    requests: int
    changed: int
    block_tokens: int
    predicted_cached_tokens: int
    retrieved_cached_tokens: int
    observed: int
    reported_prompt_tokens: int
    reported_cached_tokens: int
    cached_not_reported: int
    namespaces: int
    tree_blocks: int
    tree_tokens: int
    tickets: int
    conversations: int
    rules: Annotated[dict[str, int], Meta(description="Requests by the rule that chose their order.")]
    predicted_of_reported: Annotated[
        int, Meta(description="What was expected to be cached of the requests whose cached tokens were reported.")
    ] = 0
    cold_prefixes: Annotated[
        int, Meta(description="Reports that a prefix was gone that was believed to be cached.")
    ] = 0
    pruned_blocks: Annotated[int, Meta(description="Entries of the trees that were dropped for it.")] = 0
    reported_of_expected: Annotated[
        int, Meta(description="What was reported as cached of the requests of which something was expected.")
    ] = 0


class HealthOut(Struct, omit_defaults=True):
    """What the service can do now; and whether it hears the other replicas, where there are any."""

    state: Literal["starting", "ready", "draining"]
    replica: Literal["joined", "alone"] | None = None


class Forgotten(Struct):
    """How many namespaces, or conversations, were forgotten; and conversations besides namespaces, where asked for."""

    forgotten: int
    conversations: int = 0


class Problem(Struct, omit_defaults=True):
    """An error, as RFC 9457 has it."""

    title: str
    status: int
    type: str = "about:blank"
    detail: str | None = None
    instance: str | None = None


def namespace_in(namespace: Namespace) -> NamespaceIn:
    """A namespace for the wire."""
    return NamespaceIn(namespace.tenant, namespace.model, namespace.corpus, namespace.head)


def namespace_from(given: NamespaceIn) -> Namespace:
    """A namespace from the wire."""
    return Namespace(given.tenant, given.model, given.corpus, given.head)


def budget_in(budget: OrderBudget) -> BudgetIn:
    """An order budget for the wire."""
    return BudgetIn(budget.order, budget.min_gain, budget.protect_top, budget.max_displacement)  # type: ignore[arg-type]


def budget_from(given: BudgetIn) -> OrderBudget:
    """An order budget from the wire."""
    return OrderBudget(given.order, given.min_gain, given.protect_top, given.max_displacement)
