"""The walk: what is followed, what is written, and what an interrupted or refused run leaves."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run

from .programs import HELLO
from .test_appended import peak_memory_kib
from .test_programs import _without_loader

if TYPE_CHECKING:
    from .capsules import Capsule
    from .conftest import SetupRoot
    from .programs import Compiler

SCRIPT = "#!/usr/bin/env node\nconsole.log('x')\n"


def test_hard_links_stay_one_file_that_is_sealed_once(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    script = root.write("a/tool", SCRIPT)
    program = root.copy(_without_loader(capsule, compiler(HELLO), tmp_path), "a/hello")
    for name in ("b", "c"):
        (root.path / name).mkdir()
        os.link(script, root.path / name / "tool2")
        os.link(program, root.path / name / "hello2")
    sealed = root.seal()
    assert sealed.report["scripts"]["count"] == 1
    assert sealed.report["interpreters"]["count"] == 1
    for first, second in (("a/tool", "tool2"), ("a/hello", "hello2")):
        inodes = {(root.path / name).stat().st_ino for name in (first, f"b/{second}", f"c/{second}")}
        assert len(inodes) == 1
        assert (root.path / first).stat().st_nlink == 3
    assert run([str(root.path / "c/hello2")]).text == "hello 1\n"


def test_a_link_from_outside_keeps_the_old_content(root: SetupRoot, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SCRIPT)
    outside.chmod(0o755)
    os.link(outside, root.path / "tool")
    assert root.seal().paths("scripts") == {"tool"}
    assert outside.read_text() == SCRIPT
    assert (root.path / "tool").read_text() != SCRIPT


def test_symlinks_are_neither_followed_nor_written_through(root: SetupRoot, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tool").write_text(SCRIPT)
    (outside / "tool").chmod(0o755)
    links: dict[str, Path | str] = {
        "absolute": outside / "tool",
        "folder": outside,
        "dangling": "nowhere",
        "cycle": "cycle",
        "up": "..",
        "relative": "../outside/tool",
    }
    for name, target in links.items():
        (root.path / name).symlink_to(target)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    sealed = root.seal()
    assert sealed.report["scanned"] == 0
    assert {path: path.read_bytes() for path in outside.iterdir()} == before
    assert all((root.path / name).is_symlink() for name in links)


def test_a_symlink_as_the_root_is_refused(root: SetupRoot, capsule: Capsule, tmp_path: Path) -> None:
    script = root.write("tool", SCRIPT)
    link = tmp_path / "link"
    link.symlink_to(root.path)
    for spelling in (str(link), f"{link}/", f"{link}//"):
        result = run([str(capsule.seal_tree), "--any-root", spelling], check=False)
        assert result.code == 2
        assert "it is a symlink" in result.error_text
    assert script.read_text() == SCRIPT


@pytest.mark.parametrize("extra", [[], ["--dry-run"], ["--json"]])
def test_a_root_outside_the_setup_roots_is_refused_without_any_root(
    root: SetupRoot, capsule: Capsule, extra: list[str]
) -> None:
    script = root.write("tool", SCRIPT)
    result = run([str(capsule.seal_tree), *extra, str(root.path)], check=False)
    assert result.code == 2
    assert "--any-root takes any folder" in result.error_text
    assert script.read_text() == SCRIPT


def test_a_root_below_the_setup_roots_is_taken_and_a_way_out_of_it_is_not(
    root: SetupRoot, capsule: Capsule
) -> None:
    roots = Path("/tmp/agentcompass-capsule-setups")
    command = """set -eu
        mount -t tmpfs none /tmp/agentcompass-capsule-setups
        mkdir -p /tmp/agentcompass-capsule-setups/abc/bin
        printf '#!/usr/bin/env node\\n' > /tmp/agentcompass-capsule-setups/abc/bin/tool
        chmod 755 /tmp/agentcompass-capsule-setups/abc/bin/tool
        "$0" /tmp/agentcompass-capsule-setups/abc
        head -n 1 /tmp/agentcompass-capsule-setups/abc/bin/tool
        cd /tmp/agentcompass-capsule-setups
        for refused in . abc/../../other "$1"; do
            mkdir -p "$refused"
            "$0" "$refused" 2>/dev/null || echo "refused $?"
        done"""
    roots.mkdir(exist_ok=True)
    result = run(["unshare", "--mount", "sh", "-c", command, str(capsule.seal_tree), str(root.path)])
    lines = result.text.splitlines()
    assert "sealed 1 script" in lines[0]
    assert lines[1:] == [f"#!{capsule.node}", "refused 2", "refused 2", "refused 2"]


def test_the_capsule_itself_is_never_a_root_and_never_entered(root: SetupRoot, capsule: Capsule) -> None:
    for path in (capsule.root, capsule.root / "bin"):
        result = run([str(capsule.seal_tree), "--any-root", str(path)], check=False)
        assert result.code == 2
        assert "belongs to the capsule" in result.error_text
    argv = [str(capsule.seal_tree), "--any-root", "--json", "--dry-run", str(capsule.root.parent)]
    report = json.loads(run(argv, check=False).stdout)
    assert {"path": str(capsule.root), "reason": "it is the capsule itself"} in report["skipped"]


def test_names_with_newlines_and_bytes_that_are_no_utf8_are_sealed_and_reported(root: SetupRoot) -> None:
    names = [
        b"new\nline",
        b"\xff\xfe",
        "\u00e9\u4e2d".encode(),
        b'quo"te\\',
        b"tab\t",
        b"\xed\xa0\x80",
        b"\x7f",
    ]
    for name in names:
        root.write(os.fsdecode(name), SCRIPT)
    sealed = root.seal()
    assert {os.fsencode(path) for path in sealed.paths("scripts")} == set(names)
    lines = run([str(root.capsule.seal_tree), "--any-root", str(root.path)]).text
    assert len(lines.splitlines()) == 1


def test_dry_run_says_the_same_and_writes_nothing(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    root.write("tool", SCRIPT)
    root.copy(_without_loader(capsule, compiler(HELLO), tmp_path), "hello")
    leftover = root.write(".seal-tree.1.0", "left by a killed run")

    def state() -> list[tuple[str, int, int, bytes]]:
        return sorted(
            (p.name, p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes()) for p in root.path.iterdir()
        )

    before = state()
    dry = root.seal("--dry-run", tool=capsule.seal_tree)
    assert state() == before
    sealed = root.seal(tool=capsule.seal_tree)
    assert {**dry.report, "dry_run": False} == sealed.report
    assert not leftover.exists()


def test_the_report_has_exactly_the_documented_keys_in_order(root: SetupRoot, capsule: Capsule) -> None:
    report = root.seal(tool=capsule.seal_tree).report
    assert list(report) == [
        *("schema_version", "root", "dry_run", "scanned", "already_sealed"),
        *("scripts", "interpreters", "rpaths", "skipped", "failures"),
    ]
    assert report["schema_version"] == "agentcompass.seal-report.v1"
    assert report["scripts"] == {"count": 0, "paths": []}


def test_a_folder_without_permission_is_a_failure_by_name(root: SetupRoot, capsule: Capsule) -> None:
    root.write("open/tool", SCRIPT)
    root.write("closed/tool", SCRIPT)
    root.write("secret", SCRIPT, 0o711)
    for path in (root.path, *root.path.rglob("*")):
        os.chown(path, 1234, 1234)
    (root.path / "closed").chmod(0o111)
    os.chown(root.path / "secret", 0, 0)
    for parent in (*root.path.parents, *capsule.root.parents):
        parent.chmod(parent.stat().st_mode | 0o055)
    argv = [str(capsule.seal_tree), "--json", "--any-root", str(root.path)]
    result = run(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", *argv], check=False)
    report = json.loads(result.stdout)
    assert result.code == 1
    assert report["scripts"]["paths"] == [f"{root.path}/open/tool"]
    assert report["failures"] == [
        {"path": f"{root.path}/{name}", "reason": "it can't be read: Permission denied"}
        for name in ("closed", "secret")
    ]


def test_a_full_disk_leaves_every_file_as_it_was(root: SetupRoot, capsule: Capsule) -> None:
    command = """set -eu
        mount -t tmpfs -o size=3M none "$1"
        mkdir "$1/a"
        head -c 1000000 /dev/zero > "$1/payload"
        { echo '#!/usr/bin/env node'; head -c 1500000 /dev/zero; } > "$1/a/large"
        printf '#!/usr/bin/env node\\n' > "$1/a/small"
        chmod 755 "$1"/a/*
        cp "$1/a/large" "$2"
        set +e
        "$0" --any-root --json "$1"
        echo "code $?" >&2
        set -e
        cmp "$1/a/large" "$2" && ls -A "$1/a" >&2
        rm "$1/payload"
        "$0" --any-root "$1" >&2"""
    mounted = root.path / "disk"
    mounted.mkdir()
    kept = root.path.parent / "kept"
    result = run(["unshare", "--mount", "sh", "-c", command, str(capsule.seal_tree), str(mounted), str(kept)])
    report = json.loads(result.stdout)
    assert [entry["reason"] for entry in report["failures"]] == [
        "its new content can't be written: " + os.strerror(errno.ENOSPC)
    ]
    assert report["scripts"]["count"] == 1
    assert result.error_text.splitlines()[:3] == ["code 1", "large", "small"]
    assert "sealed 1 script" in result.error_text.splitlines()[3]


def _many(root: SetupRoot, count: int) -> dict[str, bytes]:
    body = b"x" * 20000
    for index in range(count):
        folder = root.path / f"d{index % 20}"
        folder.mkdir(exist_ok=True)
        path = folder / f"tool{index}"
        path.write_bytes(SCRIPT.encode() + body)
        path.chmod(0o755)
    return {"old": SCRIPT.encode() + body}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_at_any_moment_no_file_is_half_written_and_a_rerun_finishes(
    root: SetupRoot, capsule: Capsule, number: signal.Signals
) -> None:
    old = _many(root, 600)["old"]
    new = old.replace(b"/usr/bin/env node", os.fsencode(capsule.node), 1)
    argv = [str(capsule.seal_tree), "--any-root", str(root.path)]
    killed = 0
    for delay in (0.001, 0.003, 0.006, 0.01, 0.015, 0.02):
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            time.sleep(delay)
            process.send_signal(number)
        killed += process.returncode == -number
        files = [path for path in root.path.rglob("*") if path.is_file()]
        temporary = [path for path in files if path.name.startswith(".seal-tree.")]
        # Only a kill that can't be caught leaves one, until a run comes by.
        assert len(temporary) <= (killed if number == signal.SIGKILL else 0)
        assert all(path.read_bytes() in (old, new) for path in files if path not in temporary)
    assert killed > 0
    root.seal(tool=capsule.seal_tree)
    files = [path for path in root.path.rglob("*") if path.is_file()]
    assert len(files) == 600
    assert all(path.read_bytes() == new for path in files)


def test_files_that_become_symlinks_while_sealing_are_not_written_through(
    root: SetupRoot, capsule: Capsule, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text(SCRIPT)
    outside.chmod(0o755)
    _many(root, 400)
    files = sorted(path for path in root.path.rglob("*") if path.is_file())
    argv = [str(capsule.seal_tree), "--any-root", str(root.path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        for path in files:
            swapped = path.with_name("swap")
            swapped.symlink_to(outside)
            swapped.replace(path)
        process.wait()
    assert outside.read_text() == SCRIPT
    # A swap can come between the last look and the rename: the name is then the sealed file.
    assert all(
        path.is_symlink() or path.read_bytes().startswith(b"#!" + os.fsencode(capsule.node)) for path in files
    )


def test_two_runs_at_once_give_one_sealed_tree(root: SetupRoot, capsule: Capsule) -> None:
    _many(root, 300)
    argv = [str(capsule.seal_tree), "--any-root", "--json", str(root.path)]
    first, second = (subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(2))
    reports = [json.loads(process.communicate()[0]) for process in (first, second)]
    assert first.returncode == second.returncode == 0
    assert sorted(report["scripts"]["count"] for report in reports) == [0, 300]


def test_a_tree_of_100_000_files_takes_little_memory(root: SetupRoot, capsule: Capsule) -> None:
    for folder in range(100):
        (root.path / f"d{folder}").mkdir()
        for index in range(1000):
            (root.path / f"d{folder}/f{index}").touch()
    root.write("bin/tool", SCRIPT)
    assert peak_memory_kib(str(capsule.seal_tree), "--any-root", str(root.path)) < 32 << 10
    sealed = root.seal(tool=capsule.seal_tree)
    assert sealed.report["scanned"] == 100_001


def test_a_deep_tree_is_walked(root: SetupRoot, capsule: Capsule) -> None:
    deep = "/".join(["d"] * 300)
    root.write(f"{deep}/tool", SCRIPT)
    assert root.seal().paths("scripts") == {f"{deep}/tool"}


def test_special_files_are_not_opened(root: SetupRoot) -> None:
    os.mkfifo(root.path / "fifo")
    os.mknod(root.path / "null", 0o666 | 0o020000, os.makedev(1, 3))
    assert root.seal().report["scanned"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "ROOT is missing"),
        ([""], "ROOT is missing"),
        (["--fast", "/x"], "no such option: --fast"),
        (["/x", "/y"], "one ROOT at a time"),
        (["--any-root", "/nonexistent/folder"], "No such file or directory"),
        (["--any-root", "/etc/passwd"], "Not a directory"),
    ],
)
def test_wrong_usage_is_said_in_one_message(capsule: Capsule, arguments: list[str], message: str) -> None:
    result = run([str(capsule.seal_tree), *arguments], check=False)
    assert result.code == 2
    assert message in result.error_text
    assert result.stdout == b""


def test_version_and_help(capsule: Capsule) -> None:
    for tool in ("seal-tree", "capsule-exec"):
        assert run([str(capsule.root / f"bin/{tool}"), "--version"]).text == f"{tool} 1.0.0\n"
        assert run([str(capsule.root / f"bin/{tool}"), "--help"]).text.startswith(f"Usage: {tool} ")
