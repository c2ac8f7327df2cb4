"""Debian packages, from the mirror that the host's apt knows, or from `CAPSULE_DEBIAN_MIRROR`.

A pinned package is known by its digest. A current one is known by the chain that apt trusts: the signature
of `InRelease` by a key of the host's Debian keyring, the digest of `Packages.xz` in it, the package's digest
in that.
"""

from __future__ import annotations

import lzma
import os
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..runtime import process
from ..runtime.errors import InputError, UsageError
from ..runtime.files import sha256_file
from .debian_version import sort_key
from .found import Found
from .location import Location
from .transfer import NotThereError, Transfer, WrongFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..pins import Pin

MIRROR_VARIABLE: Final = "CAPSULE_DEBIAN_MIRROR"
KEYRING_VARIABLE: Final = "CAPSULE_DEBIAN_KEYRING"

_KEYRINGS: Final = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
)
_ENTRY: Final = re.compile(r" ([0-9a-f]{64}) +(\d+) (\S+)")
_WANTED: Final = (b"Package", b"Version", b"Filename", b"Size", b"SHA256")
_indexes: dict[tuple[Location, str, str], Mapping[str, Found]] = {}
_indexes_lock: Final = threading.Lock()


@dataclass(frozen=True)
class Release:
    """The signed content of an `InRelease` file: its fields, and for each file its digest and size."""

    fields: Mapping[str, str]
    files: Mapping[str, tuple[str, int]]


def mirror() -> Location:
    """Return the mirror: `CAPSULE_DEBIAN_MIRROR`, else the one of the main archive in apt's configuration.

    Raises:
        InputError: apt knows none.
        UsageError: The variable's value is no mirror.
    """
    if own := os.environ.get(MIRROR_VARIABLE):
        return Location.parse(own, MIRROR_VARIABLE)
    hint = f"Name a Debian mirror (a URL, or a folder) with {MIRROR_VARIABLE}."
    try:
        result = process.run(
            ["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
        )
    except process.ProgramMissingError as error:
        raise InputError("No Debian mirror is known: this machine has no apt-get.", hint=hint) from error
    except process.CommandError as error:
        raise InputError(f"No Debian mirror is known: {error.message}", hint=hint) from error
    known = [line.partition("|") for line in result.text.splitlines()]
    usable = [
        (label, uri) for label, _, uri in known if uri.startswith(("http:", "https:", "file:", "copy:"))
    ]
    # Before the first `apt-get update` no label is known.
    for label, uri in [pair for pair in usable if pair[0] == "Debian"] or usable:
        if label in {"Debian", ""} and "security" not in uri:
            return Location.parse(uri, "apt's list of sources")
    raise InputError(
        "No Debian mirror is known: apt's list of sources has none of the main archive.", hint=hint
    )


def fetch(pin: Pin, transfer: Transfer) -> Path:
    """Download a pinned package.

    Raises:
        NotThereError: The mirror doesn't have it (any more).
        UnreachableError: The mirror can't be reached.
    """
    file = transfer.folder / pin.file
    mirror().fetch(pin.locator, file, transfer=transfer, size=pin.size)
    return file


def find(package: str, suite: str, architecture: str, transfer: Transfer) -> Found:
    """Return a suite's current version of a package, by its signed index.

    Args:
        package: The package's name.
        suite: The suite or code name, such as trixie.
        architecture: dpkg's architecture, such as amd64.
        transfer: Where the index may be kept while it is read.

    Raises:
        InputError: The suite has no such package, or its index can't be trusted.
        UnreachableError: The mirror can't be reached.
    """
    place = mirror()
    key = (place, suite, architecture)
    with _indexes_lock:
        if key not in _indexes:
            _indexes[key] = _read_index(place, suite, architecture, transfer)
        index = _indexes[key]
    try:
        return index[package]
    except KeyError:
        raise InputError(f"{place}: {suite} has no package '{package}' for {architecture}.") from None


def _read_index(place: Location, suite: str, architecture: str, transfer: Transfer) -> Mapping[str, Found]:
    folder = transfer.folder
    release = _release(place, suite, transfer)
    name = f"main/binary-{architecture}/Packages.xz"
    if name not in release.files:
        raise InputError(f"{place}: {suite} has no index for {architecture} ({name}).")
    digest, size = release.files[name]
    packages = folder / f"Packages-{architecture}.xz"
    base = f"dists/{suite}/main/binary-{architecture}"
    silent = Transfer(folder, cancelled=transfer.cancelled)
    try:
        # By its digest, the file is the one that InRelease means, also while the mirror is being updated.
        place.fetch(f"{base}/by-hash/SHA256/{digest}", packages, transfer=silent, size=size)
    except NotThereError:
        place.fetch(f"{base}/Packages.xz", packages, transfer=silent, size=size)
    if (here := sha256_file(packages)) != digest:
        raise WrongFileError(
            f"{place}: {name} of {suite} has the SHA-256 {here}, but the signed InRelease says {digest}.",
            hint="The mirror is being updated, or is not to be trusted: try again later, or another mirror "
            f"({MIRROR_VARIABLE}).",
        )
    return read_packages(packages)


def _release(place: Location, suite: str, transfer: Transfer) -> Release:
    signed, content = transfer.folder / "InRelease", transfer.folder / "Release"
    place.fetch(
        f"dists/{suite}/InRelease", signed, transfer=Transfer(transfer.folder, cancelled=transfer.cancelled)
    )
    content.unlink(missing_ok=True)
    verify(signed, content, keyring(), what=f"{place}: InRelease of {suite}")
    release = read_release(content.read_text("utf-8"))
    check_release(release, suite, str(place), datetime.now(UTC))
    return release


def keyring() -> Path:
    """Return the keyring of Debian's archive keys: `CAPSULE_DEBIAN_KEYRING`, else the host's.

    Raises:
        UsageError: The variable names a file that isn't there.
        InputError: The host has none.
    """
    if own := os.environ.get(KEYRING_VARIABLE):
        if not Path(own).is_file():
            raise UsageError(f"{KEYRING_VARIABLE} names a file that isn't there: {own}.")
        return Path(own).absolute()
    for path in map(Path, _KEYRINGS):
        if path.is_file():
            return path
    raise InputError(
        "The keyring of Debian's archive isn't on this machine, so no index can be trusted.",
        hint=f"Install debian-archive-keyring, or name a keyring with {KEYRING_VARIABLE}.",
    )


def verify(signed: Path, content: Path, keys: Path, *, what: str) -> None:
    """Check a clear-signed file, and write what was signed to `content`.

    One good signature is enough, as for apt: a suite is signed by the keys of several releases, of which a
    host need not know all. A bad one is too many, and so is a key that expired or was revoked.

    Raises:
        InputError: The signature doesn't hold, or can't be checked.
    """
    try:
        result = process.run(
            ["gpgv", "--keyring", str(keys), "--status-fd", "1", "--output", str(content), str(signed)],
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except process.ProgramMissingError as error:
        raise InputError(
            "The signature of Debian's index can't be checked: gpgv is not installed.",
            hint="Install it: apt-get install gpgv.",
        ) from error
    words = [line.split()[1] for line in result.text.splitlines() if line.startswith("[GNUPG:] ")]
    bad = {"BADSIG", "EXPKEYSIG", "REVKEYSIG", "EXPSIG"} & set(words)
    if "GOODSIG" in words and not bad and words.count("PLAINTEXT") == 1 and content.is_file():
        return
    said = result.error_text.strip()[-600:]
    raise InputError(
        f"{what} is not signed by a key of {keys}:\n{said}",
        hint=f"The mirror is not to be trusted, or the keyring is older than the suite: update "
        f"debian-archive-keyring, or name a keyring with {KEYRING_VARIABLE}.",
    )


def read_release(text: str) -> Release:
    """Read the content of a Release file: its plain fields, and the list of its files by SHA-256."""
    fields: dict[str, str] = {}
    files: dict[str, tuple[str, int]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith(" "):
            if section == "SHA256" and (match := _ENTRY.fullmatch(line)):
                files[match[3]] = (match[1], int(match[2]))
        elif ":" in line:
            section, _, value = line.partition(":")
            fields[section] = value.strip()
    return Release(fields, files)


def check_release(release: Release, suite: str, place: str, now: datetime) -> None:
    """Refuse the index of another suite, and one that is too old.

    Raises:
        InputError: It is.
    """
    names = {release.fields.get("Suite"), release.fields.get("Codename")}
    if suite not in names:
        raise InputError(
            f"{place}: what should be the index of {suite} is that of "
            f"{' or '.join(sorted(name for name in names if name)) or 'no suite'}."
        )
    if until := release.fields.get("Valid-Until"):
        try:
            end = parsedate_to_datetime(until)
        except ValueError as error:
            raise InputError(
                f"{place}: the index of {suite} is valid until '{until}', which is no date."
            ) from error
        if end < now:
            raise InputError(
                f"{place}: the index of {suite} was valid until {until}; somebody is holding back "
                "newer ones, or the mirror is stale, or this machine's clock is wrong.",
                hint=f"Check the clock, or name another mirror with {MIRROR_VARIABLE}.",
            )


def read_packages(path: Path) -> Mapping[str, Found]:
    """Read a `Packages.xz`: for each package its highest version.

    Raises:
        InputError: It isn't such a file.
    """
    highest: dict[str, Found] = {}
    try:
        for stanza in _stanzas(path):
            name, version = stanza["Package"], stanza["Version"]
            known = highest.get(name)
            if known is None or sort_key(known.version) < sort_key(version):
                highest[name] = Found(
                    version=version,
                    file=stanza["Filename"].rpartition("/")[2],
                    sha256=stanza["SHA256"],
                    size=int(stanza["Size"]),
                    locator=stanza["Filename"],
                )
    except (KeyError, ValueError, EOFError, lzma.LZMAError) as error:
        raise InputError(f"{path.name} is not a Debian index: {error}.") from error
    return highest


def _stanzas(path: Path) -> Iterator[dict[str, str]]:
    stanza: dict[str, str] = {}
    with lzma.open(path) as stream:
        for line in stream:
            if line == b"\n":
                if stanza:
                    yield stanza
                stanza = {}
            else:
                name, _, value = line.partition(b": ")
                if name in _WANTED:
                    stanza[name.decode("ascii")] = value.strip().decode("utf-8")
    if stanza:
        yield stanza
