"""From real bundles to a release that strangers verify and install from: with a key, and with an identity."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from functools import partial
from http.server import SimpleHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.resources import recipes_dir, templates_dir
from capsule_build.runtime.process import run
from tests.integration.capsules import (
    COMMAND,
    LIBCS,
    Capsules,
    changed_environment,
    cli,
    cli_json,
    platform,
)
from tests.integration.containers import Containers, podman_limits, running
from tests.integration.pythons import NAMES, PythonCapsules, made
from tests.releases import write_keys
from tests.servers import answering
from tests.sigstore_instance import IDENTITY, ISSUER
from tests.sigstore_instance import running as sigstore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(1800)]
__all__ = ["podman_limits", "running"]

DIRECT = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
"""What is on loopback isn't asked of a proxy."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback, and yield its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    with answering(partial(Quiet, directory=str(folder))) as url:
        yield url


@pytest.fixture
def dist(capsules: Capsules, python_capsules: PythonCapsules, tmp_path: Path) -> Path:
    """Every bundle that can be built here, as other tests have built it; but one is missing."""
    folder = tmp_path / "dist"
    folder.mkdir()
    built = [capsules.built("podman", libc).path for libc in LIBCS]
    built += [python_capsules.built(name).path for name in NAMES]
    for path in built:
        for file in path.parent.glob(f"{path.name}*"):
            os.link(file, folder / file.name)
    for file in folder.glob("node24-v1-*-musl.tar.gz*"):
        file.unlink()
    return folder


def everything() -> list[str]:
    """What is released: each capsule, and the options that say what stands in for unreachable inputs."""
    words = ["node24"]
    for name in NAMES:
        how = made(name)
        scope = f"{how.recipe}:{how.libc}"
        words.append(scope)
        for option, value in zip(how.options[::2], how.options[1::2], strict=True):
            if option == "--source":
                words += ["--source", f"{scope}:{value}"]
            elif option == "--python-version":
                words += ["--runtime-version", f"{scope}:cpython={value}"]
    return words


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_what_can_be_built_here_is_released_verified_and_installed(
    dist: Path, tmp_path: Path, running: Containers
) -> None:
    key, public_key = write_keys(tmp_path)
    lock = tmp_path / "registry.lock.json"
    where = ("--dist", dist, "--lock", lock, "--allow-overrides")
    with served(dist) as url:
        release: tuple[str | Path, ...] = (*everything(), *where, "--base-url", url, "--newer-pins")
        said = cli_json("release", *release, "--container-cli", "podman", "--key", key)
        whys = {item["filename"]: item["why"] for item in said["bundles"]}
        musl = f"node24-v1-{platform('musl')}.tar.gz"
        assert {name: why for name, why in whys.items() if why} == {musl: "isn't there"}
        assert len(whys) == len(said["changes"]) == len(LIBCS) + len(NAMES)
        verified = cli_json("verify", "--dist", dist, "--public-key", public_key)
        assert (verified["ok"], len(verified["bundles"])) == (True, len(whys))
        checked = cli("lock", "--check", *where, "--base-url", url)
        assert checked.code == 0, checked.error_text

        # The same bundles once more, with an identity: nothing is built, and the lock stays as it is.
        locked = lock.read_bytes()
        with sigstore() as instance:
            token = tmp_path / "token"
            token.write_text(instance.provider.token())
            config = instance.write_trust_config(tmp_path / "config.json", rekor=2, tsa=True)
            root = instance.write_trusted_root(tmp_path / "root.json")
            identity = ("--identity-token", token, "--trust-config", config)
            keyless = cli_json("release", *release, "--prebuilt", *identity, env=DIRECT)
        assert [item["why"] for item in keyless["bundles"]] == [None] * len(whys)
        assert (keyless["changes"], lock.read_bytes()) == ([], locked)
        who = ("--identity", IDENTITY, "--issuer", ISSUER, "--trust-root", root)
        assert cli_json("verify", "--dist", dist, *who)["ok"]
        assert cli("verify", "--dist", dist, "--public-key", public_key).code == 6

        for tag, kind, command in (
            ("node24-v1", "musl", ("node", "--version")),
            ("python312-node24-v1", "bullseye", ("python", "-c", "import ssl; print('it runs')")),
        ):
            environment = running.start(kind)
            store = ("--lock", lock, "--data-dir", tmp_path / f"data-{tag}")
            installed = capsule("install", tag, environment, *store, "--json")
            variants = json.loads(locked)["capsules"][tag]["variants"]
            entry = variants[platform("musl" if kind == "musl" else "glibc")]
            assert json.loads(installed)["sha256"] == entry["sha256"]
            assert capsule("use", tag, environment, "--lock", lock, "--", *command)


def capsule(*words: str | Path) -> bytes:
    """Run `capsule`, which must succeed, and return what it printed."""
    argv = [str(COMMAND.with_name("capsule")), *map(str, words)]
    done = run(argv, env=changed_environment(DIRECT), timeout=300, check=False)
    assert done.code == 0, done.error_text
    return done.stdout


def reproduced(bundle: Path, *options: str | Path) -> tuple[int, Any]:
    """Run `reproduce --json`, and return its exit code and what it said."""
    done = cli("reproduce", bundle, *options, "--container-cli", "docker", "--json")
    assert done.stdout, done.error_text
    return done.code, json.loads(done.stdout)


def test_a_bundle_is_reproduced_by_the_other_engine_or_what_differs_is_named(
    capsules: Capsules, tmp_path: Path
) -> None:
    bundle = capsules.built("podman", "glibc").path
    code, said = reproduced(bundle)
    assert (code, said["reproduced"], said["built_sha256"]) == (0, True, said["sha256"])

    # The same provenance with other templates: another bundle.
    recipes = shutil.copytree(recipes_dir(), tmp_path / "recipes")
    shutil.copytree(templates_dir(), recipes / "templates")
    script = recipes / "templates" / "scripts" / "node.sh"
    script.write_text(f'{script.read_text()}\nfor text in "$texts"/*; do echo changed >>"$text"; done\n')
    code, said = reproduced(bundle, "--recipes", recipes)
    assert (code, said["not_as_then"]) == (1, ["definition: templates"])
    texts = {
        item["name"]: item["differs"]
        for item in said["members"]
        if item["name"].startswith("share/licenses/node/")
    }
    assert texts
    assert set(map(tuple, texts.values())) == {("size", "content")}
