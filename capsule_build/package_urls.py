"""Package URLs of pins.

Format: package URLs (purl), ECMA-427; types `deb`, `github`, `npm` and `pypi`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packageurl import PackageURL

if TYPE_CHECKING:
    from .pins import Pin


def package_url(pin: Pin, *, distro: str | None = None) -> PackageURL:
    """Name a pin's package.

    Args:
        pin: The pin.
        distro: The release that a Debian package is of, where it is known.
    """
    if pin.kind == "debian":
        architecture = pin.file.removesuffix(".deb").rsplit("_", 1)[-1]
        where = {"arch": architecture, **({"distro": distro} if distro else {})}
        return PackageURL("deb", "debian", pin.package, pin.version, where)
    if pin.kind == "github-release":
        owner, _, repository = pin.package.partition("/")
        return PackageURL("github", owner, repository, pin.locator)
    if pin.kind == "npm":
        scope, _, name = pin.package.rpartition("/")
        return PackageURL("npm", scope or None, name, pin.version)
    return PackageURL("pypi", None, pin.package, pin.version, {"file_name": pin.file})
