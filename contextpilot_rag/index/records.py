"""Records: what is told to a log of an index, and what an index that follows the log takes from it.

A record says what was done, in full: whoever has taken in the same records in the same order has the same index,
without having made any of the decisions itself. A record may come from another version of this library, or from
somebody who means harm: `checked` says whether it can be true at all.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from ..errors import StateError
from ..types import Alignment, Belief, BlockRef, Namespace, OrderBudget, Request, Rule, Usage
from .lengths import MOST_TOKENS
from .plain_keys import LONGEST, LONGEST_HEAD, MOST_BLOCKS

Keys = Annotated[list[Any], Meta(max_length=MOST_BLOCKS)]  # bytes, str or int: `checked` sees to it
Tokens = Annotated[list[Annotated[int, Meta(ge=0, le=MOST_TOKENS)]], Meta(max_length=MOST_BLOCKS)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Reported = Annotated[int, Meta(ge=0, le=MOST_TOKENS)] | None
Head = Annotated[str, Meta(max_length=LONGEST_HEAD)]
Name = Annotated[str, Meta(max_length=64)]

# Fields that later versions add stand behind these, so that each version reads what it knows of a record.


class Sent(Struct, array_like=True, tag="sent"):
    """A request was aligned, or taken as sent.

    Args:
        head: of its namespace.
        keys: of its blocks, as retrieved.
        tokens: theirs.
        order: ranks in prompt order; empty: as retrieved.
        cached_blocks: how many leading blocks of that order were believed to be cached.
        predicted: their tokens.
        retrieved: tokens that the retriever's own order would have found cached.
        rule: what decided.
        learn: protect_top and max_displacement of its budget, where tails learn from it.
        engine: where it went.
    """

    head: Head
    keys: Keys
    tokens: Tokens
    order: list[Count] = []
    cached_blocks: Count = 0
    predicted: Count = 0
    retrieved: Count = 0
    rule: str = Rule.NOTHING_GAINED.value
    learn: tuple[Count, Count | None] | None = None
    engine: str | None = None


class Observed(Struct, array_like=True, tag="observed"):
    """Usage was reported for a request.

    Args:
        head: of its namespace.
        keys: of its blocks, in prompt order.
        tokens: theirs.
        cached_blocks: how many leading ones were believed to be cached.
        predicted: their tokens.
        of: the record by which it was sent; empty: not known.
        tree: the tree that the belief is about.
        at: the count of uses when it was sent.
        uses: what the belief rests on; see `Belief`.
        prompt_tokens: as reported.
        cached_tokens: as reported.
        completion_tokens: as reported.
    """

    head: Head
    keys: Keys
    tokens: Tokens
    cached_blocks: Count = 0
    predicted: Count = 0
    of: Name = ""
    tree: Count = 0
    at: Count = 0
    uses: list[tuple[Count, Count | None]] = []
    prompt_tokens: Reported = None
    cached_tokens: Reported = None
    completion_tokens: Reported = None


class Failed(Struct, array_like=True, tag="failed"):
    """A request was not computed, and will not be. The fields are those of `Observed`."""

    head: Head
    keys: Keys
    tokens: Tokens
    cached_blocks: Count = 0
    tree: Count = 0
    at: Count = 0


class Forgot(Struct, array_like=True, tag="forgot"):
    """What was known of a namespace is to be forgotten.

    Args:
        head: under this head alone; empty: under any.
    """

    forgets: ClassVar[bool] = True  # what it concerns is to leave the log, too

    head: Head = ""


IndexRecord = Sent | Observed | Failed | Forgot


def sent(alignment: Alignment, *, learn: bool) -> Sent:
    """The record of an alignment."""
    request = alignment.request
    budget = request.budget
    return Sent(
        request.namespace.head,
        [block.key for block in request.blocks],
        [block.tokens for block in request.blocks],
        list(alignment.order) if alignment.changed else [],
        alignment.cached_blocks,
        alignment.predicted_cached_tokens,
        alignment.retrieved_cached_tokens,
        alignment.rule.value,
        (budget.protect_top, budget.max_displacement) if learn else None,
        alignment.engine,
    )


def observed(alignment: Alignment, usage: Usage, of: str) -> Observed:
    """The record of a report on an alignment that was taken in, with its belief."""
    belief = alignment.belief or Belief(0)
    return Observed(
        *_in_prompt_order(alignment),
        alignment.cached_blocks,
        alignment.predicted_cached_tokens,
        of,
        belief.tree,
        belief.at,
        list(belief.uses),
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
    )


def failed(alignment: Alignment) -> Failed:
    """The record of an alignment that was taken in and then not computed."""
    belief = alignment.belief or Belief(0)
    return Failed(
        *_in_prompt_order(alignment),
        alignment.cached_blocks,
        belief.tree,
        belief.at,
    )


def _in_prompt_order(alignment: Alignment) -> tuple[str, list[Any], list[int]]:
    """The head of its namespace, and its blocks' keys and tokens."""
    blocks = [alignment.request.blocks[rank] for rank in alignment.order]
    return alignment.request.namespace.head, [block.key for block in blocks], [block.tokens for block in blocks]


def checked(record: IndexRecord) -> IndexRecord:
    """A record that can be true.

    Raises:
        StateError: it cannot.
    """
    if isinstance(record, Forgot):
        return record
    size = len(record.keys)
    if len(record.tokens) != size:
        raise StateError("a record has blocks without tokens, or tokens without blocks")
    if not all(map(_sound, record.keys)):
        raise StateError(
            "a record has a block's key that is neither short bytes, nor a short text, nor a 64-bit number"
        )
    if len(set(record.keys)) != size:
        raise StateError("a record has a block twice")
    if record.cached_blocks > size:
        raise StateError("a record has more cached blocks than blocks")
    if isinstance(record, Sent):
        if record.order and sorted(record.order) != list(range(size)):
            raise StateError("a record's order is no permutation of its blocks")
        if max(record.predicted, record.retrieved) > sum(record.tokens):
            raise StateError("a record predicts more than there is")
    elif isinstance(record, Observed):
        ends = [end for end, _ in record.uses]
        if ends != sorted(set(ends)) or (ends and not 0 < ends[0] <= ends[-1] <= size):
            raise StateError("a record's belief rests on other blocks than its own")
    return record


def alignment_of(record: Sent | Observed | Failed, namespace: Namespace) -> Alignment:
    """The alignment that a record is about.

    Args:
        record: `checked`.
        namespace: with the record's head.
    """
    blocks = tuple([BlockRef(key, tokens or 1) for key, tokens in zip(record.keys, record.tokens, strict=True)])
    order = tuple(range(len(blocks)))
    if isinstance(record, Sent):
        budget = OrderBudget()
        if record.learn is not None:
            budget = OrderBudget("throughput", 0.0, *record.learn)
        try:
            rule = Rule(record.rule)
        except ValueError:  # a later version's
            rule = Rule.PREFIX
        request = Request(blocks, namespace, budget)
        counts = (record.cached_blocks, record.predicted, record.retrieved)
        return Alignment(request, tuple(record.order) or order, *counts, rule, engine=record.engine)
    belief = Belief(record.at, tree=record.tree)
    predicted = 0
    if isinstance(record, Observed):
        since = record.uses[-1][1] if record.uses else None
        belief, predicted = Belief(record.at, since, tuple(record.uses), record.tree), record.predicted
    request = Request(blocks, namespace)
    return Alignment(request, order, record.cached_blocks, predicted, belief=belief)


def usage_of(record: Observed) -> Usage:
    """What was reported."""
    return Usage(record.prompt_tokens, record.cached_tokens, record.completion_tokens)


def _sound(key: object) -> bool:
    if type(key) is int:
        return -(2**63) <= key < 2**63
    return (type(key) is bytes or type(key) is str) and len(key) <= LONGEST
