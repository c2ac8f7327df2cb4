"""Harnesses for tests of set-up: a small one without dependencies, and what it takes to install one.

The small harness is an npm package. No registry is needed for it, so that a test that uses it is about set-up
and nothing else.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import uuid
import zipfile
from typing import TYPE_CHECKING, Any, Final, Literal

from capsule_build.runtime import Registry, SetUp, Store, open_environment, parse_harness, set_up
from capsule_build.runtime.process import run
from tests import images
from tests.integration.containers import FOREVER
from tests.targets import registry_of

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping
    from pathlib import Path

    from capsule_build.engine import Engine
    from capsule_build.runtime import Environment

TOY: Final = "toy"
VERSION: Final = "1.2.3"

_TOY: Final = r"""#!/usr/bin/env node
const fs = require("fs"), path = require("path"), zlib = require("zlib");
const { spawnSync } = require("child_process");
const here = path.dirname(fs.realpathSync(__filename));
const tool = path.join(here, "lazy");
switch (process.argv[2]) {
  case "--version":
    console.log(fs.readFileSync(path.join(here, "built"), "utf8"));
    break;
  case "report": {
    const shell = (text) => spawnSync("/bin/sh", ["-c", text], { encoding: "utf8" }).stdout;
    console.log(JSON.stringify({
      variables: process.env, exe: fs.readlinkSync("/proc/self/exe"),
      commands: shell("command -v node npm npx capsule-exec seal-tree"), cat: shell("command -v cat"),
    }));
    break;
  }
  case "lazy": {
    if (!fs.existsSync(tool)) {
      const packed = fs.readFileSync(path.join(here, "payload.gz"));
      fs.writeFileSync(tool, zlib.gunzipSync(packed), { mode: 0o755 });
    }
    const done = spawnSync(tool, []);
    console.log(done.error ? done.error.code : `status ${done.status}`);
  }
}
"""
# A package's own script that runs another package's command, as real ones run node-gyp-build or husky.
_BUILD: Final = 'helper "$npm_package_version"'
_HELPER: Final = r"""#!/usr/bin/env node
require("fs").writeFileSync("built", process.argv[2]);
"""
_FETCHER: Final = r"""
const fs = require("fs"), zlib = require("zlib"), { execFileSync } = require("child_process");
fs.writeFileSync("fetched-tool", zlib.gunzipSync(fs.readFileSync("payload.gz")), { mode: 0o755 });
execFileSync(require("path").resolve("fetched-tool"), { stdio: "inherit" });
"""


def toy_package(folder: Path, payload: Path, *, fetches: bool = False) -> Path:
    """Write the small harness as an npm package file.

    Args:
        folder: Where to.
        payload: A program that the harness, or its own install script, unpacks and starts.
        fetches: Whether its install script does that.
    """
    manifest: dict[str, Any] = {
        "name": TOY,
        "version": VERSION,
        "bin": {TOY: "toy.js"},
        "dependencies": {"helper": "1.0.0"},
        "bundleDependencies": ["helper"],
        "scripts": {"postinstall": "node fetch.js" if fetches else _BUILD},
    }
    helper = {"name": "helper", "version": "1.0.0", "bin": {"helper": "helper.js"}}
    return _packed(
        folder / f"{TOY}{'-fetching' if fetches else ''}.tgz",
        {
            "package.json": json.dumps(manifest).encode(),
            "toy.js": _TOY.encode(),
            "fetch.js": _FETCHER.encode(),
            "payload.gz": gzip.compress(payload.read_bytes()),
            "node_modules/helper/package.json": json.dumps(helper).encode(),
            "node_modules/helper/helper.js": _HELPER.encode(),
        },
    )


def toy_wheel(folder: Path) -> Path:
    """Write a small Python harness as a wheel (the binary distribution format)."""
    name = f"{TOY}-{VERSION}"
    info = f"{name}.dist-info"
    path = folder / f"{name}-py3-none-any.whl"
    files = {
        f"{TOY}.py": "import json, os, sys\ndef main():\n"
        "    print(json.dumps([dict(os.environ), sys.executable, __file__]))\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {TOY}\nVersion: {VERSION}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{TOY} = {TOY}:main\n",
    }
    record = "".join(f"{entry},,\n" for entry in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(entry, text)
    return path


class Supply:
    """A registry lock with one bundle, whose only address is a server of the test's, and a store.

    Args:
        bundle: The bundle.
        tag: Its tag.
        folder: The store's data folder.
        url: The address that the registry lock says.
    """

    def __init__(self, bundle: Path, tag: str, folder: Path, url: str) -> None:
        self.tag = tag
        self.registry: Registry = registry_of(bundle, tag=tag, urls=(f"{url}{bundle.name}",))
        self.store = Store(folder / "filled")
        self.empty_store = Store(folder / "empty")
        self.store.folder.mkdir(parents=True)
        os.link(bundle, self.store.folder / bundle.name)

    def set_up(self, environment: Environment, document: Mapping[str, Any], *, empty: bool = False) -> SetUp:
        """Set a harness up; with an empty store its capsule would have to be downloaded."""
        harness = parse_harness({"setup_capsule_tag": self.tag, **document})
        store = self.empty_store if empty else self.store
        return set_up(harness, environment, registry=self.registry, store=store)


def start(
    engine: Engine,
    kind: str,
    stack: contextlib.ExitStack,
    *options: str,
    network: Literal["none", "host"] = "none",
    command: tuple[str, ...] = FOREVER,
) -> Environment:
    """Start a container of one of `images.KINDS`; it is removed when the stack is closed."""
    name = f"capsule-setup-{uuid.uuid4().hex[:12]}"
    remove = [engine.name, "rm", "--force", *([] if engine.name == "docker" else ["--time=0"]), name]
    stack.callback(lambda: run(remove, check=False, timeout=120))
    begin = [engine.name, "run", "--detach", f"--network={network}", f"--name={name}"]
    run([*begin, *options, images.image(engine, kind), *command], timeout=120)
    return open_environment(f"{engine.name}:{name}")


def _packed(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write an npm package file: a gzip tar of a folder `package`."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(data), 0o755 if name.endswith(".js") else 0o644
            archive.addfile(member, io.BytesIO(data))
    return path
