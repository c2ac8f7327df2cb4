"""What of JavaScript's tasks is decided without running any: which files, and when they have changed."""

from __future__ import annotations

import io
import os
import tarfile
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.pins import load_pins
from capsule_build.runtime.errors import CapsuleError, InputError
from capsule_build.runtime.process import CommandError, Result
from capsule_build.sandbox.javascript import bundling, guest, making
from capsule_build.sandbox.javascript.witness import holds, is_settled, watch
from capsule_build.sandbox.languages import language_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/top/work/helper.ts", True),
        ("/top/work/deep/helper.mjs", True),
        ("/top/work/node_modules/p/data.json", True),
        ("/top/work/deep/node_modules/p/data.json", True),
        ("/top/node_modules/p/index.js", True),
        ("/node_modules/p/index.js", True),
        ("/top/work/data.json", False),
        ("/top/work/.env", False),
        ("/top/helper.ts", False),
        ("/top/worker/helper.ts", False),
        ("/top/other/node_modules/p/index.js", False),
        ("/top/work_node_modules/x.js", False),
        ("/etc/passwd", False),
    ],
)
def test_which_files_a_task_may_import(path: str, allowed: bool) -> None:
    assert bundling.is_allowed(path, "/top/work") is allowed


def test_below_the_root_everything_is_the_files_own_folder() -> None:
    assert bundling.is_allowed("/x.js", "/")
    assert not bundling.is_allowed("/etc/passwd", "/")


def why(said: str, folder: Path) -> str:
    result = Result(("esbuild",), 1, b"", said.encode())
    return bundling._why(CommandError("failed", result=result), str(folder), "file.ts")


def test_a_message_of_the_bundler_is_passed_on_without_lines_of_files(tmp_path: Path) -> None:
    said = (
        '✘ [ERROR] Expected ";" but found "x"\n\n    file.ts:3:4:\n      3 │ let secret x\n        ╵   ^\n\n'
    )
    assert why(said, tmp_path) == 'file.ts, line 3: Expected ";" but found "x".'
    outside = why(said.replace("file.ts:3", "../other.ts:3"), tmp_path)
    assert outside.startswith("file.ts imports ../other.ts, which it can't")
    assert "secret" not in outside
    assert "found" not in outside
    assert why("", tmp_path) == "file.ts can't be read: esbuild ended with status 1."
    assert "didn't end" in bundling._why(CommandError("it didn't end", result=None), str(tmp_path), "file.ts")


def test_a_change_of_what_was_read_or_could_be_is_seen(tmp_path: Path) -> None:
    top = tmp_path / "top"
    folder = top / "work"
    (folder / "lib").mkdir(parents=True)
    file, helper = folder / "file.ts", folder / "lib" / "helper.ts"
    for path in (file, helper):
        path.write_text("1")
    inputs = (str(file), str(helper))
    seen = watch(inputs, str(folder))
    assert holds(seen)
    for change, undo in (
        (lambda: helper.write_text("2"), lambda: helper.write_text("1")),
        (lambda: (folder / "lib.ts").write_text(""), (folder / "lib.ts").unlink),
        (
            lambda: (folder / "lib" / "package.json").write_text("{}"),
            (folder / "lib" / "package.json").unlink,
        ),
        ((top / "node_modules").mkdir, (top / "node_modules").rmdir),
        (lambda: helper.rename(folder / "lib" / "x.ts"), lambda: (folder / "lib" / "x.ts").rename(helper)),
    ):
        change()
        assert not holds(seen)
        undo()
        assert holds(seen)


def test_what_changed_just_now_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "file.ts"
    file.write_text("1")
    seen = watch((str(file),), str(tmp_path))
    assert not is_settled(seen, time.time_ns())
    assert is_settled(seen, time.time_ns() + 60 * 10**9)
    file.unlink()
    assert not is_settled(seen, time.time_ns() + 60 * 10**9)


def test_languages_are_known_by_names() -> None:
    names = ("a.py", "a.js", "a.mjs", "a.ts", "a.TS", "ts", "a.wasm")
    assert [language_of(name) for name in names] == ["python", *["javascript"] * 3, None, None, None]


def test_every_input_of_the_guest_is_pinned_for_both_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    pins = load_pins(Path(guest.sources(), guest.PINS)).pins
    assert {pin.kind for pin in pins} == {"npm"}
    assert all(pin.size and pin.license for pin in pins)
    chosen = []
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(os, "uname", lambda machine=machine: os.uname_result(("", "", "", "", machine)))
        chosen.append({pin.component for pin in making._pins(None)})
        assert len(making._pins([making.BUNDLER])) == 1
    assert chosen[0] == chosen[1] == {pin.component for pin in pins}
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("", "", "", "", "riscv64")))
    with pytest.raises(CapsuleError, match="esbuild, which isn't pinned for riscv64"):
        making._pins(None)


def test_a_change_of_a_source_is_another_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    before = guest.guest_key()
    shutil.copytree(guest.sources(), tmp_path / "js")
    monkeypatch.setattr(guest, "sources", lambda: str(tmp_path / "js"))
    assert guest.guest_key() == before
    with (tmp_path / "js" / "node" / "fs.mjs").open("a") as stream:
        stream.write("\n")
    assert guest.guest_key() != before
    shutil.rmtree(tmp_path / "js" / "node")
    with pytest.raises(CapsuleError, match="are missing"):
        guest.guest_key()


def package(path: Path, *members: tuple[str, bytes, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            member.mode = 0o755 if "/bin/" in name else 0o600
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_package_of_npm_is_unpacked_by_any_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has Python 3.11.2, whose tarfile has no filters."""
    monkeypatch.delattr(tarfile.TarFile, "extract")
    monkeypatch.delattr(tarfile.TarFile, "extractall")
    there = tmp_path / "there"
    tarball = package(
        tmp_path / "p.tgz",
        ("package", tarfile.DIRTYPE, b""),
        ("package/bin/tool", tarfile.REGTYPE, b"program"),
        ("package/data.json", tarfile.REGTYPE, b"{}"),
    )
    making._unpack(tarball, there)
    kept = {str(path.relative_to(there)): path for path in there.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in kept.items()} == {
        "bin/tool": b"program",
        "data.json": b"{}",
    }
    assert {name: path.stat().st_mode & 0o777 for name, path in kept.items()} == {
        "bin/tool": 0o755,
        "data.json": 0o644,
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("package/link", tarfile.SYMTYPE),
        ("package/link", tarfile.LNKTYPE),
        ("package/pipe", tarfile.FIFOTYPE),
        ("package/../../outside", tarfile.REGTYPE),
        ("/absolute/file", tarfile.REGTYPE),
        ("file", tarfile.REGTYPE),
    ],
)
def test_what_no_package_of_npm_has_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    folder = tmp_path / "there" / "in"
    tarball = package(tmp_path / "p.tgz", (name, kind, b"x" if kind == tarfile.REGTYPE else b""))
    with pytest.raises(InputError, match="is no regular file of a package of npm"):
        making._unpack(tarball, folder)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tarball]


def test_without_node_the_guest_is_not_made_and_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(making.NODE_VARIABLE, raising=False)
    with pytest.raises(CapsuleError, match="no 'node' on PATH") as caught:
        making.make_guest()
    assert making.NODE_VARIABLE in str(caught.value.hint)
