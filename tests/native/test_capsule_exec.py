"""capsule-exec: the tools on PATH during set-up, the setup root for npm and Python, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import Result, run

from .capsules import Capsule, build_tools, build_tools_on_host

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Images, SetupRoot

SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _start(
    capsule: Capsule, *arguments: str | Path, env: dict[str, str] | None = None, stdin: bytes | None = None
) -> Result:
    argv = [str(capsule.root / "bin/capsule-exec"), *map(str, arguments)]
    return run(argv, env={"PATH": SYSTEM} if env is None else env, check=False, stdin=stdin)


def _whole_venv(root: Path) -> Path:
    """Make what capsule-exec takes for a venv that is there already: making one takes seconds."""
    (root / "bin").mkdir(parents=True)
    for name in ("pyvenv.cfg", "bin/python", "bin/pip"):
        (root / name).touch()
    return root


def _environment(result: Result) -> dict[str, str]:
    assert result.code == 0, result.error_text
    return dict(line.split("=", 1) for line in result.text.splitlines())


def test_without_a_setup_root_only_path_changes(capsule: Capsule) -> None:
    before = {"PATH": SYSTEM, "A": "1", "npm_config_prefix": "/own", "PYTHONPATH": "/own"}
    after = _environment(_start(capsule, "env", env=before))
    assert after == {**before, "PATH": f"{capsule.root}/bin:{SYSTEM}"}


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}])
def test_an_image_without_path_gets_the_usual_one(capsule: Capsule, environment: dict[str, str]) -> None:
    after = _environment(_start(capsule, "/usr/bin/env", env=environment))
    assert after["PATH"] == f"{capsule.root}/bin:{SYSTEM}"


def test_a_setup_root_is_npms_prefix_and_cache_whatever_the_environment_says(
    capsule: Capsule, tmp_path: Path
) -> None:
    given = {
        "PATH": SYSTEM,
        "NPM_CONFIG_PREFIX": "/own",
        "Npm_Config_cache": "/own",
        "npm_config_prefix_x": "kept",
        "NPM_CONFIG_REGISTRY": "kept",
        "CAPSULE_SETUP_ROOT": "/not/this",
    }
    root = _whole_venv(tmp_path / "s")
    after = _environment(_start(capsule, "--setup-root", f"{root}//", "env", env=given))
    spellings = {
        name: value
        for name, value in after.items()
        if name.lower() in ("npm_config_prefix", "npm_config_cache")
    }
    assert spellings == {"npm_config_prefix": str(root), "npm_config_cache": f"{root}/.cache/npm"}
    assert after["npm_config_prefix_x"] == after["NPM_CONFIG_REGISTRY"] == "kept"
    assert after["CAPSULE_SETUP_ROOT"] == str(root)
    assert after["PATH"] == f"{root}/bin:{capsule.root}/bin:{SYSTEM}"
    assert (root / "lib/node_modules").is_dir()


def test_the_setup_root_of_the_environment_counts_where_no_option_is(
    capsule: Capsule, tmp_path: Path
) -> None:
    given = {"PATH": SYSTEM, "CAPSULE_SETUP_ROOT": str(_whole_venv(tmp_path / "s"))}
    assert _environment(_start(capsule, "env", env=given))["npm_config_prefix"] == str(tmp_path / "s")


def test_started_twice_the_path_does_not_grow(capsule: Capsule, tmp_path: Path) -> None:
    own = str(capsule.root / "bin/capsule-exec")
    root = _whole_venv(tmp_path / "s")
    once = _environment(_start(capsule, f"--setup-root={root}", "env"))
    twice = _environment(_start(capsule, f"--setup-root={root}", own, "--", own, "env"))
    assert twice == once


def test_the_setup_root_is_a_venv_of_the_capsules_python(
    capsule: Capsule, root: SetupRoot, images_by_kind: Images
) -> None:
    """pip itself is not in the tests' capsule: what ensurepip would leave is put there."""
    setup = root.path / "s"
    images_by_kind("bare").run(root.path, capsule.python, "-m", "venv", "--without-pip", setup)
    (setup / "bin/pip").touch()
    program = "import sys; print(sys.prefix, sys.base_prefix != sys.prefix)"
    launcher = capsule.root / "bin/capsule-exec"
    given = {"PYTHONPATH": "/nonexistent", "PYTHONHOME": "/nonexistent"}
    result = images_by_kind("bare").run(
        root.path, launcher, "--setup-root", setup, "python3", "-c", program, env=given
    )
    assert result.text == f"{setup} True\n"
    after = _environment(_start(capsule, "--setup-root", setup, "env"))
    assert after["VIRTUAL_ENV"] == str(setup)
    assert after["PIP_CACHE_DIR"] == f"{setup}/.cache/pip"


def test_a_setup_root_without_a_venv_gets_one(capsule: Capsule, tmp_path: Path) -> None:
    setup = tmp_path / "s"
    result = _start(capsule, "--setup-root", setup, "python3", "-c", "import sys; print(sys.prefix)")
    assert result.text == f"{setup}\n", result.error_text
    assert (setup / "bin/pip").exists()


def test_two_at_once_make_one_venv(capsule: Capsule, tmp_path: Path) -> None:
    argv = [
        str(capsule.root / "bin/capsule-exec"),
        "--setup-root",
        str(tmp_path / "s"),
        "python3",
        "-c",
        "print('ok')",
    ]
    both = [subprocess.Popen(argv, env={"PATH": SYSTEM}, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0] for process in both] == [b"ok\n", b"ok\n"]


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_exit_status_is_the_commands(capsule: Capsule, code: int) -> None:
    assert _start(capsule, "sh", "-c", f"exit {code}").code == code


def test_signals_input_and_output_are_the_commands(capsule: Capsule) -> None:
    assert _start(capsule, "sh", "-c", "kill -TERM $$").code == -signal.SIGTERM
    result = _start(capsule, "sh", "-c", "cat; echo error >&2", stdin=b"a\0b\n")
    assert (result.stdout, result.stderr) == (b"a\0b\n", b"error\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "a command is missing"),
        (("--",), 2, "a command is missing"),
        (("--fast", "x"), 2, "no such option: --fast"),
        (("--setup-root",), 2, "--setup-root needs a folder"),
        (("--setup-root", "", "x"), 2, "--setup-root needs a folder"),
        (("--setup-root", "/", "x"), 2, "the root of the file system"),
        (("--setup-root", "/a:b", "x"), 2, "can't stand in PATH"),
        (("--setup-root", "{root}/s", "x"), 2, "the capsule itself is never written to"),
        (("--setup-root", "/proc/nope/s", "x"), 125, "can't be made"),
        (("--setup-root", "/etc/passwd/s", "x"), 125, "Not a directory"),
        (("nope-nope",), 127, "'nope-nope' is not on PATH"),
        (("/nope/nope",), 127, "No such file or directory"),
        (("/etc/passwd",), 126, "Permission denied"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    capsule: Capsule, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = _start(capsule, *(part.replace("{root}", str(capsule.root)) for part in arguments))
    assert result.code == code
    assert message in result.error_text
    assert result.error_text.startswith("capsule-exec: ")
    assert result.stdout == b""


def test_a_script_whose_interpreter_is_missing_says_what_to_do(capsule: Capsule, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/nonexistent/env node\n")
    script.chmod(0o755)
    result = _start(capsule, "tool", env={"PATH": str(tmp_path)})
    assert result.code == 126
    assert (
        "the interpreter or loader that it names isn't here; seal the setup root first" in result.error_text
    )


def test_a_relative_setup_root_is_taken_from_the_working_folder(capsule: Capsule, tmp_path: Path) -> None:
    _whole_venv(tmp_path / "s")
    argv = [str(capsule.root / "bin/capsule-exec"), "--setup-root", "s", "env"]
    result = run(argv, env={"PATH": SYSTEM}, cwd=tmp_path, check=False)
    assert _environment(result)["npm_config_prefix"] == str(tmp_path / "s")


def test_the_exec_wrapper_becomes_its_target_by_its_own_name(capsule: Capsule) -> None:
    program = (
        "import sys, os; print(sys.executable, sys.argv[1:], os.environ.get('PWD'), os.environ.get('SHLVL'))"
    )
    result = run([str(capsule.python), "-c", program, "a b", ""], env={})
    assert result.text == f"{capsule.root}/runtime/python/bin/python3.12 ['a b', ''] None None\n"


@pytest.mark.parametrize(("architecture", "named"), [("x86_64", "x86-64"), ("aarch64", "aarch64")])
def test_the_recipes_build_gives_the_same_bytes_in_another_folder(
    capsule: Capsule, tmp_path: Path, architecture: str, named: str
) -> None:
    first, second = tmp_path / "a", tmp_path / "deeper/in/b"
    for out in (first, second):
        build_tools(capsule.root, out, capsule.work, "python=/x/y", architecture=architecture)
    for name in ("bin/capsule-exec", "bin/seal-tree", "libexec/shebang-exec", "bin/python"):
        content = (first / name).read_bytes()
        assert content == (second / name).read_bytes()
        assert os.fsencode(capsule.work) not in content
        described = run(["file", str(first / name)]).text
        assert "statically linked" in described
        assert named in described


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_tools_compile_without_a_warning(tmp_path: Path, compiler: str) -> None:
    build_tools_on_host(
        tmp_path / "capsule", tmp_path / "out", compiler=compiler, flags="-O2 -Wformat=2 -Wvla"
    )
    assert run([str(tmp_path / "out/bin/seal-tree"), "--version"]).text == "seal-tree 1.0.0\n"
