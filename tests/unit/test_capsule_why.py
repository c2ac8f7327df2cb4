"""Why scripts and other files can't start, in a tree of made files, and by each way to look at files."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime import why_sealing
from capsule_build.runtime.environment import Configured, Readable
from capsule_build.runtime.errors import TargetError, UsageError
from capsule_build.runtime.process import ProgramMissingError, Result
from capsule_build.runtime.sealing import Left, SealReport
from capsule_build.runtime.why import explain as why
from capsule_build.runtime.why_files import Surroundings, files_of
from capsule_build.runtime.why_scripts import FirstLine, first_line
from tests.elves import ElfSpec, make_elf
from tests.explained import explain, glibc, kinds, link, root, variables, write
from tests.targets import make_tmp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capsule_build.runtime import Environment

__all__ = ["root", "variables"]


class Copied:
    """A folder as one without a shell: its files can be copied out, and its configuration is known."""

    name = identity = "copied"

    def __init__(self, root: Path, variables: Mapping[str, str]) -> None:
        self._root = root
        self._variables = dict(variables)

    def run(self, argv: Sequence[str], **_: object) -> Result:
        raise ProgramMissingError(f"'{argv[0]}' is not there.")

    def put(self, data: bytes | IO[bytes], path: str, mode: int = 0o644) -> None:
        raise NotImplementedError

    def put_tree(self, tar: object, path: str) -> None:
        raise NotImplementedError

    def copy_out(self, path: str) -> Iterator[bytes]:
        there = self._root / path.lstrip("/")
        if not there.exists():
            raise TargetError(f"'{path}' can't be read")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
            archive.add(there, arcname=there.name, recursive=False)
        yield packed.getvalue()

    def main_program(self) -> str | None:
        return None

    def variables(self) -> dict[str, str]:
        return self._variables


SCRIPTS = {
    "interpreter": (b"#!/no/such/python -x\n", "interpreter-missing", "'/no/such/python', which isn't there"),
    "a capsule's": (
        b"#!/tmp/agentcompass-capsules/gone/bin/node\n",
        "interpreter-missing",
        "Install the capsule again",
    ),
    "env itself": (b"#!/no/env node\n", "interpreter-missing", "'/no/env'"),
    "a link": (b"#!/dangling\n", "interpreter-missing", "/dangling -> /nothing"),
    "command": (b"#!/usr/bin/env nod\n", "command-missing", "'nod', which isn't on PATH"),
    "command by -S": (b"#!/usr/bin/env -S A=1 nod --flag\n", "command-missing", "'nod'"),
    "arguments": (b"#!/usr/bin/env node --flag\n", "env-arguments", "-S node --flag"),
    "a shell's": (b"#!/bin/sh -e -x\n", "shell-arguments", "below it 'set -e -x'"),
    "a shell's with a value": (b"#!/bin/sh -o\tpipefail\n", "shell-arguments", "as one word"),
    "carriage return": (b"#!/bin/sh\r\n", "shebang-carriage-return", "carriage return"),
    "carriage return behind an argument": (b"#!/bin/sh -e\r\nx", "shebang-carriage-return", "Windows"),
    "too long": (b"#!/" + b"x" * 300 + b"\n", "shebang-too-long", "has 303 bytes"),
    "nobody": (b"#! \n", "shebang-empty", "names no interpreter"),
    "trampoline": (
        b'#!/bin/sh\n\'\'\'exec\' "/my venv/python" "$0" "$@"\n',
        "interpreter-missing",
        "'/my venv/python'",
    ),
    "byte-order mark": (b"\xef\xbb\xbf#!/bin/sh\n", "byte-order-mark", "byte-order mark"),
    "text": (b"echo\n", "no-shebang", "without a '#!' line"),
    "nothing": (b"", "empty", "is empty"),
    "windows": (b"MZ\x90\0", "format", "for Windows"),
    "bytes": (b"\x01\x02\0\x03", "format", "neither a script nor"),
    "broken": (b"\x7fELF\x02", "format", "broken ELF"),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_a_file_that_the_kernel_cant_start(root: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, kind, words = SCRIPTS[case]
    monkeypatch.setenv("PATH", f"/bin:{os.environ['PATH']}")
    write(root, "/program", data)
    static = make_elf(ElfSpec(type=2, dynamic=False))
    for path in ("/bin/sh", "/usr/bin/env", "/bin/node"):
        write(root, path, static)
    link(root, "/dangling", "/nothing")
    found = explain(root)
    assert kinds(found) == [kind]
    assert words in found.problems[0].message + (found.problems[0].hint or "")


@pytest.mark.parametrize("line", [b"#!/bin/sh -ex\n", b"#!/bin/sh\t -e \n", b"#!/bin/sh a script\n"])
def test_a_shell_takes_one_word(root: Path, line: bytes) -> None:
    write(root, "/program", line)
    write(root, "/bin/sh", make_elf(ElfSpec(type=2, dynamic=False)))
    assert explain(root).problems == []


def test_a_script_is_followed_to_its_interpreters_loader(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"/opt/bin:{os.environ['PATH']}")
    write(root, "/program", b"#!/usr/bin/env -S node --flag\n")
    write(root, "/usr/bin/env", make_elf(ElfSpec(type=2, dynamic=False)))
    link(root, "/opt/bin/node", "../node/bin/node")
    write(root, "/opt/node/bin/node", glibc("libmissing.so.1"))
    found = explain(root)
    assert [path for path, _ in found.chain] == [
        "/program",
        "/usr/bin/env",
        f"/opt/bin/node -> {root}/opt/bin/../node/bin/node".replace(str(root), ""),
    ]
    assert kinds(found) == ["library-missing"]


def test_interpreters_of_interpreters_have_an_end(root: Path) -> None:
    write(root, "/program", b"#!/program\n")
    assert kinds(explain(root)) == ["too-many-interpreters"]


def test_what_isnt_there_or_no_program(root: Path) -> None:
    link(root, "/link", "b")
    link(root, "/b", "/link")
    link(root, "/dangling", "deep/nothing")
    write(root, "/library", make_elf(ElfSpec(soname="x")))
    write(root, "/object", make_elf(ElfSpec(type=1, dynamic=False)))
    write(root, "/plain", make_elf(ElfSpec(type=2, dynamic=False)), mode=0o644)
    write(root, "/other", make_elf(ElfSpec(type=2, machine=243, dynamic=False)))
    expected = {
        "/nothing": "missing",
        "/library/under-a-file": "missing",
        "/link": "symlink-loop",
        "/dangling": "dangling-symlink",
        "/lib64": "not-a-file",
        "/library": "not-a-program",
        "/object": "not-a-program",
        "/plain": "not-executable",
        "/other": "architecture",
    }
    assert {path: kinds(explain(root, path)) for path in expected} == {
        path: [kind] for path, kind in expected.items()
    }
    (problem,) = explain(root, "/link").problems
    assert problem.message == "'/link' is a symlink that leads back to itself: /link -> /b -> /link."
    with pytest.raises(UsageError, match="not an absolute path"):
        explain(root, "relative")


def test_without_a_shell_files_are_copied_out(root: Path) -> None:
    write(root, "/program", glibc("libmissing.so"))
    write(root, "/good", glibc())
    write(root, "/script", b"#!/usr/bin/env node\n")
    environment: Environment = Copied(root, {"PATH": "/bin", "LD_PRELOAD": "/gone.so"})
    assert isinstance(environment, Readable)
    assert isinstance(environment, Configured)
    expected = {
        "/program": ["library-missing"],
        "/good": [],
        "/script": ["interpreter-missing"],
        "/nothing": ["missing"],
        "/lib64": ["not-a-file"],
    }
    for path, wanted in expected.items():
        found = why(path, environment)
        assert kinds(found) == wanted, path
        assert any("no shell" in note for note in found.notes)
    assert any("LD_PRELOAD" in note for note in why("/good", environment).notes)


def test_a_shell_tells_the_same_as_files_do(tmp_path: Path) -> None:
    """By each way the same entries and bytes come out, whatever the names."""
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / 'f\'ile\t"x"').write_bytes(bytes(range(256)) * 2000)
    (folder / "l ink").symlink_to('f\'ile\t"x"')
    (folder / "dangling").symlink_to("/no where")
    (tmp_path / "way").symlink_to("a b")

    class Shell:
        """This machine, told by its shell alone."""

        name = identity = "shell"

        def run(self, argv: Sequence[str], **_: object) -> Result:
            from capsule_build.runtime.process import run

            return run(argv, check=False)

    from capsule_build.runtime.local import LocalEnvironment

    paths = [
        *(f"{tmp_path}/way/{name}" for name in ('f\'ile\t"x"', "l ink", "dangling", "nothing")),
        *(str(folder), "/dev/null", "/", "/bin"),
    ]
    local, shell = files_of(LocalEnvironment()), files_of(Shell())  # type: ignore[arg-type]
    told, asked = local.entries(paths), shell.entries(paths)
    assert list(told) == list(asked)
    for path, entry in told.items():
        other = asked[path]
        assert (entry.kind, entry.may_run, entry.folder, entry.following) == (
            other.kind,
            other.may_run,
            other.folder,
            other.following,
        )
    file = asked[paths[0]]
    assert file.size == told[paths[0]].size == 512000
    with shell.open(file) as stream:
        stream.seek(300_001)
        assert stream.read(1000) == (folder / 'f\'ile\t"x"').read_bytes()[300_001:301_001]
        assert stream.seek(0, 2) == 512000
        assert stream.read(1) == b""
    assert dict(shell.surroundings().variables or {})["PATH"] == os.environ["PATH"]
    # Others may mount something meanwhile.
    assert "/proc" in {place for place, _ in shell.surroundings().mounts or ()}
    assert "/proc" in {place for place, _ in local.surroundings().mounts or ()}


def test_a_mounts_options_are_those_of_the_nearest_place() -> None:
    mounts = (("/", frozenset({"rw"})), ("/tmp", frozenset({"noexec"})), ("/tmp/sub", frozenset({"exec"})))
    around = Surroundings({}, mounts)
    assert around.options_at("/tmp/y") == {"noexec"}
    assert around.options_at("/tmp/sub/y") == {"exec"}
    assert around.options_at("/tmpx") == {"rw"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"#!/bin/sh\n", FirstLine("/bin/sh", None)),
        (b"#! \t/bin/sh  -e -u \t\nx", FirstLine("/bin/sh", "-e -u")),
        (b"#!/bin/sh", FirstLine("/bin/sh", None)),
        (b"#!/bin/sh\0x\n", FirstLine("/bin/sh", None)),
        (b"#!\n", None),
    ],
)
def test_a_first_line_is_read_as_the_kernel_reads_it(line: bytes, expected: FirstLine | None) -> None:
    assert first_line(line) == expected


@given(st.binary(max_size=600))
def test_no_file_is_too_odd_to_be_explained(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = make_tmp(Path(folder) / "root")
        write(root, "/program", data)
        assert explain(root).problems


LISTED = SealReport(
    root="/s",
    dry_run=True,
    scanned=9,
    already_sealed=1,
    scripts=("/s/script",),
    interpreters=("/s/program",),
    rpaths=("/s/library",),
    skipped=(Left("/s/static", "it is statically linked"),),
    failures=(Left("/s/odd", "there is no room in it"),),
)


@pytest.mark.parametrize(
    ("path", "head", "private", "state", "words"),
    [
        *(
            (path, b"", None, "unsealed", "isn't sealed yet")
            for path in ("/s/script", "/s/program", "/s/library")
        ),
        ("/s/static", b"\x7fELF", None, "left-alone", "it is statically linked"),
        ("/s/odd", b"\x7fELF", None, "failed", "there is no room in it"),
        ("/s/other", b"\x7fELF", "its loader is 'x'", "sealed", "its loader is 'x'"),
        ("/s/other", b"#!/bin/sh\n", None, "untouched", "runs with the image's own"),
        ("/s/other", b"text", None, "untouched", "no program"),
    ],
)
def test_what_the_sealer_says_of_a_file_is_told(
    path: str, head: bytes, private: str | None, state: str, words: str
) -> None:
    found, message = why_sealing._state(LISTED, path, head, private)
    assert (found, words in message) == (state, True), message


def test_a_setup_root_without_its_capsule_is_told(root: Path) -> None:
    path = f"/tmp/agentcompass-capsule-setups/{'0' * 64}/bin/tool"
    write(root, path, b"#!/no/such/node\n")
    sealing = explain(root, path).sealing
    assert sealing is not None
    assert (sealing.state, sealing.setup_root) == ("unknown", path.removesuffix("/bin/tool"))
    assert "isn't found there" in sealing.message
