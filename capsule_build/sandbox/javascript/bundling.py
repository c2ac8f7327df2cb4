"""A file and what it imports, made one text by esbuild. None of it is run for that.

esbuild reads what an import names, wherever that lies. So what it has read is looked at before its result is
used: modules of code from the file's own folder, and anything of the packages in a `node_modules` above it.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from ...runtime.process import CommandError, run
from ..options import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

SDK: Final = ("@capsule-build/sdk", "@capsule-run/sdk")
"""The names that tasks know this project's module by."""

CODE: Final = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
MAX_BUNDLE_BYTES: Final = 32 << 20

_PACKAGES: Final = "node_modules"
_SECONDS: Final = 30
_TARGET: Final = "es2023"
"""What QuickJS has in full; newer syntax is rewritten."""

_IN_PACKAGE: Final = r"@?[a-z0-9][^:#]*$"
_UNRESOLVED: Final = 'Could not resolve "'
_DATA: Final = "Files that aren't code are read at run time, from allowedFiles."

# Node's own modules are the guest's: it has some, and says of the others that they aren't there.
_BUILTINS: Final = (
    "assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns",
    "dns/promises domain events fs fs/promises http http2 https inspector module net os path path/posix",
    "perf_hooks process punycode querystring readline readline/promises repl stream stream/promises",
    "stream/web string_decoder sys timers timers/promises tls trace_events tty url util util/types v8 vm",
    "wasi worker_threads zlib",
)


class Text(NamedTuple):
    """One text that esbuild made.

    Attributes:
        code: JavaScript.
        map: Its source map, as JSON.
        inputs: The files that it was made of, by their real paths.
    """

    code: str
    map: str
    inputs: tuple[str, ...]


class Bundle(NamedTuple):
    """A file with what it imports.

    Attributes:
        own: The file with its own modules, as ES module: what is read of its tasks is read from this.
        whole: All of it, packages too, as CommonJS: what is run.
    """

    own: Text
    whole: Text


def bundle(path: str, program: str) -> Bundle:
    """Make one text of a file.

    Args:
        path: The file.
        program: esbuild.

    Raises:
        ConfigError: It isn't JavaScript or TypeScript, or imports what isn't there or isn't to be had.
    """
    folder, name = os.path.split(os.path.realpath(path))
    if "*" in name:
        raise ConfigError(f"The name of the file {name} has a '*', which stands for many files.")
    return Bundle(
        _run(program, folder, name, ["--format=esm", "--packages=external"]),
        _run(program, folder, name, ["--format=cjs"]),
    )


def _run(program: str, folder: str, name: str, words: Sequence[str]) -> Text:
    outside = [*SDK, *(f"{sdk}/*" for sdk in SDK), *" ".join(_BUILTINS).split(), "node:*"]
    place = json.dumps(f"file:///{quote(name)}")
    with tempfile.TemporaryDirectory() as work:
        output, meta = Path(work, "bundle.js"), Path(work, "bundle.json")
        argv = [
            program,
            # What it shall be called, so that a "=" in its own name isn't taken for that.
            f"bundle=./{name}",
            "--bundle",
            *words,
            *(f"--external:{module}" for module in outside),
            "--platform=neutral",
            "--supported:dynamic-import=false",
            "--main-fields=module,main",
            f"--target={_TARGET}",
            f"--define:import.meta.url={place}",
            # Of the folders above nobody knows whose they are; what it says could change what is read.
            "--tsconfig-raw={}",
            "--charset=utf8",
            "--legal-comments=none",
            "--sourcemap=external",
            "--sources-content=false",
            "--log-level=error",
            "--log-limit=5",
            "--color=false",
            f"--outdir={work}",
            f"--metafile={meta}",
        ]
        environment = {"PATH": "", "HOME": work, "TMPDIR": work}
        try:
            run(argv, cwd=Path(folder), env=environment, timeout=_SECONDS)
        except CommandError as error:
            raise ConfigError(_why(error, folder, name)) from None
        inputs = _inputs(json.loads(meta.read_bytes()), folder, name)
        code = output.read_text("utf-8")
        if len(code) > MAX_BUNDLE_BYTES:
            raise ConfigError(f"{name} and what it imports have more than {MAX_BUNDLE_BYTES} bytes.")
        places = _map(json.loads(output.with_suffix(".js.map").read_bytes()), work, folder)
        return Text(code, places, inputs)


def _map(found: dict[str, Any], work: str, folder: str) -> str:
    """Return a source map with the names that messages use: relative to the file's folder.

    esbuild follows what a file says of its own source map, which may lie anywhere. So a map with a source
    that the task couldn't import says nothing.
    """
    sources = [os.path.realpath(os.path.join(work, source)) for source in found["sources"]]
    known = all(is_allowed(source, folder) for source in sources)
    slim = {
        "version": found["version"],
        "sources": [_shown(source, folder) for source in sources] if known else [],
        "mappings": found["mappings"] if known else "",
    }
    return json.dumps(slim, separators=(",", ":"))


def _shown(path: str, folder: str) -> str:
    relative = os.path.relpath(path, folder)
    # Of a package above the folder: from `node_modules` on.
    return (
        relative[relative.index(_PACKAGES) :]
        if relative.startswith("..") and _PACKAGES in relative
        else relative
    )


def _inputs(meta: dict[str, Any], folder: str, name: str) -> tuple[str, ...]:
    found = []
    for key in meta["inputs"]:
        if key.startswith("<define:"):
            continue
        path = _existing(os.path.join(folder, key.removeprefix("(disabled):")))
        if path is None or not is_allowed(path, folder):
            raise ConfigError(_refusal(name, key))
        found.append(path)
    return tuple(sorted(found))


def _existing(path: str) -> str | None:
    """Return the real path of a file, whose name esbuild may have lengthened by how it was imported."""
    for ending in (None, " with {", "?", "#"):
        shorter = path if ending is None else path.partition(ending)[0]
        if os.path.isfile(shorter):
            return os.path.realpath(shorter)
    return None


def is_allowed(path: str, folder: str) -> bool:
    """Say whether a task of a file may see another file by importing it.

    Args:
        path: The other file's real path.
        folder: The file's folder's real path.
    """
    top = folder
    while True:
        if path.startswith(f"{top.rstrip('/')}/{_PACKAGES}/"):
            return True
        if top == "/":
            break
        top = os.path.dirname(top)
    if not path.startswith(f"{folder.rstrip('/')}/"):
        return False
    # Packages of a folder below are packages too.
    return path.endswith(CODE) or f"/{_PACKAGES}/" in path[len(folder) :]


def _refusal(name: str, imported: str) -> str:
    return (
        f"{name} imports {imported}, which it can't: a task imports modules of code from its file's own "
        f"folder, and packages from a node_modules there or above. {_DATA}"
    )


def _package(module: str) -> str:
    """Return the name of the package that a module is of: with its scope, and without what lies in it."""
    return "/".join(module.split("/")[: 2 if module.startswith("@") else 1])


def _why(error: CommandError, folder: str, name: str) -> str:
    """Return what esbuild says is wrong, and nothing of the files themselves.

    Format: `✘ [ERROR] text`, an empty line, `    file:line:column:`, and lines of the file.
    """
    if error.result is None:
        return f"{name} can't be made one text with what it imports: {error.message}"
    said: list[str] = []
    lines = error.result.error_text.splitlines()
    for number, line in enumerate(lines):
        _, mark, text = line.partition("[ERROR] ")
        if not mark or line.startswith(" "):
            continue
        place = next((after for after in lines[number + 1 : number + 3] if after.startswith("    ")), "")
        file, _, rest = place.strip().partition(":")
        path = os.path.realpath(os.path.join(folder, file)) if file else None
        if path is not None and not is_allowed(path, folder):
            return _refusal(name, file)
        sentence = f"{text.removesuffix('.')}."
        said.append(f"{file}, line {rest.partition(':')[0]}: {sentence}" if file else sentence)
    missing = [text.partition(_UNRESOLVED)[2].partition('"')[0] for text in said if _UNRESOLVED in text]
    packages = sorted({_package(module) for module in missing if re.match(_IN_PACKAGE, module)})
    if packages:
        said.append(f"Install packages beside the file: npm install {' '.join(packages)}")
    if any(os.path.splitext(module)[1] not in ("", *CODE) for module in missing if module.startswith(".")):
        said.append(_DATA)
    if any("Top-level await" in text for text in said):
        said.append("Await within the task's function.")
    return " ".join(said) or f"{name} can't be read: esbuild ended with status {error.result.code}."
