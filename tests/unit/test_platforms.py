from __future__ import annotations

import platform as host

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.platforms import ARCHITECTURES, LIBCS, Platform, host_architecture


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("libc", LIBCS)
def test_a_platform_is_read_as_it_is_written(architecture: str, libc: str) -> None:
    platform = Platform(architecture, libc)
    assert str(platform) == f"linux-{architecture}-{libc}"
    assert Platform.parse(str(platform)) == platform


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a platform"),
        ("linux-x86_64", "is not a platform"),
        ("linux-x86_64-glibc-2", "is not a platform"),
        ("darwin-x86_64-glibc", "'darwin' is not an operating system"),
        ("linux-amd64-glibc", "'amd64' is not an architecture that capsules are made for: x86_64 or aarch64"),
        ("linux-x86_64-uclibc", "'uclibc' is not a C library that capsules are made for: glibc or musl"),
        ("Linux-x86_64-glibc", "'Linux' is not an operating system"),
        ("linux-x86_64-", "'' is not a C library"),
    ],
)
def test_what_is_no_platform_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Platform.parse(text)


@given(st.text())
def test_any_text_is_a_platform_or_a_usage_error(text: str) -> None:
    try:
        platform = Platform.parse(text)
    except UsageError:
        return
    assert str(platform) == text


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("x86_64", "x86_64"),
        ("AMD64", "x86_64"),
        ("arm64", "aarch64"),
        ("aarch64", "aarch64"),
        ("riscv64", "riscv64"),
    ],
)
def test_the_host_is_named_in_the_projects_words(
    monkeypatch: pytest.MonkeyPatch, machine: str, expected: str
) -> None:
    monkeypatch.setattr(host, "machine", lambda: machine)
    assert host_architecture() == expected
