"""Python packages, through pip: its configuration says where from and by which proxy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..runtime import process
from ..runtime.errors import InputError
from .found import Found
from .transfer import NotThereError, NoVersionError, StorageError, UnreachableError, WrongFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ..pins import Pin
    from .transfer import Transfer

POLL_SECONDS: Final = 0.1

_HINT: Final = "Check the network and pip's configuration: 'python -m pip config list' shows it."
_COMMON: Final = (
    "--no-deps",
    "--only-binary",
    ":all:",
    "--no-cache-dir",
    "--no-input",
    "--progress-bar",
    "off",
)
_UNREACHED: Final = re.compile(
    r"Retrying \(|Could not fetch URL .*: (?:connection error|timed out|There was a problem confirming)"
    r"|Max retries|ReadTimeout|ProxyError|(?:5\d\d Server|40[137] Client) Error"
)


class _NotAmongError(NotThereError):
    """The indexes answer, and have no such version; `known` are those that they have."""

    def __init__(self, wanted: str, known: list[str]) -> None:
        super().__init__(f"No index that pip knows has a wheel of {wanted}.", hint=_HINT)
        self.known = known


def fetch(pin: Pin, transfer: Transfer) -> Path:
    """Have pip download a pinned wheel; pip checks its digest as well.

    Raises:
        NotThereError: No index that pip knows has it.
        UnreachableError: pip reaches none.
        WrongFileError: The indexes have another file under that name.
    """
    requirements = transfer.folder / "requirements.txt"
    requirements.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n", "utf-8")
    return _download(pin.reference, _tags(pin.file), ["--require-hashes", "-r", str(requirements)], transfer)


def find(package: str, specifier: str, selector: str, transfer: Transfer) -> Found:
    """Ask pip's indexes for the newest version that fits, without downloading it where they say its digest.

    Args:
        package: The package's name.
        specifier: A PEP 440 specifier.
        selector: A wheel's platform tag, or "any".
        transfer: Where pip may work.

    Raises:
        NoVersionError: No such version; the message names the nearest that exist.
        NotThereError: No such package, or no wheel of it that fits.
        UnreachableError: pip reaches no index.
    """
    report = transfer.folder / "report.json"
    arguments = ["install", "--dry-run", "--ignore-installed", "--target", str(transfer.folder / "target")]
    arguments += ["--report", str(report), *_COMMON, *_platform(selector), f"{package}{specifier}"]
    try:
        _pip(f"{package}{specifier}", arguments, transfer)
    except _NotAmongError as error:
        if not error.known:
            raise
        (wanted, *_) = (item.version.removesuffix(".*") for item in SpecifierSet(specifier))
        raise NoVersionError(f"{package}{specifier}", nearest(wanted, error.known)) from error
    (item,) = json.loads(report.read_text("utf-8"))["install"]
    return _found(item)


def download(package: str, found: Found, transfer: Transfer) -> Path:
    """Have pip download a wheel that `find` found.

    Raises:
        NotThereError: It is gone.
        UnreachableError: pip reaches no index.
    """
    wanted = f"{package}=={found.version}"
    return _download(wanted, _tags(found.file), [wanted], transfer)


def nearest(wanted: str, known: Iterable[str], count: int = 5) -> list[str]:
    """Return the versions nearest to one that doesn't exist, in order.

    Pre-releases are named only where one was wanted, or where there is nothing else.
    """
    target = Version(wanted)
    versions = []
    for text in known:
        with contextlib.suppress(InvalidVersion):
            versions.append(Version(text))
    versions = [
        version for version in versions if target.is_prerelease or not version.is_prerelease
    ] or versions

    def distance(version: Version) -> tuple[int, ...]:
        width = max(len(version.release), len(target.release))
        ours, theirs = (v.release + (0,) * (width - len(v.release)) for v in (version, target))
        return tuple(abs(a - b) for a, b in zip(ours, theirs, strict=True))

    return [str(version) for version in sorted(sorted(versions, key=distance)[:count])]


def _found(item: dict[str, Any]) -> Found:
    origin = item["download_info"]
    digest = (origin.get("archive_info") or {}).get("hashes", {}).get("sha256")
    name = urllib.parse.unquote(urllib.parse.urlsplit(origin["url"]).path).rpartition("/")[2]
    return Found(version=item["metadata"]["version"], file=name, sha256=digest)


def _download(wanted: str, tags: Sequence[str], what: Sequence[str], transfer: Transfer) -> Path:
    folder = transfer.folder / "wheels"
    folder.mkdir()
    _pip(wanted, ["download", "--dest", str(folder), *_COMMON, *tags, *what], transfer)
    files = list(folder.iterdir())
    if len(files) != 1:
        raise InputError(f"pip downloaded {len(files)} files for {wanted} instead of one.")
    return files[0]


def _tags(file: str) -> list[str]:
    """Return the options that let pip take this wheel, whatever machine and Python it runs on."""
    try:
        tags = sorted(parse_wheel_filename(file)[3], key=str)
    except InvalidWheelFilename as error:
        raise InputError(f"'{file}' is not the name of a wheel.") from error
    options = ["--ignore-requires-python"]
    for platform in sorted({tag.platform for tag in tags} - {"any"}):
        options += ["--platform", platform]
    for abi in sorted({tag.abi for tag in tags}):
        options += ["--abi", abi]
    interpreter = max(tag.interpreter for tag in tags)
    if match := re.fullmatch(r"cp(\d)(\d+)", interpreter):
        return [*options, "--implementation", "cp", "--python-version", f"{match[1]}.{match[2]}"]
    return [*options, "--implementation", "py"]


def _platform(selector: str) -> list[str]:
    options = ["--ignore-requires-python", "--implementation", "py", "--abi", "none"]
    return options if selector == "any" else [*options, "--platform", selector]


def _pip(wanted: str, arguments: Sequence[str], transfer: Transfer) -> None:
    temporary = transfer.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    # What a configuration says about installing (constraints, --user) isn't about where packages come from.
    environment = {**os.environ, "TMPDIR": str(temporary), "PIP_CONSTRAINT": os.devnull, "PIP_USER": "0"}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_REQUIRE_VIRTUALENV": "0", "NO_COLOR": "1"}
    log, details = transfer.folder / "pip.log", transfer.folder / "pip.details.log"
    with log.open("wb") as output:
        started = process.start(
            [sys.executable, "-m", "pip", "--quiet", "--log", str(details), *arguments],
            env=environment,
            output=output,
        )
        try:
            while started.poll() is None:
                transfer.wait(POLL_SECONDS)
                transfer.advanced(_largest(transfer.folder))
        finally:
            if started.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    if started.returncode != 0:
        # That an index can't be reached is among the details only.
        more = details.read_text("utf-8", "backslashreplace") if details.exists() else ""
        raise _failure(wanted, log.read_text("utf-8", "backslashreplace"), more)


def _largest(folder: Path) -> int:
    """Return the size of the largest file below a folder that another process is filling."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)  # noqa: PTH116, PTH118 - ten times a second
    return largest


def _failure(wanted: str, said: str, details: str) -> InputError:
    tail = "\n".join([line[:300] for line in said.splitlines() if line.strip()][-6:])
    if "DO NOT MATCH THE HASHES" in said:
        got = re.search(r"Got\s+([0-9a-f]{64})", said)
        return WrongFileError(
            f"What pip's indexes have as {wanted} isn't the pinned file"
            + (f": it has the SHA-256 {got[1]}." if got else ".")
        )
    known = re.search(r"\(from versions: ([^)]*)\)", said)
    if known and known[1] != "none":
        return _NotAmongError(wanted, known[1].split(", "))
    if "No space left on device" in said + details:
        return StorageError(
            f"The disk is full: pip can't write {wanted} into the cache.",
            hint="Make room, or name another folder with CAPSULE_CACHE_DIR.",
        )
    if _UNREACHED.search(said + details):
        return UnreachableError(f"pip reaches no index for {wanted}:\n{tail}", hint=_HINT)
    if known:
        return _NotAmongError(wanted, [])
    return InputError(f"pip failed for {wanted}:\n{tail}", hint=_HINT)
