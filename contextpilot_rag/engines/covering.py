"""Covering: where the blocks of one prompt stand among the engine's KV blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Covering:
    """Where the blocks of one prompt stand among the engine's KV blocks.

    Args:
        keys: the name (`chain`) of each full KV block of the prompt.
        contents: the name (`content`) of each one's tokens by themselves.
        ends: for 0, 1, 2, ... blocks, in prompt order: how many tokens of the prompt are the same whatever follows
            them. So ``ends[0]`` is what stands before the first block (chat template, system prompt), and there is one
            more than there are blocks. The documents go on behind all but the last.
        tokens: of the whole prompt.
        block_size: tokens of a KV block.
        lasts: like ``ends``, but the same also where the documents end there: what follows a block is its prompt's own,
            and so are the first characters of it. Never more than ``ends``. Empty: these will do.
    """

    keys: tuple[bytes, ...]
    contents: tuple[bytes, ...]
    ends: tuple[int, ...]
    tokens: int
    block_size: int
    lasts: tuple[int, ...] = ()

    def last(self, blocks: int) -> int:
        """Tokens that are the same in a prompt of so many blocks, the first of these, and no more.

        >>> Covering((), (), (3, 9), 14, 4, (1, 7)).last(1), Covering((), (), (3, 9), 14, 4).last(1)
        (7, 9)
        """
        return self.lasts[blocks] if self.lasts else self.ends[blocks]

    def kv_blocks(self, blocks: int) -> int:
        """How many KV blocks have to be there for so many blocks to be there, the last partly filled one included.

        At most the prompt's full ones: what is behind them is never found by anybody.

        >>> covering = Covering((b"1", b"2", b"3"), (b"", b"", b""), (3, 9, 14), 14, 4)
        >>> [covering.kv_blocks(blocks) for blocks in range(3)]
        [1, 3, 3]
        """
        return min(-(-self.ends[blocks] // self.block_size), len(self.keys))
