"""npm packages, from the registry that npm's own configuration names."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ..runtime import process
from ..runtime.errors import InputError
from . import http
from .found import Found
from .pypi import nearest
from .transfer import NotThereError, NoVersionError, Transfer, WrongFileError

if TYPE_CHECKING:
    from pathlib import Path

_ALGORITHMS: Final = ("sha512", "sha384", "sha256")


def find(package: str, specifier: str, transfer: Transfer) -> Found:
    """Return the highest version that fits.

    Args:
        package: The package's name, with its scope if it has one.
        specifier: A PEP 440 specifier.
        transfer: Where the registry's answer may be kept while it is read.

    Raises:
        NoVersionError: No such version; the message names the nearest that exist.
        NotThereError: The registry has no such package.
        UnreachableError: The registry can't be reached.
    """
    known = _versions(package, transfer)
    wanted = SpecifierSet(specifier)
    fitting = []
    for text in known:
        with contextlib.suppress(InvalidVersion):
            version = Version(text)
            if wanted.contains(version, prereleases=bool(wanted.prereleases)):
                fitting.append((version, text))
    if not fitting:
        (asked, *_) = (item.version.removesuffix(".*") for item in wanted)
        raise NoVersionError(f"{package}{specifier}", nearest(asked, known))
    newest = max(fitting)[1]
    return Found(version=newest, file=_tarball(package, newest, known)[0].rpartition("/")[2])


def download(package: str, version: str, transfer: Transfer, size: int | None = None) -> Path:
    """Download a version's tarball and check it against the integrity that the registry gives.

    Raises:
        NotThereError: The registry doesn't have it.
        UnreachableError: The registry can't be reached.
        WrongFileError: The tarball isn't what the registry's own integrity says.
    """
    url, integrity = _tarball(package, version, _versions(package, transfer))
    file = transfer.folder / "package.tgz"
    http.download(url, file, transfer=transfer, size=size)
    check_integrity(file, integrity, f"{package}@{version}")
    return file


def check_integrity(file: Path, integrity: str, what: str) -> None:
    """Check a file against a Subresource Integrity string, such as `sha512-<base64>`.

    Raises:
        WrongFileError: It doesn't match, or the string has no algorithm that can be trusted.
    """
    given = dict(item.partition("?")[0].split("-", 1) for item in integrity.split() if "-" in item)
    for algorithm in _ALGORITHMS:
        if algorithm in given:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, algorithm).digest()
            if base64.b64encode(digest).decode("ascii") != given[algorithm]:
                raise WrongFileError(f"The tarball of {what} doesn't match its {algorithm} integrity.")
            return
    raise WrongFileError(f"The registry gives no integrity for {what} that can be trusted: '{integrity}'.")


def _registry() -> str:
    try:
        said = process.run(["npm", "config", "get", "registry"]).text.strip()
    except process.ProgramMissingError as error:
        raise InputError(
            "npm is not installed, so it isn't known which registry to ask.",
            hint="Install npm, or name a folder or URL that has the file by digest with "
            "CAPSULE_SOURCE_MIRROR.",
        ) from error
    except process.CommandError as error:
        raise InputError(f"npm doesn't say which registry to ask: {error.message}") from error
    return said if said.endswith("/") else said + "/"


def _versions(package: str, transfer: Transfer) -> dict[str, Any]:
    registry = _registry()
    answer = transfer.folder / "registry.json"
    url = registry + urllib.parse.quote(package, safe="@")
    try:
        http.download(url, answer, transfer=Transfer(transfer.folder, cancelled=transfer.cancelled))
    except NotThereError as error:
        raise NotThereError(
            f"The registry {http.redact(registry)} has no package '{package}'.",
            hint="'npm config get registry' shows which registry is asked.",
        ) from error
    try:
        versions = json.loads(answer.read_bytes())["versions"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{http.redact(url)} isn't what a registry answers.") from error
    if not isinstance(versions, dict):
        raise InputError(f"{http.redact(url)} isn't what a registry answers.")
    return versions


def _tarball(package: str, version: str, versions: dict[str, Any]) -> tuple[str, str]:
    if version not in versions:
        raise NotThereError(f"The registry has no {package}@{version} (any more).")
    try:
        distribution = versions[version]["dist"]
        return str(distribution["tarball"]), str(distribution.get("integrity", ""))
    except (KeyError, TypeError) as error:
        raise InputError(f"The registry names no tarball for {package}@{version}.") from error
