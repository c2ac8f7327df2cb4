"""Where the data that the project ships lies: recipes, templates, native sources, the registry lock.

In a checkout they stand at its top, for people to read; an installed package carries the same files in
its `_data` folder.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _resource(name: str) -> Path:
    installed = _PACKAGE / "_data" / name
    return installed if installed.exists() else _PACKAGE.parent / name


def recipes_dir() -> Path:
    """Return the folder with `<id>.toml`, `components.toml` and `pins.lock.json`."""
    return _resource("recipes")


def templates_dir() -> Path:
    """Return the folder with the Jinja templates of the Dockerfiles."""
    return _resource("templates")


def native_dir() -> Path:
    """Return the folder with the C sources of the capsule's own tools."""
    return _resource("native")


def registry_lock() -> Path:
    """Return the registry lock that the project ships."""
    return _resource("registry.lock.json")


def package_dir() -> Path:
    """Return the folder of the package's own sources."""
    return _PACKAGE


def licence_text() -> bytes:
    """Return the text of the project's own licence, which its native tools carry along."""
    return _resource("LICENSE").read_bytes()


def checkout() -> Path | None:
    """Return the checkout's top where the package runs from one, else `None`."""
    top = _PACKAGE.parent
    return None if (_PACKAGE / "_data").exists() or not (top / "pyproject.toml").is_file() else top


def tool_pins() -> Path | None:
    """Return the pins of what the checkout's own tools download, or `None` where there is no checkout."""
    top = checkout()
    pins = None if top is None else top / "tools" / "pins.lock.json"
    return pins if pins is not None and pins.is_file() else None


def default_dist() -> Path:
    """Return where outputs go when nothing else is said: the checkout's `dist`, else `./dist`."""
    top = checkout()
    return Path("dist") if top is None else top / "dist"
