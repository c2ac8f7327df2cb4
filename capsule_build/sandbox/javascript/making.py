"""Makes JavaScript's guest from pinned inputs, and gets the bundler.

Both come from npm, by digest, through the project's own fetcher. Node.js is needed to make the guest, and
only for that: the componentizer is a library for it. The bundler is a program without needs.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from ...fetch import Cache, fetch_all
from ...pins import load_pins
from ...runtime.errors import CapsuleError, InputError
from ...runtime.process import run
from .. import prebuilt
from ..guest import recorded
from ..making import steady_environment
from . import guest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...pins import Pin

BUNDLER: Final = "esbuild"
NODE_VARIABLE: Final = "CAPSULE_NODE"
"""Names the Node.js that makes the guest, where it isn't `node`."""

_BUILTINS: Final = (
    "assert",
    "async_hooks",
    "buffer",
    "events",
    "path",
    "querystring",
    "string_decoder",
    "url",
    "util",
    "util/types",
)
"""What unenv has of Node's own modules; the rest is in `guest/js/node`."""

_COMPONENTIZE: Final = """
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
const { componentize } = createRequire(`${process.cwd()}/`)("componentize-qjs");
const [source, wit, output] = process.argv.slice(1);
const made = await componentize({ jsSource: readFileSync(source, "utf8"), witPath: wit });
writeFileSync(output, made.component);
"""
_SECONDS: Final = 300


def recorded_digest() -> str:
    """Return the SHA-256 that the guest has, in hexadecimal, as it is recorded."""
    return recorded(guest.sources())


def ready_guest(say: Callable[[str], None]) -> bytes:
    """Return the guest that came with the package, else one that is made now.

    Raises:
        CapsuleError: The one that came isn't the recorded one; or it can't be made.
    """
    return prebuilt.ready(guest.sources(), make_guest, say, language="JavaScript")


def make_guest(*, need_compiler: bool = False) -> bytes:
    """Make the guest from its sources and pinned inputs: with a C compiler, the same bytes each time.

    Args:
        need_compiler: Whether it is an error that there is none.

    Raises:
        CapsuleError: There is no Node.js, or a part of the making failed.
        InputError: An input can't be had.
    """
    node = os.environ.get(NODE_VARIABLE) or shutil.which("node")
    if node is None:
        raise CapsuleError(
            "JavaScript's guest is made with Node.js, and there is no 'node' on PATH.",
            hint=f"Install Node.js, or set {NODE_VARIABLE} to that of a capsule of this project. A wheel has "
            "the guest ready.",
        )
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "js")
        for name, content in guest.files().items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for pin, tarball in _fetch().items():
            _unpack(tarball, Path(work, "node_modules", pin.package))
        binary = next(path for path in Path(work, "node_modules", "@esbuild").glob("*/bin/esbuild"))
        aliases = [f"--alias:node:{name}=unenv/node/{name}" for name in _BUILTINS]
        words = ["js/main.mjs", "--bundle", "--format=esm", "--outfile=guest.js", "--external:wasi:*"]
        words += [
            "--main-fields=browser,module,main",
            "--log-level=error",
            "--log-limit=0",
            "--legal-comments=none",
        ]
        # Nothing of the machine: what is made depends on the inputs alone.
        environment = steady_environment(Path(work), need_compiler=need_compiler)
        plain = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
        run([str(binary), *words, *aliases], cwd=Path(work), env=plain, timeout=_SECONDS)
        made = ["guest.js", "js/wit", "guest.wasm"]
        run(
            [node, "--input-type=module", "--eval", _COMPONENTIZE, "--", *made],
            cwd=Path(work),
            env=environment,
            timeout=_SECONDS,
        )
        return Path(work, "guest.wasm").read_bytes()


def bundler() -> bytes:
    """Return the bundler's program for this machine.

    Raises:
        InputError: It can't be had.
    """
    ((_, tarball),) = _fetch([BUNDLER]).items()
    with tempfile.TemporaryDirectory() as work:
        _unpack(tarball, Path(work))
        return Path(work, "bin", "esbuild").read_bytes()


def _pins(components: Sequence[str] | None) -> list[Pin]:
    machine = os.uname().machine
    pins = load_pins(Path(guest.sources(), guest.PINS)).pins
    wanted = [pin for pin in pins if components is None or pin.component in components]
    chosen = [pin for pin in wanted if pin.target in ("any", machine)]
    missing = {pin.component for pin in wanted} - {pin.component for pin in chosen}
    if missing:
        raise InputError(
            f"JavaScript's tasks need {', '.join(sorted(missing))}, which isn't pinned for {machine}."
        )
    return chosen


def _fetch(components: Sequence[str] | None = None) -> dict[Pin, Path]:
    fetched = fetch_all(_pins(components), cache=Cache(), components={})
    return {pin: found.path for pin, found in fetched.items()}


def _unpack(tarball: Path, folder: Path) -> None:
    """Unpack an npm package: all that it has lies in one folder, whose name is left out.

    Its files are read and written here, since `extract` has no filters before Python 3.11.4.

    Raises:
        InputError: It has what is no regular file, or one that would lie elsewhere.
    """
    with tarfile.open(tarball) as archive:
        for member in archive:
            if member.isdir():
                continue
            path = PurePosixPath(member.name)
            inner = path.relative_to(*path.parts[:1])
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None or path.is_absolute() or ".." in path.parts or not inner.parts:
                raise InputError(f"{tarball}: '{member.name}' is no regular file of a package of npm.")
            place = folder / inner
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(stream.read())
            place.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
