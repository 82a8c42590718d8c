"""Groups of blocks in texts that name them as such. Nothing is ever guessed."""

from .find import find
from .labels import is_positional
from .listed import listed
from .numbered import headed, numbered
from .scanning import strings
from .wrappers import wrappers

__all__ = ["find", "headed", "is_positional", "listed", "numbered", "strings", "wrappers"]
