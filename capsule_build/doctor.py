"""What works on this machine, and what to do about what doesn't."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .engine.limits import cgroups_are_hybrid, needed_here, to_toml
from .engine.select import ENGINES
from .fetch import debian, pypi
from .fetch.transfer import Transfer
from .runtime.errors import CapsuleError, EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .engine.protocol import Engine, EngineInfo

FILES_NEEDED: Final = 4096
"""Open files. With 1024 the compiler of a build fails (seen)."""

SPACE_NEEDED: Final = 4_000_000_000
"""Bytes that a build of the largest capsule may take, in the engine's storage and in the cache."""

_SUITE: Final = "trixie"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at; stable, for machines.
        status: `ok`; `warn`: builds may work without it; `fail`: they don't.
        found: What was found, in a sentence.
        advice: What to do about it, where there is something to do.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and whether there is an engine to build with."""

    checks: tuple[Check, ...]
    usable: bool


def examine(*, cache: Path, dist: Path, engines: Mapping[str, Callable[[], Engine]] = ENGINES) -> Diagnosis:
    """Look at this machine. Some checks ask the network and take seconds.

    Args:
        cache: The folder of the inputs.
        dist: The folder of the outputs.
        engines: How each engine is opened, by its name.
    """
    return judge(list(_checks(cache, dist, engines)), engines)


def judge(checks: list[Check], engines: Mapping[str, object]) -> Diagnosis:
    """Put checks together: an engine that can't be used is no failure where another can be."""
    usable = any(check.name in engines and check.status != "fail" for check in checks)
    judged = [
        replace(check, status="warn")
        if usable and check.name in engines and check.status == "fail"
        else check
        for check in checks
    ]
    return Diagnosis(tuple(judged), usable)


def _checks(cache: Path, dist: Path, engines: Mapping[str, Callable[[], Engine]]) -> Iterator[Check]:
    storage: dict[str, Path] = {}
    for name, open_engine in engines.items():
        check, info = check_engine(name, open_engine, hybrid=cgroups_are_hybrid())
        yield check
        if info is not None and Path(info.storage_root).is_dir():
            storage[f"{name} storage"] = Path(info.storage_root)
    yield check_cgroups(needed_here(), os.environ.get("CONTAINERS_CONF"))
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield check_folder("cache", cache)
    yield check_folder("dist", dist)
    for name, folder in storage.items():
        yield check_space(name, folder)
    yield _check_python_index()
    yield _check_debian_mirror()


def check_engine(
    name: str, open_engine: Callable[[], Engine], *, hybrid: bool
) -> tuple[Check, EngineInfo | None]:
    """Open an engine and say what it is, or why it can't be used."""
    try:
        engine = open_engine()
    except EngineError as error:
        return Check(name, "fail", error.message, error.hint), None
    try:
        info = engine.info()
    except CapsuleError as error:
        return Check(name, "fail", error.message, error.hint), None
    finally:
        engine.close()
    what = (
        f"{name.capitalize()} {info.server_version} (API {info.api_version}, {info.storage_driver}, "
        f"{info.oci_runtime}{', rootless' if info.rootless else ''}) at {info.address}, "
        f"by its package {info.client_version}."
    )
    if hybrid and info.oci_runtime == "crun":
        return (
            Check(
                name,
                "fail",
                f"{what} Its runtime crun doesn't run containers on this machine's hybrid cgroups.",
                'Set runtime = "runc" under [engine] in its containers.conf, or end the service and let '
                "capsule-build start one.",
            ),
            info,
        )
    return Check(name, "ok", what), info


def check_cgroups(needs: Mapping[str, Any], configuration: str | None) -> Check:
    """Say whether Podman needs telling about this machine, and whether it is told.

    Args:
        needs: What its configuration has to hold here.
        configuration: The user's CONTAINERS_CONF, which is left as it is.
    """
    if not needs:
        return Check("cgroups", "ok", "Podman needs no settings of its own on this machine.")
    what = "hybrid cgroups" if "engine" in needs else "limits that can't be raised"
    if configuration is None:
        if "engine" in needs and shutil.which("runc") is None:
            return Check(
                "cgroups",
                "warn",
                f"This machine has {what}, and Podman then needs runc, which is not installed.",
                "Install it ('sudo apt-get install runc' on Debian).",
            )
        return Check(
            "cgroups", "ok", f"This machine has {what}; a Podman service that is started is told so."
        )
    try:
        own = tomllib.loads(Path(configuration).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Check("cgroups", "warn", f"CONTAINERS_CONF ({configuration}) can't be read: {error}")
    lacking = {
        section: {key: value for key, value in wanted.items() if own.get(section, {}).get(key) != value}
        for section, wanted in needs.items()
    }
    if not any(lacking.values()):
        return Check("cgroups", "ok", f"This machine has {what}, and CONTAINERS_CONF says so.")
    text = to_toml({section: wanted for section, wanted in lacking.items() if wanted})
    return Check(
        "cgroups",
        "warn",
        f"This machine has {what}, and CONTAINERS_CONF ({configuration}) lacks settings for it.",
        f"Unset CONTAINERS_CONF, or put into that file:\n{text.strip()}",
    )


def check_open_files(limit: int) -> Check:
    """Say whether enough files may be open at once."""
    unlimited = limit == resource.RLIM_INFINITY
    what = f"{'Any number of' if unlimited else limit} files may be open at once"
    if unlimited or limit >= FILES_NEEDED:
        return Check("open files", "ok", f"{what}.")
    return Check(
        "open files",
        "warn",
        f"{what}; a build may need {FILES_NEEDED}.",
        f"Raise the hard limit ('ulimit -Hn {FILES_NEEDED}' as root, or nofile in limits.conf).",
    )


def check_folder(name: str, folder: Path) -> Check:
    """Say whether a folder, there or to be made, can be written to, and how much room there is."""
    there = _nearest(folder)
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(name, "warn", f"{folder} can't be written to.", f"Mend the permissions of {there}.")
    return check_space(name, folder)


def check_space(name: str, folder: Path) -> Check:
    """Say how much room there is where a folder is, or will be."""
    free = shutil.disk_usage(_nearest(folder)).free
    what = f"{free / 1e9:.1f} GB are free for {folder}"
    if free >= SPACE_NEEDED:
        return Check(name, "ok", f"{what}.")
    return Check(
        name,
        "warn",
        f"{what}; a build may need {SPACE_NEEDED / 1e9:.0f} GB.",
        "Make room. 'capsule-build cache prune' drops inputs that no pin names.",
    )


def _nearest(folder: Path) -> Path:
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return there


def _check_python_index() -> Check:
    with tempfile.TemporaryDirectory() as work:
        try:
            found = pypi.find("certifi", "", "any", Transfer(Path(work)))
        except CapsuleError as error:
            return Check("python index", "warn", error.message, error.hint or _OFFLINE)
    return Check("python index", "ok", f"pip's index answers: certifi {found.version}.")


def _check_debian_mirror() -> Check:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        try:
            place = debian.mirror()
            keys = debian.keyring()
            signed = folder / "InRelease"
            place.fetch(f"dists/{_SUITE}/InRelease", signed, transfer=Transfer(folder))
            debian.verify(signed, folder / "Release", keys, what=f"{place}: InRelease of {_SUITE}")
        except CapsuleError as error:
            return Check("debian mirror", "warn", error.message, error.hint or _OFFLINE)
    return Check("debian mirror", "ok", f"{place} answers, and {keys.name} knows its signature.")


_OFFLINE: Final = (
    "Inputs that are in the cache, or in CAPSULE_SOURCE_MIRROR, need no network: 'capsule-build pins export' "
    "makes such a folder on another machine."
)
