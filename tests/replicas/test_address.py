"""Addresses of logs: what is one, and that nobody sees its password."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.errors import MissingPackage, SettingsError
from contextpilot_rag.replicas.address import LogAddress, LogTls, parse_address
from contextpilot_rag.replicas.redis_log import open_log

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://log.example", LogAddress("log.example")),
        ("redis://log.example/", LogAddress("log.example")),
        ("REDIS://log.example:7000/3", LogAddress("log.example", 7000, db=3)),
        ("valkey://:pw@10.0.0.7", LogAddress("10.0.0.7", password="pw")),
        ("redis://me:a%3Ab%40c%2F@[::1]:7000", LogAddress("::1", 7000, "me", "a:b@c/")),
        ("redis://h?prefix=shop-1.x_y", LogAddress("h", prefix="shop-1.x_y")),
        ("redis://h?cluster=true", LogAddress("h", cluster=True)),
        ("redis://h?cluster=no", LogAddress("h", cluster=False)),
        ("rediss://h", LogAddress("h", tls=LogTls())),
        (
            "valkeys://h?ssl_ca_certs=/a%20b&ssl_certfile=/c&ssl_keyfile=/k&ssl_check_hostname=false",
            LogAddress("h", tls=LogTls("/a b", "/c", "/k", verify=True, check_hostname=False)),
        ),
        ("rediss://h?ssl_cert_reqs=none", LogAddress("h", tls=LogTls(verify=False))),
    ],
)
def test_an_address_is_read(url, address):
    assert parse_address(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (7, "must be a text, not 7"),
        ("", "must be redis://"),
        ("log.example:6379", "must be redis://"),
        ("http://log.example", "must be redis://"),
        ("unix:///tmp/log", "must be redis://"),
        ("redis://", "must be redis://"),
        (f"redis://:{SECRET}@", "must be redis://"),
        ("redis://h:99999", "no URL"),
        (f"redis://u:{SECRET}/x@h", "no URL; write / : @ # \\? in a password as %2F"),
        (f"redis://u:x@{SECRET}/x@h:1", "no URL; write / : @ # \\? in a password as %2F"),
        (f"redis://[::1:{SECRET}@h", "no URL"),
        (f"redis://u:{SECRET}#x@h", "no URL"),
        ("redis://u:1234#x@h", "fragment"),
        ("redis://h#", "fragment"),
        (f"redis://u: {SECRET}@h", "plain ASCII"),
        (f"redis://u:\u00e4{SECRET}@h", "plain ASCII"),
        ("redis://h\n", "plain ASCII"),
        ("redis://user@h", "a user without a password"),
        ("redis://h/1/2", "the number of a database"),
        ("redis://h/x", "the number of a database"),
        ("redis://h/-1", "the number of a database"),
        ("redis://h/99999999999", "the number of a database"),
        ("redis://h/\u0661", "plain ASCII"),
        ("redis://h/%D9%A1", "the number of a database"),
        (f"redis://h?password={SECRET}", "there are: prefix, cluster, ssl_ca_certs, ssl_certfile"),
        (f"redis://u:{SECRET}?x@h", "no URL"),
        (f"redis://h?{SECRET}=x", "a setting that is none"),
        ("redis://h?prefix=", "prefix= .* once, with a value"),
        ("redis://h?prefix=a&prefix=b", "prefix= .* once"),
        ("redis://h?prefix=a:b", "1 to 64 letters"),
        ("redis://h?prefix=*", "1 to 64 letters"),
        (f"redis://h?prefix={'a' * 65}", "1 to 64 letters"),
        ("redis://h?prefix=a%0A", "1 to 64 letters"),
        ("redis://h?cluster=maybe", "cluster= .* true or false"),
        ("redis://h?ssl_ca_certs=/a", "begin with rediss://"),
        ("rediss://h?ssl_cert_reqs=optional", "required or none"),
        ("rediss://h?ssl_check_hostname=x", "true or false"),
        ("rediss://h?ssl_keyfile=/k", "no ssl_certfile="),
    ],
)
def test_what_is_none_is_refused_without_showing_a_password(url, says):
    with pytest.raises(SettingsError, match=says) as caught:
        parse_address(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.text(min_size=1), st.text(min_size=1, max_size=30), st.integers(1, 65535), st.integers(0, 15))
def test_a_user_and_a_password_are_what_was_quoted(user, password, port, db):
    from urllib.parse import quote

    try:
        given = f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h:{port}/{db}"
    except UnicodeEncodeError:  # half a character cannot be quoted
        return
    assert parse_address(given) == LogAddress("h", port, user, password, db)


@given(st.text())
def test_any_text_is_an_address_or_a_settings_error(text):
    for url in (text, f"redis://{text}", f"rediss://h?{text}", f"redis://u:{text}@h"):
        try:
            address = parse_address(url)
        except SettingsError:
            continue
        assert isinstance(address, LogAddress)


def test_nothing_that_is_shown_has_the_password():
    url = f"rediss://me:{SECRET}@log.example:7000/1"
    address = parse_address(url)
    assert str(address) == "rediss://log.example:7000/1"
    log = open_log(url)
    for shown in (repr(address), str(address), repr(log), str(log), f"{[log, address]}"):
        assert SECRET not in shown
    log.close()


def test_files_for_tls_that_cannot_be_used_are_settings_errors(tmp_path):
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for name in (broken, tmp_path / "absent.pem"):
        for setting in ("ssl_ca_certs", "ssl_certfile"):
            with pytest.raises(SettingsError, match=f"{setting}=.*{name.name}.*cannot be used"):
                open_log(f"rediss://h?{setting}={name}")


def test_addresses_are_checked_without_redis_and_opening_says_what_is_missing():
    code = """
import sys
sys.modules["redis"] = None
from contextpilot_rag.errors import MissingPackage
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS, open_log, parse_address
address = parse_address("redis://h")
try:
    open_log(address)
except MissingPackage as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "replicas need redis: pip install 'contextpilot-rag[replicas]'"
    assert issubclass(MissingPackage, ImportError)


def test_opening_asks_nobody():
    open_log("redis://no-such-host.invalid:1").close()
