"""Where a component and its source come from, as package URLs.

Format: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Final

from packageurl import PackageURL

from .. import package_urls
from ..debian_archive import control_fields
from ..runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..components import Component
    from ..inputs import ReadyInput
    from ..pins import Pin

_SOURCE: Final = re.compile(r"(?P<name>\S+)(?:\s+\((?P<version>[^)]+)\))?")
_BUILT_USING: Final = re.compile(r"(?P<name>\S+)\s+\(=\s*(?P<version>[^)\s]+)\)")
_BINARY_REBUILD: Final = re.compile(r"\+b\d+$")
_WHEEL_SBOM: Final = re.compile(r"[^/]+\.dist-info/sboms/[^/]+\.cdx\.json")


def package_url(pin: Pin, component: Component) -> PackageURL:
    """Name a pin's package, a Debian one with the suite that it is of."""
    return package_urls.package_url(pin, distro=component.track)


def source_urls(item: ReadyInput, component: Component) -> tuple[str, ...]:
    """Return where the source of an input is: what the component says, or else what the file itself says.

    A Debian package names its source package, and those of what is linked into it. A wheel into which
    libraries were grafted names the packages that they were taken from.

    Raises:
        InputError: The file is damaged.
    """
    if component.source:
        return (component.source.replace("{version}", item.version),)
    if item.path.name.endswith(".deb") or (item.pin is not None and item.pin.kind == "debian"):
        return tuple(_debian(item.path, component.track))
    if zipfile.is_zipfile(item.path):
        return tuple(_grafted(item.path))
    return ()


def _debian(package: Path, suite: str) -> Iterator[str]:
    fields = control_fields(package)
    named = _SOURCE.fullmatch(fields.get("Source") or fields.get("Package", ""))
    if named is None or not fields.get("Version"):
        raise InputError(f"{package.name} names no source package and version that could be read.")
    version = named["version"] or _BINARY_REBUILD.sub("", fields["Version"])
    where = {"arch": "source", "distro": suite}
    yield str(PackageURL("deb", "debian", named["name"], version, where))
    for used in _BUILT_USING.finditer(fields.get("Built-Using", "")):
        yield str(PackageURL("deb", "debian", used["name"], used["version"], where))


def _grafted(wheel: Path) -> Iterator[str]:
    """Yield the packages in a wheel's own SBOMs (PEP 770), without the wheel itself."""
    with zipfile.ZipFile(wheel) as packed:
        for name in sorted(filter(_WHEEL_SBOM.fullmatch, packed.namelist())):
            try:
                document = json.loads(packed.read(name))
                about = document["metadata"]["component"]["bom-ref"]
                urls = [part["purl"] for part in document["components"] if part["bom-ref"] != about]
                for url in sorted(urls):
                    PackageURL.from_string(url)
                    yield url
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InputError(f"{wheel.name} has an SBOM that can't be read: {name}.") from error
