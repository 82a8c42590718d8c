"""Who asks: from an Authorization header to a tenant."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

_LONGEST_HEADER = 1_024  # characters; ours take about 70, as Basic with a long name some hundred


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Args:
        tenant: whose index it is.
        operator: may see all tenants' figures, and act on shared corpora.
        rate: requests a second, where it is not the service's; 0: no limit.
        key_id: which of the tenant's keys was shown; its public part, for the audit log.
    """

    tenant: str = ""
    operator: bool = False
    rate: float | None = None
    key_id: str = ""


class Gate(Protocol):
    """Decides who may ask."""

    @property
    def sharing(self) -> Mapping[str, frozenset[str]]:
        """Corpora that several tenants share, and which."""
        ...

    @property
    def tenants(self) -> frozenset[str] | None:
        """All tenants there are; None: nobody says."""
        ...

    def identify(self, authorization: str | None) -> Caller:
        """Who sent this header.

        Raises:
            Unauthorized: nobody that is known.
        """
        ...

    def reload(self, *, force: bool = False) -> bool:
        """Look whether there is something new; True: it is in force now. Never raises.

        Args:
            force: read again even what looks unchanged.
        """
        ...


class OpenGate:
    """No keys: everybody who reaches the address is the one tenant without a name."""

    sharing: Mapping[str, frozenset[str]] = {}
    tenants: frozenset[str] | None = None

    def identify(self, authorization: str | None) -> Caller:  # noqa: ARG002
        """The one tenant."""
        return Caller(operator=True)

    def reload(self, *, force: bool = False) -> bool:  # noqa: ARG002
        """There is never anything new."""
        return False


def shown_key(authorization: str | None) -> str | None:
    """What a header shows as a key, whatever it is: after "Bearer", or as the password of "Basic" (browsers ask so).

    >>> shown_key("Bearer abc"), shown_key("basic bmFtZTphYmM="), shown_key("Digest abc")
    ('abc', 'abc', None)
    """
    if authorization is None or len(authorization) > _LONGEST_HEADER:
        return None
    scheme, _, rest = authorization.strip(" \t").partition(" ")
    rest = rest.strip(" \t")
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() != "basic":
        return None
    try:
        name_and_password = base64.b64decode(rest, validate=True).decode("ascii")
    except ValueError:  # no base64, or something that no key consists of
        return None
    return name_and_password.partition(":")[2]
