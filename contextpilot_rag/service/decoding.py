"""Bodies as their types, and in words what is wrong with them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..checking import in_words
from ..remote.wire import Hash, Ticket
from .problems import Malformed, Unusable


def decode(decoder: msgspec.json.Decoder[Any], raw: bytes | bytearray | msgspec.Raw) -> Any:  # noqa: ANN401
    """A body as its type.

    Args:
        decoder: of the type.
        raw: JSON.

    Raises:
        Malformed: it is no JSON.
        Unusable: it is, of another form.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise Unusable(_short(in_words(str(error), (Hash, Ticket)))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(_short(str(error))) from None
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _short(text: str) -> str:
    """What is wrong; names of fields in it are the client's, and may be of any length."""
    return text if len(text) <= 300 else f"{text[:200]}...{text[-90:]}"
