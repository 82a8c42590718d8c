"""What a mirror believes to be there, as no user asks it."""

from __future__ import annotations

from collections.abc import Sequence

from contextpilot_rag.engines.mirror import Mirror


def resident_tokens(mirror: Mirror, keys: Sequence[bytes], size: int) -> int:
    """Tokens of a prompt that one holder has, from its beginning on.

    Args:
        mirror: of the engines.
        keys: of the prompt's KV blocks.
        size: tokens of each.
    """
    with mirror._lock:
        return size * max((one.run(keys) for one in mirror._residents.values()), default=0)
