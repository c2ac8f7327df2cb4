"""What the probe makes of what it finds."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capsule_build.runtime import ContractError, TargetError, probe
from capsule_build.runtime.elf import Program, read_program
from capsule_build.runtime.layout import CAPSULES, SETUPS
from capsule_build.runtime.local import LocalEnvironment
from capsule_build.runtime.probing import judge
from capsule_build.runtime.process import Result
from capsule_build.runtime.scripts import NEEDED
from tests.bundles import manifest
from tests.elves import ElfSpec, make_elf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GLIBC = Program(64, "little", "x86_64", "/lib64/ld-linux-x86-64.so.2")
MUSL = Program(64, "little", "x86_64", "/lib/ld-musl-x86_64.so.1")
STATIC = Program(64, "little", "x86_64")
I386 = Program(32, "little", "i386", "/lib/ld-linux.so.2")
G_LOADER = "/lib64/ld-linux-x86-64.so.2"
M_LOADER = "/lib/ld-musl-x86_64.so.1"


@pytest.mark.parametrize(
    ("programs", "libc", "noted"),
    [
        ({"/bin/sh": GLIBC}, "glibc", False),
        ({"/bin/sh": MUSL}, "musl", False),
        ({"/bin/sh": GLIBC, G_LOADER: STATIC, M_LOADER: STATIC}, "glibc", False),
        ({"/bin/sh": MUSL, G_LOADER: STATIC}, "musl", False),
        (
            {"/bin/sh": replace(GLIBC, interpreter="/nix/store/x-glibc/lib/ld-linux-x86-64.so.2")},
            "glibc",
            False,
        ),
        ({"/bin/sh": STATIC, G_LOADER: STATIC}, "glibc", False),
        ({"/bin/sh": STATIC, M_LOADER: STATIC}, "musl", False),
        ({"/bin/sh": STATIC, M_LOADER: STATIC, G_LOADER: STATIC}, "glibc", True),
        ({"/bin/sh": STATIC, "/lib/ld-linux.so.2": I386}, None, True),
        ({"/bin/sh": STATIC}, None, True),
        ({"/bin/sh": replace(GLIBC, interpreter="/lib/ld-uClibc.so.0")}, None, True),
        ({M_LOADER: STATIC}, "musl", False),
        ({}, None, False),
        ({"/bin/sh": None}, None, False),
    ],
)
def test_the_libc_is_that_of_the_image_s_programs(
    programs: dict[str, Program | None], libc: str | None, noted: bool
) -> None:
    _, found, notes = judge(programs)
    assert found == libc
    assert bool(notes) == noted


def test_a_shell_decides_the_architecture_and_not_a_foreign_loader() -> None:
    program, libc, _ = judge({"/bin/sh": GLIBC, "/lib/ld-linux.so.2": I386})
    assert program == GLIBC
    assert libc == "glibc"


@given(st.integers(0, 4096))
def test_the_head_of_a_program_is_enough(cut: int) -> None:
    data = make_elf(ElfSpec(interpreter=G_LOADER, needed=("libc.so.6",) * 200))
    head = io.BytesIO(data[: max(cut, 400)])
    assert read_program(head).interpreter == G_LOADER


class Canned(LocalEnvironment):
    """An environment that answers the probe with what a test says."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.lines: dict[str, list[str]] = {
            "uid": ["0"],
            "gid": ["0"],
            "command": list(NEEDED),
            "tmp": ["there", "writable"],
            "mount": ["/ rw,relatime", "/tmp rw"],
            "room": ["Filesystem 1024-blocks Used Available Capacity Mounted on", "a b 9 1 999999 1% /tmp"],
            "folder": ["/tmp drwxrwxrwt 2 0 0 40 Nov 29 17:27 /tmp"],
            **changes,
        }
        self.files = {"/bin/sh": make_elf(ElfSpec(interpreter=G_LOADER))}
        self.code = 0

    @property
    def name(self) -> str:
        return "canned"

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        mark = argv[-1]
        text = "".join(f"{key}\t{value}\n" for key, values in self.lines.items() for value in values)
        data = text.encode()
        for path, content in self.files.items():
            data += f"\n{mark}{path}\n".encode() + content
        return Result(tuple(argv), self.code, data, b"it broke")


class Remote:
    """The same without access to its files from here."""

    def __init__(self, inner: Canned) -> None:
        self._inner = inner
        self.name = "remote"
        self.identity = "remote"

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        return self._inner.run(argv, **options)

    def put(self, data: Any, path: str, mode: int = 0o644) -> None:
        raise AssertionError

    def put_tree(self, tar: Any, path: str) -> None:
        raise AssertionError


def test_a_machine_that_takes_a_capsule() -> None:
    target = probe(Canned())
    target.check()
    target.check_room(999_999 * 1024)
    assert str(target.platform) == "linux-x86_64-glibc"
    assert target.free_bytes == 999_999 * 1024
    with pytest.raises(TargetError, match="of 977 MB needed"):
        target.check_room(999_999 * 1024 + 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mount": ["/ rw", "/tmp rw,noexec"]}, "mounted noexec"),
        ({"mount": ["/ ro"]}, "/tmp is read-only"),
        ({"mount": ["/ rw", f"{CAPSULES} rw,nosuid,noexec"]}, "mounted noexec"),
        ({"tmp": ["there"]}, "can't write to /tmp"),
        ({"tmp": []}, "can't make /tmp"),
        ({"folder": [f"{CAPSULES} lrwxrwxrwx 1 0 0 4 Nov 29 17:27 {CAPSULES} -> /x"]}, "is a symlink"),
        ({"folder": [f"{CAPSULES} drwxrwxr-x 1 0 0 4 Nov 29 17:27 {CAPSULES}"]}, "writable by others"),
        ({"folder": [f"{CAPSULES} drwxr-xrwx 1 0 0 4 Nov 29 17:27 {CAPSULES}"]}, "writable by others"),
        ({"folder": [f"{SETUPS} drwxr-xr-x 1 7 0 4 Nov 29 17:27 {SETUPS}"]}, "belongs to the user 7"),
        ({"folder": [f"{SETUPS} -rw-r--r-- 1 0 0 4 Nov 29 17:27 {SETUPS}"]}, "is not a folder"),
        (
            {"folder": [f"{CAPSULES} drwxr-xr-x 1 0 0 4 Nov 29 17:27 x"], "uid": ["5"]},
            f"the user 5 can't write to '{CAPSULES}'",
        ),
    ],
)
def test_what_rules_a_capsule_out(changes: dict[str, list[str]], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        probe(Canned(**changes)).check()


def test_the_mount_that_counts_is_the_last_with_the_longest_path() -> None:
    mounts = [
        "/ rw",
        "/tmp rw,noexec",
        "/tmp rw,exec",
        "/tmpx ro",
        "/tmp/agentcompass\\040capsules ro",
        "/a ro",
    ]
    probe(Canned(mount=mounts)).check()


def test_a_tmp_that_can_be_made_is_no_obstacle() -> None:
    probe(Canned(tmp=["creatable"], folder=[])).check()


def test_missing_commands_count_only_where_they_are_needed() -> None:
    probe(Canned(command=[])).check()
    with pytest.raises(TargetError, match="are missing: cat, chmod, ln, ls, mkdir, mv, rm, sync"):
        probe(Remote(Canned(command=[]))).check()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (ElfSpec(bits=32, machine=3), "32-bit i386"),
        (ElfSpec(bits=32, machine=62), "32-bit x86_64"),
        (ElfSpec(machine=22, big=True), "64-bit s390x"),
        (ElfSpec(machine=183, big=True), "64-bit aarch64"),
        (ElfSpec(machine=243), "64-bit riscv"),
    ],
)
def test_other_machines_are_named(spec: ElfSpec, said: str) -> None:
    canned = Canned()
    canned.files = {"/bin/sh": make_elf(spec)}
    with pytest.raises(TargetError, match=said):
        _ = probe(canned).platform


def test_a_shell_that_is_no_program() -> None:
    canned = Canned()
    canned.files = {"/bin/sh": b"#!/usr/bin/perl"}
    with pytest.raises(TargetError, match="its architecture can't be told"):
        _ = probe(canned).platform


def test_a_probe_that_fails_says_what_the_shell_said() -> None:
    canned = Canned()
    canned.code = 2
    with pytest.raises(TargetError, match="can't be looked into: it broke"):
        probe(canned)


def test_no_shell_and_no_other_way_in() -> None:
    canned = Canned()
    canned.code = 127
    canned.lines, canned.files = {}, {}
    with pytest.raises(TargetError, match="there is no '/bin/sh'"):
        probe(Remote(canned))


def test_an_installed_manifest_that_is_broken_is_said() -> None:
    name = str(manifest()["install_root"]).rpartition("/")[2]
    mark = f".{name}.sha256-{'a' * 64}.0-0"
    canned = Canned(installed=[mark])
    canned.files[f"{CAPSULES}/{name}/agentcompass-capsule.json"] = b"{}"
    with pytest.raises(ContractError, match="lacks 'schema_version'"):
        probe(canned)


KEYS = ("uid", "room", "mount", "folder", "installed", "mode", "entry")


@given(st.dictionaries(st.sampled_from(KEYS), st.lists(st.text())))
@example({"uid": ["\u00b9"]})
@example({"uid": ["1" * 5000]})
def test_whatever_is_printed_ends_in_a_target_or_an_error(lines: Mapping[str, list[str]]) -> None:
    with contextlib.suppress(TargetError, ContractError):
        assert probe(Canned(**lines)).name == "canned"


def test_this_machine() -> None:
    target = probe(LocalEnvironment())
    assert target.platform.architecture == os.uname().machine
    assert target.user == os.geteuid()
    assert target.group == os.getegid()
    assert {"cat", "mv"} <= target.commands
    assert target.free_bytes is None or target.free_bytes > 0
