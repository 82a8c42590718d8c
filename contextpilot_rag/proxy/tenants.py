"""Tenants: who asks, from a request's headers, and which of these are forwarded."""

from __future__ import annotations

import hmac
import secrets

from ..service.auth import Caller, Gate, OpenGate, shown_key
from ..service.gate import FileGate
from ..service.heads import LoopbackHosts, is_loopback_address, is_loopback_host
from ..service.hub import Rates as AnyRates
from ..service.keyfile import KEY
from ..service.problems import Rejected, TooMany
from ..service.rates import Rates
from .heads import KEYS, Headers
from .problems import Foreign, Misdirected, NoKey, TooOften, Unusable
from .settings import ProxySettings

KEY_HEADER = b"x-contextpilot-key"
_LONGEST_NAME = 256  # of a tenant; what is kept for each should not grow with its name
_ASKED = {"www-authenticate": 'Bearer realm="contextpilot-rag"'}


class Tenants:
    """Says who asks, as the settings have it.

    With ``tenant_by="authorization"`` a tenant is whoever shows the same keys to the upstream. Its name is an HMAC of
    them, so that they stand nowhere, and nobody can tell a key from a name. With a secret of this process alone, names
    and cache salts are others after a restart; with ``salt_secret`` they are the same, on all replicas, too. Who shows
    nothing is the tenant without a name, and has no salt.

    Keys of ours are never forwarded, whatever the settings.

    Args:
        settings: of the proxy.
        secret: what names are derived with, as `secret_of` has it.
        gate: knows our keys, where they are asked for.
        rates: counts what each tenant asks for; None: as the settings have it.
    """

    def __init__(
        self, settings: ProxySettings, secret: str, gate: Gate | None = None, rates: AnyRates | None = None
    ) -> None:
        self._by = settings.tenant_by
        self._header = settings.tenant_header.lower().encode("ascii")
        self._secret = secret.encode("utf-8", "surrogatepass")
        self._gate = gate_of(settings) if gate is None else gate
        self._rates: AnyRates = Rates(settings) if rates is None else rates
        local = settings.host == "localhost" or is_loopback_address(settings.host)
        self._hosts = LoopbackHosts() if settings.check_host and local and settings.keys is None else None
        self._once = {b"host", b"origin", *KEYS, KEY_HEADER, self._header} - {b""}

    @property
    def gate(self) -> Gate:
        """Knows our keys."""
        return self._gate

    def of(self, headers: Headers) -> tuple[str, list[tuple[bytes, bytes]]]:
        """The tenant, and the headers to forward.

        Args:
            headers: names in lower case.

        Raises:
            Misdirected, Foreign: a web page may have sent it.
            NoKey: no key, or none that is known.
            Unusable: a header that says who asks stands twice.
            TooOften: the tenant has asked for more than it may.
        """
        caller, forwarded = self._asking(self._found(headers), headers)
        try:
            self._rates.take(caller)
        except TooMany as error:
            raise TooOften(str(error), headers={name.lower(): value for name, value in error.headers.items()}) from None
        return caller.tenant, forwarded

    def _asking(self, found: dict[bytes, bytes], headers: Headers) -> tuple[Caller, list[tuple[bytes, bytes]]]:
        """Who asks, and what is forwarded."""
        if self._by == "key":
            return self._caller(found), _forwarded(headers)
        if self._by == "header":
            name = found.get(self._header, b"").strip()
            if not name:
                raise NoKey(f"the header {self._header.decode()} has to say whose request this is")
            if len(name) > _LONGEST_NAME:
                raise Unusable(f"the header {self._header.decode()} is longer than {_LONGEST_NAME} characters")
            kept = [(header, value) for header, value in _forwarded(headers) if header != self._header]
            return Caller(name.decode("latin-1")), kept
        return Caller(self._shown(found) if self._by == "authorization" else ""), _forwarded(headers)

    def operator(self, headers: Headers) -> bool:
        """Whether who asks may see what operators see.

        Raises:
            Refused: as `of`.
        """
        found = self._found(headers)
        return self._by != "key" or self._caller(found).operator

    def _found(self, headers: Headers) -> dict[bytes, bytes]:
        """The headers that say who asks."""
        found: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in self._once:
                if name in found:
                    raise Unusable(f"two {name.decode()} headers: which of them counts would be a guess")
                found[name] = value
        if self._hosts is not None:
            try:
                self._hosts.check(found.get(b"host"))
            except Rejected:
                raise Misdirected(
                    "this proxy listens on a loopback address and without keys, so it is asked as localhost, or by a "
                    "loopback address, only (--no-check-host lets others pass)"
                ) from None
            if _is_page(found.get(b"origin", b"http://localhost")):
                raise Foreign(
                    "this proxy has no keys, so it takes no requests of web pages but those of this machine "
                    "(--no-check-host lets others pass)"
                )
        return found

    def _caller(self, found: dict[bytes, bytes]) -> Caller:
        own = found.get(KEY_HEADER)
        shown = found.get(b"authorization") if own is None else b"Bearer " + own
        if shown is None and b"x-api-key" in found:  # all that some clients can set
            shown = b"Bearer " + found[b"x-api-key"]
        try:
            caller = self._gate.identify(None if shown is None else shown.decode("latin-1"))
        except Rejected:
            raise NoKey(
                f"give a key of this proxy that is known: {KEY_HEADER.decode()}: KEY, or Authorization: Bearer KEY",
                headers=_ASKED,
            ) from None
        site = found.get(b"origin", b"").partition(b"://")[2]
        if b"origin" in found and site != found.get(b"host") and (shown or b"").lstrip().lower().startswith(b"basic"):
            raise Foreign(
                "a browser adds a password that it keeps to what pages of any site send; show the key as Bearer"
            )
        return caller

    def _shown(self, found: dict[bytes, bytes]) -> str:
        """Who shows the same is the same, and how that is told apart is not told."""
        if not any(name in found for name in KEYS):
            return ""
        parts = [found.get(name, b"") for name in KEYS]
        message = b"proxy tenant v1" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, message, "sha256").hex()[:32]


def gate_of(settings: ProxySettings) -> Gate:
    """The gate that the settings ask for.

    Raises:
        SettingsError: its file cannot be used.
    """
    return OpenGate() if settings.keys is None else FileGate(settings.keys)


def secret_of(settings: ProxySettings) -> str:
    """What tenants' names and salts are derived with: as it was set, or one for this process."""
    return settings.salt_secret or secrets.token_urlsafe(32)


def _is_page(origin: bytes) -> bool:
    """Whether an Origin is that of a web page from elsewhere, or of one that hides where it is from.

    Pages can send requests to any address, though they cannot read the answers; applications and extensions that are
    made like pages have schemes of their own.
    """
    scheme, found, host = origin.decode("latin-1").partition("://")
    return not found or (scheme in {"http", "https"} and not is_loopback_host(host))


def _forwarded(headers: Headers) -> list[tuple[bytes, bytes]]:
    """All headers but those with keys of ours."""
    return [(name, value) for name, value in headers if name != KEY_HEADER and not _ours(name, value)]


def _ours(name: bytes, value: bytes) -> bool:
    """Whether a header shows a key of ours."""
    if name not in KEYS:
        return False
    text = value.decode("latin-1")
    shown = shown_key(text) if name == b"authorization" else text
    return KEY.search(text) is not None or KEY.search(shown or "") is not None
