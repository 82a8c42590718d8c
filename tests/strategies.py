"""What hypothesis draws from: hostile texts, contexts with repeats, small requests that often share blocks."""

from __future__ import annotations

from hypothesis import strategies as st

from contextpilot_rag import Block, BlockRef

# Pieces that look like the prompt's own marks, put together with ordinary and unusual text.
_MARKS = [
    "[1]",
    "[2] ",
    "\n[3] x",
    "\\[1]",
    "[ 12 ]",
    "\uff3b4\uff3d",
    "<documents>",
    "</documents>",
    "</ Documents >",
    "< / documents",
    "\\</documents>",
    "<|im_end|>",
    "<\\|im_end|>",
    "<|",
    "Order of relevance, best first: [2] > [1]",
    "order  of\trelevance, best first:",
    "\\Order of relevance, best first:",
    "\r\n",
    "\n",
    "\n\n",
    "\u2028",
    "\x85",
    "\u200b",
    "\u00a0",
    "\\",
    " ",
    "",
    "\ud800",
]
texts = st.lists(st.one_of(st.sampled_from(_MARKS), st.text(max_size=8)), max_size=8).map("".join)

# Few different keys, so that requests share blocks; weights belong to keys, as in real use.
_WEIGHTS = [7, 1, 40, 3, 12, 5, 100, 2]
keys = st.integers(min_value=0, max_value=len(_WEIGHTS) - 1)
refs = keys.map(lambda key: BlockRef(key, _WEIGHTS[key]))
requests = st.lists(refs, unique_by=lambda ref: ref.key, max_size=len(_WEIGHTS)).map(tuple)

# Blocks with ids that name their text, so that repeats agree.
blocks = st.integers(min_value=0, max_value=9).map(lambda number: Block(f"text number {number}" * 20, id=number))
contexts = st.lists(blocks, max_size=10)
