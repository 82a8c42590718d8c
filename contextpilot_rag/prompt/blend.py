"""Prompts for engines that reuse a block's cache wherever it stands: LMCache's CacheBlend.

CacheBlend cuts a prompt's token ids wherever it finds the ids of a separator (``blend_special_str``), and knows each
piece by its own ids alone. So a block has to have the same ids in every prompt: it is tokenised by itself and carries
no label, and where it stands does not matter, so the retriever's order is kept and no hint is needed.

LMCache tokenises its separator with special tokens and drops the first id, whatever that is. With a tokenizer that
begins each text with a BOS token this leaves the separator. Any other loses the separator's own first id, which then
ends each piece; since it ends all of them, reuse is the same, and nothing has to be known about it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..dedup.marks import shield
from ..errors import InputError
from ..types import short
from .escape import escape

SEPARATOR = " # # "
"""LMCache's own default of ``blend_special_str``."""

JOINER = "\u2060"
"""Word joiner: stands in a block whose text would be cut otherwise. It has no width and breaks no line."""

Encode = Callable[[str], Sequence[int]]


def blend_pieces(texts: Sequence[str], question: str, separator: str = SEPARATOR) -> list[str]:
    """The texts of a prompt as far as texts can tell: blocks, as they stand in any prompt of ours, and the question.

    Blocks of no text are left out.

    Raises:
        InputError: a separator that is no text, or an empty one.

    >>> blend_pieces(["Slices.", "a # # b"], "Why?")
    ['Slices.', 'a \u2060#\u2060 \u2060#\u2060 b', 'Why?']
    """
    core = _core(_checked(separator))
    pieces = [text.replace(core, _apart(core)) for text in (*map(_rendered, texts), question)]
    return [piece for piece in pieces if piece]


def blend_text(texts: Sequence[str], question: str, separator: str = SEPARATOR) -> str:
    """A user message with the separator before each piece. How it is tokenised is the engine's affair.

    >>> blend_text(["Slices.", "Steps."], "Why?")
    ' # # Slices. # # Steps. # # Why?'
    """
    return "".join(separator + piece for piece in blend_pieces(texts, question, separator))


def blend_ids(
    texts: Sequence[str],
    question: str,
    tokenizer: object,
    separator: str = SEPARATOR,
    *,
    system: str | None = None,
    before: Sequence[int] | None = None,
    after: Sequence[int] = (),
) -> list[int]:
    """Token ids of a prompt whose pieces, cut at the separator's ids, are the blocks' own ids.

    The pieces: what comes first and the system prompt; each block; the question and what comes last. One that has no
    ids is left out. A text that has the separator's ids in it, or makes them together with a separator beside it, gets
    word joiners where the separator's characters stand; a reader sees no difference. Which ones depends on that text
    alone, so it has the same ids in every prompt, too.

    Args:
        texts: of the blocks, in the order to send.
        question: stands last.
        tokenizer: a transformers or tokenizers one, or anything with ``encode(text, add_special_tokens=False)``; an
            object with ``of_text(text)``; or a function from a text to its ids without special tokens.
        separator: LMCache's ``blend_special_str``.
        system: the system prompt.
        before: ids that come first, such as a chat template's beginning, with BOS if the model wants one. None: the
            BOS token, if the tokenizer begins texts with one.
        after: ids that come last, such as a chat template's end.

    Raises:
        InputError: no tokenizer, or one that gives no ids, a separator without any, or one that a text cannot be told
            from.

    >>> blend_ids(["ab", "c#"], "d", lambda text: [ord(character) for character in text], "##")
    [97, 98, 35, 35, 8288, 99, 8288, 35, 8288, 8288, 35, 35, 100]
    """
    encode = _encoder(tokenizer)
    bos = _bos(tokenizer, encode)
    mark = list(encode(_checked(separator)))
    if not mark:
        raise InputError(f"the separator {short(separator)} has no token ids")
    # What LMCache looks for where texts begin with no BOS. It only does harm where two of them can overlap.
    patterns = [mark] if bos or not _overlaps(mark[1:]) else [mark, mark[1:]]
    first = list(bos if before is None else before)

    def told(text: str, left: Sequence[int], right: Sequence[int]) -> list[int]:
        for variant in _variants(text, separator):
            ids = list(encode(variant)) if variant else []
            if _standing_alone(left, ids, right, mark, patterns):
                return ids
        raise InputError(
            f"no text like {short(text)} can be told from the separator {short(separator)}; choose another"
        )

    pieces = [[*first, *told(system or "", first, mark)]]
    pieces += [told(_rendered(text), mark, mark) for text in texts if text]
    pieces.append([*told(question, mark, after), *after])
    whole: list[int] = []
    for piece in filter(None, pieces):
        whole += [*mark, *piece] if whole else piece
    return whole


def _rendered(text: str) -> str:
    """A block's text as it stands in any prompt of ours; what could forge a template's token is escaped."""
    return escape(shield(text))


def _core(separator: str) -> str:
    return separator.strip() or separator


def _apart(text: str) -> str:
    return JOINER + JOINER.join(text) + JOINER


def _variants(text: str, separator: str) -> Iterator[str]:
    """A text, and the same with more and more joiners in it."""
    yield text
    core = _core(separator)
    yield text.replace(core, _apart(core))
    signs = {sign for sign in core if not sign.isalnum() and not sign.isspace()}
    for apart in (signs, set(core)):
        yield JOINER + "".join(f"{JOINER}{sign}{JOINER}" if sign in apart else sign for sign in text) + JOINER


def _standing_alone(
    left: Sequence[int],
    ids: Sequence[int],
    right: Sequence[int],
    mark: Sequence[int],
    patterns: Sequence[Sequence[int]],
) -> bool:
    """Whether no pattern is found between a text's neighbours but in those that are separators."""
    if not ids and not (left and right):
        return True
    whole = [*left, *ids, *right]
    starts = [start for start, side in ((0, left), (len(left) + len(ids), right)) if side is mark]
    return all(_found(whole, pattern) == [start + len(mark) - len(pattern) for start in starts] for pattern in patterns)


def _found(ids: list[int], pattern: Sequence[int]) -> list[int]:
    """Every place where a pattern begins, also where it overlaps itself."""
    found: list[int] = []
    start, size = 0, len(pattern)
    while True:
        try:
            start = ids.index(pattern[0], start)
        except ValueError:
            return found
        if ids[start : start + size] == list(pattern):
            found.append(start)
        start += 1


def _overlaps(pattern: Sequence[int]) -> bool:
    """Whether two occurrences of a pattern can overlap."""
    return any(pattern[:size] == pattern[len(pattern) - size :] for size in range(1, len(pattern)))


def _encoder(tokenizer: Any) -> Encode:  # noqa: ANN401
    """A function from a text to its ids, without special tokens."""
    if hasattr(tokenizer, "encode"):

        def encode(text: str) -> Sequence[int]:
            return _ids(tokenizer.encode(text, add_special_tokens=False))

        return encode
    found = getattr(tokenizer, "of_text", tokenizer)
    if not callable(found):
        raise InputError(f"a tokenizer has encode() or of_text(), or is a function; this is {type(tokenizer).__name__}")
    return lambda text: _ids(found(text))


def _ids(found: Any) -> Sequence[int]:  # noqa: ANN401
    """What a tokenizer gave, if it is ids."""
    ids = getattr(found, "ids", found)
    if isinstance(ids, str | Mapping) or not hasattr(ids, "__iter__"):
        raise InputError(f"a tokenizer gives a text's token ids; this one gave {short(found)}")
    sequence: Sequence[int] = ids
    return sequence


def _checked(separator: object) -> str:
    if not isinstance(separator, str) or not separator:
        raise InputError(f"a separator is a text of at least one character, not {short(separator)}")
    return separator


def _bos(tokenizer: Any, encode: Encode) -> list[int]:  # noqa: ANN401
    """The id that a tokenizer begins each text with, if it does."""
    if not hasattr(tokenizer, "encode"):
        return []
    ids, plain = list(_ids(tokenizer.encode("a"))), list(encode("a"))
    return ids[:1] if ids[:1] != plain[:1] and ids[1 : 1 + len(plain)] == plain else []
