"""A recipe of the tests' own, "tiny": what it says, its inputs, and the tree that its build makes."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING

from capsule_build.fetch import Cache
from capsule_build.pins import Pin, PinSet, dump_pins
from tests import bundles
from tests.archives import deb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EPOCH = 1_000_000_000
TOOL_VERSION = "1.2.3"
INNER_VERSION = "7.8.9"
PERMISSION = b"Permission is hereby granted.\n"
SHELL = b"\x7fELF a static shell"

RECIPE = r"""
schema_version = 1
id = "tiny"
tag = "tiny-v1"
title = "A tiny tool"
libcs = ["glibc", "musl"]
template = "tiny.Dockerfile.j2"

[[runtime]]
component = "tool"
option = "--tool-version"
series = "1"
in_version = true
marker = "bin/tool"
version_file = "VERSION"
version_pattern = '(\d+)\.(\d+)\.(\d+)'

[components]
shipped = ["helper"]
linked = ["musl-dev"]
licences = ["texts"]
build = ["busybox-static", "helper"]

[tools]
tool = "bin/tool"
seal-tree = "bin/seal-tree"

[[packages]]
kind = "npm"
folder = "runtime/tool/node_modules"
inside = "tool"
names = ["inner"]

[[contained]]
name = "part"
inside = "tool"
license = "MIT"
version_file = "runtime/tool/VERSION"
version_pattern = 'is (.*)'

[[smoke]]
tool = "tool"
arguments = ["--version", "with blanks and 'quotes'"]
expect = "tool {tool} with inner {inner}"

[[smoke]]
tool = "seal-tree"
arguments = ["--version"]
expect = "seal-tree {native}"
"""

TEMPLATE = """# {{ manifest.runtime_id }} for {{ platform }}
FROM scratch
LABEL {{ label }}=build
COPY {{ inputs["tool"] }} {% for key in base_inputs %}{{ inputs[key] }} {% endfor %}/inputs/
RUN ["/bin/sh", "/scripts/step.sh", "{{ root }}", "{{ arch }}", "{{ inputs["tool"] | basename }}"]
"""

_FILES = {"helper": ["abi", "libexec"], "tool": ["bin/tool", "runtime/tool"]}
_DEBIAN = {"helper": "1:2.0-1", "musl-dev": "1.2.5-3", "texts": "5-1", "busybox-static": "1:1.37.0-6"}


def tiny_tree() -> dict[str, bytes]:
    """The files of a tree that keeps the contract once its manifest and SBOM are in."""
    glibc, musl = bundles.LOADERS["x86_64"]
    return {
        glibc: b"glibc's loader",
        musl: b"musl's loader",
        "bin/capsule-exec": b"#!/bin/sh\n",
        "bin/seal-tree": b"#!/bin/sh\n",
        "bin/tool": b"#!/bin/sh\n",
        "libexec/bash": b"a shell",
        "runtime/tool/data": b"data",
        "runtime/tool/node_modules/inner/package.json": package_json("inner", INNER_VERSION, "Artistic-2.0"),
        "runtime/tool/node_modules/inner/LICENSE": b"The Artistic License.\n",
        **{f"share/licenses/{name}/LICENSE": PERMISSION for name in ("tool", "helper", "musl-dev", "native")},
    }


def package_json(name: str, version: str, licence: object, **more: object) -> bytes:
    """What an npm package says of itself."""
    return json.dumps({"name": name, "version": version, "license": licence, **more}).encode()


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder; what lies in bin, abi or libexec can be run."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if can_be_run(name) else 0o644)
    return folder


def can_be_run(name: str) -> bool:
    return name.partition("/")[0] in {"bin", "abi", "libexec"}


@functools.cache
def inputs() -> dict[str, tuple[Pin, bytes]]:
    """The tiny recipe's inputs: a pin and the bytes for each component."""
    made: dict[str, tuple[Pin, bytes]] = {}
    for name, version in _DEBIAN.items():
        files = {"usr/bin/busybox": SHELL} if name == "busybox-static" else {f"usr/share/{name}": b"x"}
        data = deb(files, control=f"Package: {name}\nVersion: {version}\n")
        file = f"{name}_{version.rpartition(':')[2]}_amd64.deb"
        made[name] = (_pin(name, "x86_64", "debian", version, file, data, f"pool/{file}"), data)
    for libc in ("glibc", "musl"):
        data = f"a wheel for {libc}".encode()
        file = f"tool-{TOOL_VERSION}-py3-none-{libc}.whl"
        made[f"tool-{libc}"] = (_pin("tool", f"x86_64-{libc}", "pypi", TOOL_VERSION, file, data, ""), data)
    return made


def _pin(component: str, target: str, kind: str, version: str, file: str, data: bytes, locator: str) -> Pin:
    return Pin(
        component=component,
        target=target,
        kind=kind,
        package=component,
        version=version,
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        license="MIT",
        locator=locator,
    )


def recipe_folder(folder: Path, *, recipe: str = RECIPE, template: str = TEMPLATE) -> Path:
    """Write a whole recipe folder, with templates of its own, and return it."""
    (folder / "templates" / "scripts").mkdir(parents=True)
    (folder / "tiny.toml").write_text(recipe)
    (folder / "templates" / "tiny.Dockerfile.j2").write_text(template)
    (folder / "templates" / "scripts" / "step.sh").write_text("set -eu\n")
    entries = []
    for name in (*_DEBIAN, "tool"):
        debian = name != "tool"
        targets = {"x86_64": "amd64"} if debian else {"x86_64-glibc": "glibc", "x86_64-musl": "musl"}
        entries.append(
            f'[{name}]\ntitle = "{name}"\nkind = "{"debian" if debian else "pypi"}"\npackage = "{name}"\n'
            f'track = "{"trixie" if debian else "==1.*"}"\nlicense = "MIT"\nfiles = {_FILES.get(name, [])}\n'
            f"[{name}.targets]\n"
            + "".join(f'{target} = "{selector}"\n' for target, selector in targets.items())
        )
    (folder / "components.toml").write_text("\n".join(entries))
    pins = PinSet(EPOCH, tuple(pin for pin, _ in inputs().values()))
    (folder / "pins.lock.json").write_bytes(dump_pins(pins))
    return folder


def filled_cache(root: Path) -> Cache:
    """A cache that holds every input of the tiny recipe."""
    cache = Cache(root)
    with cache.stage() as folder:
        for pin, data in inputs().values():
            (folder / "file").write_bytes(data)
            cache.adopt(folder / "file", pin.sha256, pin.size)
    return cache
