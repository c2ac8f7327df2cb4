"""Which hosts and addresses a list of allowed hosts covers."""

from __future__ import annotations

import pytest

from capsule_build.sandbox.fetching import parse_target
from capsule_build.sandbox.hosts import address_allowed, name_allowed


@pytest.mark.parametrize(
    ("host", "patterns", "allowed"),
    [
        ("example.com", ["example.com"], True),
        ("api.example.com", ["example.com"], True),
        ("example.com.evil.org", ["example.com"], False),
        ("notexample.com", ["example.com"], False),
        ("a.x.com", ["*.x.com"], True),
        ("a.b.x.com", ["*.x.com"], True),
        ("x.com", ["*.x.com"], False),
        (".x.com", ["*.x.com"], False),
        ("ax.com", ["*.x.com"], False),
        ("anything.org", ["*"], True),
        ("anything.org", [], False),
        ("8.8.8.8", ["*"], True),
        ("127.0.0.1", ["*"], False),
        ("10.0.0.1", ["*"], False),
        ("169.254.169.254", ["*"], False),
        ("::1", ["*"], False),
        ("127.0.0.1", ["127.0.0.1"], True),
        ("127.0.0.2", ["127.0.0.1"], False),
        ("::1", ["::1"], True),
        ("0:0:0:0:0:0:0:1", ["::1"], True),
        ("1.127.0.0.1", ["127.0.0.1"], False),
        ("localhost", ["localhost"], True),
        ("8.8.8.8", ["example.com"], False),
    ],
)
def test_a_name_is_allowed_by_the_list_alone(host: str, patterns: list[str], allowed: bool) -> None:
    assert name_allowed(host, patterns) is allowed


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "not an address",
    ],
)
def test_an_address_of_this_machine_or_its_network_is_refused_whatever_name_has_it(address: str) -> None:
    for patterns in (["evil.test"], ["*"], ["evil.test", "localhost"]):
        assert not address_allowed("evil.test", address, patterns)


def test_such_an_address_is_allowed_where_it_is_named_itself() -> None:
    assert address_allowed("inner.test", "10.0.0.5", ["inner.test", "10.0.0.5"])
    assert not address_allowed("inner.test", "10.0.0.6", ["inner.test", "10.0.0.5"])
    assert address_allowed("localhost", "127.0.0.1", ["localhost"])
    assert address_allowed("localhost", "::1", ["localhost"])
    assert not address_allowed("localhost", "10.0.0.1", ["localhost"])
    assert not address_allowed("localhost", "127.0.0.1", ["*"])


def test_a_public_address_is_allowed_under_an_allowed_name() -> None:
    assert address_allowed("example.com", "93.184.215.14", ["example.com"])
    assert address_allowed("example.com", "2606:4700::1111", ["example.com"])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.com/",
        "file:///etc/passwd",
        "http://user@x.com/",
        "http://a:b@x.com/",
        "http:///path",
        "http://x.com\\@evil.com/",
        "http://x.com/\r\nHost: evil.com",
        "http://x .com/",
        "http://ex\u00e4mple.com/",
        "http://[::1%25lo]/",
        "//x.com/",
        "x.com",
        "",
        None,
        5,
        "http://x.com:99999/",
    ],
)
def test_what_is_no_plain_url_is_refused(url: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_target(url)


def test_a_url_is_taken_apart() -> None:
    target = parse_target("HTTPS://API.Example.com.:8443/a?b=c#d")
    assert (target.host, target.port, target.secure, target.path) == ("api.example.com", 8443, True, "/a?b=c")
    assert target.url == "HTTPS://API.Example.com.:8443/a?b=c"
    assert parse_target("http://x.com").path == "/"
