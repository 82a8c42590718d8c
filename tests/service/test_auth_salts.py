"""Cache salts: pinned, never alike for two that must not meet, and never shown; nor are keys and secrets."""

from __future__ import annotations

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.identity import cache_salt
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key, read
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.types import Namespace

from .harness import serving

SECRET = "kept-by-the-service-alone"


def service(secret="secret", *members):
    made = Service(ServiceSettings(), secret)
    made.share({"handbook": frozenset(members or ("acme", "globex"))})
    return made


def salt(tenant, namespace, secret="secret", *members):
    return service(secret, *members).tenant(tenant).salt(namespace)


@pytest.mark.parametrize(
    ("tenant", "namespace", "expected"),
    [
        ("", Namespace(), None),
        ("", Namespace("t"), "ezl35EDW8cdJkN4eIoK9Al7ZRiS7oPMK9PA3czwCLBo"),
        ("acme", Namespace(), "iz5DbeC1b_mVwC_pMGOOy0sGwyRCTXmR52H7tFECkao"),
        ("acme", Namespace("a", "b", "c"), "e2TRNWyXTiUuLj1atbL6soOFS6or5nw-unWXQsH18Nc"),
        ("acme", Namespace("a", "b", "c", "head"), "e2TRNWyXTiUuLj1atbL6soOFS6or5nw-unWXQsH18Nc"),
        ("acme", Namespace(corpus="handbook"), "JkFyH9AknG7GXQhZtf329JBm2Qi1UMJ-SgONFDgk0Uc"),
        ("globex", Namespace(corpus="handbook"), "JkFyH9AknG7GXQhZtf329JBm2Qi1UMJ-SgONFDgk0Uc"),
        ("acme", Namespace("t", "m", "handbook"), "JTyifOIUglbaZ0SZj879EbQKTVuGT8yvimm0fKLQYHo"),
    ],
)
def test_salts_are_pinned(tenant, namespace, expected):
    """Another version that gave other salts would make every engine's cache cold."""
    assert salt(tenant, namespace) == expected


PAIRS = [
    (("acme", Namespace("org_1", "2345")), ("acme", Namespace("org_12345", ""))),
    (("org_1", Namespace("2345")), ("org_12345", Namespace())),
    (("acme", Namespace("a", "b")), ("acme", Namespace("b", "a"))),
    (("acme", Namespace("", "a")), ("acme", Namespace("a", ""))),
    (("acme", Namespace()), ("", Namespace("acme"))),
    (("acme", Namespace("acme")), ("", Namespace("acme"))),
    (("acme", Namespace()), ("globex", Namespace())),
    (("acme", Namespace("globex")), ("globex", Namespace("acme"))),
    (("acme", Namespace()), ("acme\x00", Namespace())),
    (("acme", Namespace("\x00\x00\x00\x01a")), ("acme", Namespace("", "a"))),
    (("acme", Namespace(corpus="handbook")), ("handbook", Namespace(corpus="handbook"))),
    (("acme", Namespace(corpus="handbook")), ("initech", Namespace(corpus="handbook"))),
    (("acme", Namespace(corpus="handbook")), ("acme", Namespace(corpus="Handbook"))),
    (("caf\u00e9", Namespace()), ("cafe\u0301", Namespace())),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_pairs_made_to_meet_do_not(one, other):
    assert salt(*one) != salt(*other)


def test_the_secret_and_the_sharers_count():
    where = Namespace(corpus="handbook")
    found = {
        salt("acme", where),
        salt("acme", where, "another"),
        salt("acme", where, ""),
        salt("acme", where, "secret", "acme"),
        salt("acme", where, "secret", "acme", "globex", "initech"),
        salt("acme", where, "secret", "acme", "globe", "x"),
        cache_salt(where, "secret"),
    }
    assert len(found) == 7
    assert salt("acme", where, "secret", "globex", "acme") == salt("acme", where)


fields = st.text(max_size=6)
spaces = st.builds(Namespace, fields, fields, st.sampled_from(["", "handbook", "other"]) | fields)
names = fields.filter(bool)


@given(names, spaces, names, spaces)
def test_equal_exactly_for_what_may_meet(tenant, space, other, space2):
    both = service("secret", "acme", "globex", "a")
    one, two = both.tenant(tenant).salt(space), both.tenant(other).salt(space2)
    pools = [
        ("corpus", at.corpus) if at.corpus == "handbook" and name in both.sharing["handbook"] else ("tenant", name)
        for name, at in ((tenant, space), (other, space2))
    ]
    same = pools[0] == pools[1] and space == space2
    assert (one == two) == same
    for found in (one, two):
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", found)


class Everything(logging.Handler):
    """All that is logged, by anybody, at any level."""

    def __init__(self):
        super().__init__(1)
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.getMessage()} {record.args!r} {record.__dict__!r} {record.exc_info!r}")


@pytest.fixture
def everything():
    handler = Everything()
    root = logging.getLogger()
    loggers = [root, *(one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    before = [(logger, logger.level, logger.propagate, logger.disabled) for logger in loggers]
    for logger in loggers:
        logger.setLevel(1)
        logger.propagate, logger.disabled = True, False
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for logger, level, propagate, disabled in before:
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


def test_neither_keys_nor_hashes_nor_salts_nor_secrets_are_shown(tmp_path, everything):
    path = tmp_path / "keys.json"
    made = {name: new_key() for name in ("acme", "globex")}
    with changing(path, create=True) as content:
        for name, (_, entry) in made.items():
            content.tenants[name] = TenantEntry([entry])
        content.shared_corpora["handbook"] = ["acme", "globex"]
    settings = ServiceSettings(keys=path, port=0, salt_secret=SECRET, state=tmp_path / "state")
    salts = set()
    shown = []
    with serving(settings) as running:
        for key, _ in made.values():
            for corpus in ("", "handbook"):
                body = {"blocks": [{"id": "a", "tokens": 10}], "namespace": {"corpus": corpus}}
                answer = running.ask("POST", "/v1/align", body, key).json()
                salts.add(answer["cache_salt"])
                running.ask("POST", "/v1/observe", {"ticket": answer["ticket"]}, key)
                running.ask("POST", "/v1/align", {**body, "cache_salt": answer["cache_salt"]}, key)
            for asked in (
                ("POST", "/v1/align", b"{"),
                ("GET", "/v1/namespaces"),
                ("GET", "/v1/namespaces/::handbook"),
                ("DELETE", "/v1/namespaces/::handbook"),
                ("DELETE", "/v1/namespaces"),
                ("GET", "/v1/stats"),
                ("GET", "/metrics"),
                ("GET", "/"),
                ("GET", "/v1/nothing"),
            ):
                running.ask(*asked, key=key)
            reply = running.ask("GET", "/v1/stats", key=key[:-1] + ("A" if key[-1] != "A" else "B"))
            assert reply.status == 401
            shown.append(reply.body.decode())
        hub = running.hub
        shown += [repr(one) for one in (hub, hub.settings, hub.gate, hub.service, hub.rates, hub.metrics, settings)]
        shown += [repr(hub.service.pools()), repr(hub.service.tenants), repr(assemble), str(hub.settings)]
    assert len(salts) == 3
    said = "\n".join([*everything.lines, *shown])
    assert "service started" in said  # it does see what is logged
    hashes = {key.sha256 for tenant in read(path)[0].tenants.values() for key in tenant.keys}
    for hidden in (SECRET, *salts, *hashes, *(key.split("_", 2)[2][:-1] for key, _ in made.values())):
        assert hidden not in said
