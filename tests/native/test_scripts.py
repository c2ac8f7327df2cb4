"""Scripts: the first line points at the capsule, and nothing else of the file changes."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .capsules import Capsule
    from .conftest import Image, Images, SetupRoot

NODE = "console.log('args', process.argv.length - 2, process.execArgv.join(' '))\n"
PYTHON = "import os, sys\nprint('args', len(sys.argv) - 1, sys.flags.no_user_site, os.environ.get('A'))\n"
BASH = 'echo "args $# $-"\n'


@pytest.mark.parametrize(
    ("line", "body", "said"),
    [
        ("#!/usr/bin/env node", NODE, "args 2"),
        ("#! /usr/bin/env node", NODE, "args 2"),
        ("#!\t/usr/bin/env\tnode", NODE, "args 2"),
        ("#!/bin/env nodejs", NODE, "args 2"),
        ("#!/usr/local/bin/node", NODE, "args 2"),
        ("#!/home/builder/.nvm/bin/node", NODE, "args 2"),
        ("#!/usr/bin/env -S node --no-warnings", NODE, "args 2 --no-warnings"),
        ("#!/usr/bin/env -Snode --no-warnings", NODE, "args 2 --no-warnings"),
        ("#!/usr/bin/env --split-string=node --no-warnings", NODE, "args 2 --no-warnings"),
        ("#!/usr/bin/env node --no-warnings", NODE, "args 2 --no-warnings"),
        (
            "#!/usr/bin/env -S node --no-warnings --trace-uncaught",
            NODE,
            "args 2 --no-warnings --trace-uncaught",
        ),
        ("#!/usr/bin/env python3", PYTHON, "args 2 0 None"),
        ("#!/usr/bin/env python", PYTHON, "args 2 0 None"),
        ("#!/usr/bin/env python3.12", PYTHON, "args 2 0 None"),
        ("#!/usr/bin/python3 -sE", PYTHON, "args 2 1 None"),
        ("#!/usr/bin/env -S A=1 python3 -sE", PYTHON, "args 2 1 1"),
        ("#!/usr/bin/env -S A='1 2' python3 -s -E", PYTHON, "args 2 1 1 2"),
        ("#!/usr/bin/env -S -u A python3 -s", PYTHON, "args 2 1 None"),
        ("#!/usr/bin/env -iS A=3 python3 -s", PYTHON, "args 2 1 3"),
        ("#!/bin/bash -eu", BASH, "args 2 ehuB"),
        ("#!/usr/bin/env bash", BASH, "args 2 hB"),
    ],
)
def test_a_script_runs_in_an_image_without_its_interpreter(
    root: SetupRoot, images_by_kind: Images, line: str, body: str, said: str
) -> None:
    script = root.write("bin/tool", f"{line}\n{body}")
    sealed = root.seal()
    assert sealed.paths("scripts") == {"bin/tool"}
    assert script.read_bytes().partition(b"\n")[2] == body.encode()
    result = images_by_kind("bare").run(
        root.path, script, "x y", "z", env={"A": "0"} if "-u A" in line else {}
    )
    assert result.text.strip() == said


def test_a_script_runs_in_every_image(root: SetupRoot, image: Image) -> None:
    scripts = [
        root.write("bin/n", f"#!/usr/bin/env node\n{NODE}"),
        root.write("bin/p", f"#!/usr/bin/env python3\n{PYTHON}"),
        root.write("bin/b", f"#!/bin/bash\n{BASH}"),
    ]
    root.seal()
    for script in scripts:
        assert image.run(root.path, script, "1").text.startswith("args 1")


@pytest.mark.parametrize(
    "line",
    [
        "#!/usr/bin/nodejs-helper",
        "#!/usr/bin/env bashful",
        "#!/usr/bin/env node-gyp",
        "#!/usr/bin/env pythonic",
        "#!/usr/bin/env python3-config",
        "#!/usr/bin/env python2",
        "#!/bin/sh",
        "#!/bin/sh -c node",
        "#!/usr/bin/env",
        "#!/opt/my tools/bin/node",
        "#!node",
        "#!/usr/bin/perl -w node",
    ],
)
def test_a_line_that_names_something_else_stays(root: SetupRoot, line: str) -> None:
    content = f"{line}\n#!/usr/bin/env node\n".encode()
    script = root.write("bin/tool", content)
    sealed = root.seal()
    assert script.read_bytes() == content
    assert sealed.nothing_changed
    assert not sealed.paths("skipped")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!", "its #! names no interpreter"),
        (b"#!\n", "its #! names no interpreter"),
        (b"#! \t\r\n", "its #! names no interpreter"),
        (b"\xef\xbb\xbf#!/usr/bin/env node\n", "a byte-order mark stands before its #!"),
        (b"#!/usr/bin/env\0node\n", "its first line holds a NUL byte"),
        (b"#!/usr/bin/env -S node ${HOME}\n", "it uses an environment variable"),
        (b"#!/usr/bin/env -S node 'x\n", "it holds a quote that isn't closed"),
        (b"#!/usr/bin/env -C / node\n", "it uses env's option -C"),
        (b"#!/usr/bin/env python3.9\n", "it asks for python3.9, which this capsule doesn't have"),
        (b"#!/usr/bin/env node " + b"x" * 5000 + b"\n", "its first line has no end within 4096 bytes"),
    ],
)
def test_a_script_that_is_left_alone_is_listed_with_the_reason(
    root: SetupRoot, content: bytes, reason: str
) -> None:
    script = root.write("lib/tool", content)
    sealed = root.seal()
    assert script.read_bytes() == content
    assert reason in sealed.reason("lib/tool")
    assert sealed.code == 0


def test_an_interpreter_that_is_there_outside_the_system_stays(root: SetupRoot, tmp_path: Path) -> None:
    own = tmp_path / "own/bin/python3"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"")
    own.chmod(0o755)
    script = root.write("bin/tool", f"#!{own}\n")
    assert root.seal().nothing_changed
    assert script.read_text() == f"#!{own}\n"


def test_a_line_with_a_carriage_return_is_repaired_and_the_rest_is_not(
    root: SetupRoot, images_by_kind: Images, capsule: Capsule
) -> None:
    body = NODE.replace("\n", "\r\n") + "// end\r\n"
    script = root.write("bin/tool", f"#!/usr/bin/env node\r\n{body}")
    root.seal()
    assert script.read_bytes() == f"#!{capsule.node}\n{body}".encode()
    assert images_by_kind("bare").run(root.path, script).text.startswith("args 0")


def test_a_script_without_a_newline_keeps_none(root: SetupRoot, capsule: Capsule) -> None:
    script = root.write("bin/tool", "#!/usr/bin/env node")
    root.seal()
    assert script.read_text() == f"#!{capsule.node}"


def test_a_line_that_the_kernel_would_cut_is_refused_by_name(root: SetupRoot) -> None:
    content = f"#!/usr/bin/env -S node {'--no-warnings ' * 20}\n{NODE}"
    script = root.write("bin/tool", content)
    sealed = root.seal()
    assert sealed.code == 1
    assert "its sealed first line would have" in sealed.reason("bin/tool")
    assert script.read_text() == content


def test_a_script_that_may_not_be_executed_stays(root: SetupRoot) -> None:
    module = root.write("lib/module.py", f"#!/usr/bin/env python3\n{PYTHON}", 0o644)
    assert root.seal().nothing_changed
    assert module.read_text().startswith("#!/usr/bin/env python3\n")


@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_the_trampolines_of_pip_distlib_and_uv_run_without_a_system_shell(
    root: SetupRoot, images_by_kind: Images, quote: str
) -> None:
    text = f"""#!/bin/sh
'''exec' {quote}/usr/bin/python3{quote} "$0" "$@"
' '''
# -*- coding: utf-8 -*-
{PYTHON}"""
    script = root.write("bin/tool", text)
    root.seal()
    assert script.read_text().split("\n")[2:] == text.split("\n")[2:]
    assert images_by_kind("bare").run(root.path, script, "1", "2 3").text.startswith("args 2")


def test_a_relocatable_trampoline_of_uv_needs_no_programs_of_the_image(
    root: SetupRoot, images_by_kind: Images, capsule: Capsule
) -> None:
    (root.path / "bin").mkdir()
    (root.path / "bin/python3").symlink_to(capsule.python)
    script = root.write(
        "bin/tool",
        f"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python3' "$0" "$@"
' '''
{PYTHON}""",
    )
    root.seal()
    assert images_by_kind("bare").run(root.path, script, "1").text.startswith("args 1")


def test_a_script_of_a_venv_gets_the_venvs_own_interpreter(
    root: SetupRoot, images_by_kind: Images, capsule: Capsule
) -> None:
    images_by_kind("bare").run(root.path, capsule.python, "-m", "venv", "--without-pip", root.path / "v")
    module = next((root.path / "v/lib").glob("*/site-packages")) / "here.py"
    module.write_text("print('found')\n")
    outside = root.write("bin/outside", "#!/usr/bin/env python3\nimport here\n")
    inside = root.write("v/bin/inside", "#!/usr/bin/env python3\nimport here\n")
    made = root.write("v/bin/made", f"#!{root.path}/v/bin/python3\nimport here\n")
    before = made.read_bytes()
    root.seal()
    assert made.read_bytes() == before
    image = images_by_kind("bare")
    assert image.run(root.path, inside).text == "found\n"
    assert image.run(root.path, made).text == "found\n"
    assert "ModuleNotFoundError" in image.run(root.path, outside, check=False).error_text


def test_a_zipapp_runs_and_opens_as_a_zip(root: SetupRoot, images_by_kind: Images) -> None:
    app = root.write("bin/app", b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(app, "a") as archive:
        archive.writestr("__main__.py", "import part\nprint(part.NAME)\n")
        archive.writestr("part.py", "NAME = 'zipped'\n")
    app.chmod(0o755)
    root.seal()
    with zipfile.ZipFile(app) as archive:
        assert archive.testzip() is None
    assert images_by_kind("bare").run(root.path, app).text == "zipped\n"


def test_a_line_never_gets_shorter_so_that_a_zip_behind_it_never_moves_forward(
    root: SetupRoot, images_by_kind: Images
) -> None:
    app = root.write("bin/app", b"#!/home/" + b"x" * 200 + b"/bin/python3\n")
    size = app.stat().st_size
    # Offsets that count from the file's start, as the zipapp module writes them.
    with app.open("r+b") as stream:
        stream.seek(size)
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("__main__.py", "print('zipped')\n")
    root.seal()
    assert len(app.read_bytes().partition(b"\n")[0]) + 1 == size
    assert images_by_kind("bare").run(root.path, app).text == "zipped\n"


def test_future_imports_behind_a_docstring_stay_legal(root: SetupRoot, images_by_kind: Images) -> None:
    script = root.write(
        "bin/tool",
        '#!/usr/bin/env -S A=1 python3 -sE\n"""Docstring."""\n'
        "from __future__ import annotations\nprint(__doc__)\n",
    )
    root.seal()
    assert images_by_kind("bare").run(root.path, script).text == "Docstring.\n"


def test_a_script_in_a_folder_with_spaces_runs(root: SetupRoot, images_by_kind: Images) -> None:
    script = root.write("my tools/a tool", f"#!/usr/bin/env node\n{NODE}")
    root.seal()
    assert images_by_kind("bare").run(root.path, script).text.startswith("args 0")


def test_an_executable_without_a_first_line_is_shown_where_programs_lie(root: SetupRoot) -> None:
    root.write("lib/node_modules/agent/bin/agent.exe", 'echo "not installed" >&2\n')
    (root.path / "bin").mkdir()
    (root.path / "bin/agent").symlink_to("../lib/node_modules/agent/bin/agent.exe")
    (root.path / "bin/gone").symlink_to("nowhere")
    sealed = root.seal()
    assert "neither an ELF file nor a script" in sealed.reason("lib/node_modules/agent/bin/agent.exe")
    assert "neither an ELF file nor a script" in sealed.reason("bin/agent")
    assert sealed.reason("bin/gone") == "it is a symlink that leads to nothing"
