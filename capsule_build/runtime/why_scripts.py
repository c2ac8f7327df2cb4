"""Why a script can't start: its first line, as the kernel reads it (Linux, fs/binfmt_script.c), and `env`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .layout import CAPSULES
from .why_view import Problem, Trail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .why_files import Entry
    from .why_view import View

HEAD_BYTES: Final = 1 << 12
"""How much of a script is read: its first line, and the second of pip's."""

_KERNEL_BYTES: Final = 255
"""Bytes of a first line that the kernel looks at, from Linux 5.1 on."""

_BOM: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t"
_USUAL_PATH: Final = "/bin:/usr/bin"
"""Where a program is looked for when PATH isn't set (glibc and musl agree on these two)."""

_TRAMPOLINE: Final = re.compile(rb"\A[^\n]*\n'''exec' (?:\"(?P<quoted>[^\"\n]+)\"|(?P<plain>\S+)) \"\$0\"")
"""What pip, distlib and uv write where a path is too long, or has a blank, for a first line."""

_AGAIN: Final = "Install the capsule again that it was sealed for."
_SHELLS: Final = ("sh", "bash", "dash", "ash")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class FirstLine:
    """A script's first line: the interpreter, and the one argument that the kernel makes of the rest."""

    interpreter: str
    argument: str | None


@dataclass(frozen=True)
class Step:
    """What a script starts, to be looked at in turn: its path, and what says so."""

    path: str
    trail: Trail
    because: str


def is_script(head: bytes) -> bool:
    """Return whether a file is one for the kernel."""
    return head.startswith(b"#!")


def first_line(head: bytes) -> FirstLine | None:
    """Read a script's first line; `None`: it names no interpreter."""
    line = head[2:].partition(b"\n")[0].partition(b"\0")[0][: _KERNEL_BYTES - 2].strip(_BLANKS)
    interpreter, _, argument = line.replace(b"\t", b" ").partition(b" ")
    if not interpreter:
        return None
    text = argument.strip(_BLANKS).decode("utf-8", "surrogateescape")
    return FirstLine(interpreter.decode("utf-8", "surrogateescape"), text or None)


def look_at_script(entry: Entry, head: bytes, view: View) -> Iterator[Problem | Step]:
    """Yield what is wrong with a script, and what it starts."""
    path = entry.path
    line = head.partition(b"\n")[0]
    if line.endswith(b"\r"):
        yield Problem(
            "shebang-carriage-return",
            path,
            f"The first line of '{path}' ends with a carriage return (it has Windows line ends), which the "
            "kernel takes for a part of the name.",
            hint="Convert its line ends (sed -i 's/\\r$//' FILE); sealing does that, too.",
        )
        return
    if len(line) > _KERNEL_BYTES:
        yield Problem(
            "shebang-too-long",
            path,
            f"The first line of '{path}' has {len(line)} bytes; the kernel reads {_KERNEL_BYTES}.",
            hint="Put it at a shorter path, or name the interpreter by a shorter one.",
        )
        return
    found = first_line(head)
    if found is None:
        yield Problem("shebang-empty", path, f"The first line of '{path}' names no interpreter.")
        return
    trail = view.at(found.interpreter)
    if trail.entry is None:
        what = f", a symlink to nothing: {trail.shown}" if trail.is_link else ", which isn't there"
        yield Problem(
            "interpreter-missing",
            path,
            f"The first line of '{path}' names the interpreter '{found.interpreter}'{what}. The system then "
            "says 'No such file or directory' of the script itself.",
            hint=_AGAIN if found.interpreter.startswith(f"{CAPSULES}/") else None,
        )
        return
    yield Step(found.interpreter, trail, f"the first line of '{path}' names it")
    name = found.interpreter.rpartition("/")[2]
    if name == "env":
        yield from _look_at_env(path, found, trail, view)
    elif name in _SHELLS:
        if " " in (found.argument or "").replace("\t", " ") and str(found.argument).startswith("-"):
            yield Problem(
                "shell-arguments",
                path,
                f"The kernel gives all of '{found.argument}' to '{found.interpreter}' as one word, which no "
                "shell takes for several options: it refuses the blank in it.",
                hint=f"Write '#!{found.interpreter}', and below it 'set {found.argument}'.",
            )
        yield from _look_at_trampoline(path, head, view)


def _look_at_env(path: str, line: FirstLine, env: Trail, view: View) -> Iterator[Problem | Step]:
    """Yield what is wrong with what `env` is told, and what it starts."""
    argument = line.argument or ""
    words = [argument] if argument else []
    if argument.startswith(("-S", "--split-string")):
        if env.entry is not None and env.entry.real_path.rpartition("/")[2].startswith("busybox"):
            yield Problem(
                "env-unsupported",
                path,
                f"'{path}' needs 'env -S', and the '{line.interpreter}' there is BusyBox's, which hasn't it.",
            )
            return
        try:
            words = shlex.split(re.sub(r"\A(?:-S|--split-string=?)\s*", "", argument))
        except ValueError:
            words = argument.split()
    elif " " in argument and not argument.startswith("-") and not _ASSIGNMENT.match(argument):
        yield Problem(
            "env-arguments",
            path,
            f"The kernel gives all of '{argument}' to '{line.interpreter}' as one word, so that 'env' looks "
            f"for a program of that name with the blanks in it.",
            hint=f"Write '#!{line.interpreter} -S {argument}'; sealing mends it where it knows the program.",
        )
        return
    plain = [word for word in words if not word.startswith("-") and not _ASSIGNMENT.match(word)]
    if not plain:
        return
    yield _found_on_path(path, plain[0], view)


def _found_on_path(path: str, command: str, view: View) -> Problem | Step:
    if "/" in command:
        candidates = [command]
    else:
        variables = view.surroundings.variables
        folders = (_USUAL_PATH if variables is None else variables.get("PATH", _USUAL_PATH)).split(":")
        candidates = [f"{folder.rstrip('/')}/{command}" for folder in folders if folder.startswith("/")]
    trails = view.follow(candidates)
    for candidate in candidates:
        entry = trails[candidate].entry
        if entry is not None and entry.kind == "file" and entry.may_run:
            return Step(candidate, trails[candidate], f"'env {command}' of '{path}' finds it")
    places = ", ".join(f"'{item.rpartition('/')[0]}'" for item in candidates) or "nowhere: PATH is empty"
    return Problem(
        "command-missing",
        path,
        f"The first line of '{path}' asks 'env' for '{command}', which isn't on PATH (looked in {places}).",
    )


def _look_at_trampoline(path: str, head: bytes, view: View) -> Iterator[Problem | Step]:
    found = _TRAMPOLINE.match(head)
    if found is None:
        return
    inner = (found["quoted"] or found["plain"]).decode("utf-8", "surrogateescape")
    trail = view.at(inner)
    if trail.entry is None:
        yield Problem(
            "interpreter-missing", path, f"The second line of '{path}' starts '{inner}', which isn't there."
        )
    else:
        yield Step(inner, trail, f"the second line of '{path}' starts it")


def what_it_is(path: str, head: bytes) -> Problem:
    """Return why the kernel can't start a file that is neither a script nor ELF."""
    if not head:
        return Problem("empty", path, f"'{path}' is empty.")
    if head.startswith(_BOM + b"#!"):
        return Problem(
            "byte-order-mark",
            path,
            f"'{path}' begins with a byte-order mark, so that the kernel doesn't see its '#!'.",
            hint="Save it as UTF-8 without one.",
        )
    known = {
        b"MZ": "a program for Windows",
        b"\xcf\xfa\xed\xfe": "a program for macOS",
        b"\xca\xfe\xba\xbe": "a program for macOS, or a Java class",
        b"PK\x03\x04": "a zip archive",
        b"\x1f\x8b": "a gzip archive",
        b"\0asm": "a WebAssembly module",
    }
    what = next((name for start, name in known.items() if head.startswith(start)), None)
    if what is not None:
        return Problem("format", path, f"'{path}' is {what}.")
    if b"\0" not in head:
        return Problem(
            "no-shebang",
            path,
            f"'{path}' is text without a '#!' line: a shell would run it, but the kernel can't start it.",
            hint="Give it a first line that names its interpreter.",
        )
    return Problem("format", path, f"'{path}' is neither a script nor an ELF file.")
