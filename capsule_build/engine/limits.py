"""What Podman has to be told on machines whose cgroups or rights it doesn't expect.

On a machine with hybrid cgroups (v1 controllers with a v2 tree beside them) crun refuses to run. Without
the right to raise limits, Podman's own defaults can't be set. Both are mended by a configuration file for
the one service that is started here; nothing of the user's is changed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..runtime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CAP_SYS_RESOURCE: Final = 24
"""The right to raise a hard limit (linux/capability.h)."""


def cgroups_are_hybrid(root: Path = Path("/sys/fs/cgroup")) -> bool:
    """Return whether cgroup v1 controllers are mounted with a v2 tree beside them."""
    return (root / "unified" / "cgroup.procs").exists() and not (root / "cgroup.controllers").exists()


def may_raise_limits(status: Path = Path("/proc/self/status")) -> bool:
    """Return whether this process may set limits above its own hard ones."""
    for line in status.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def podman_needs(*, hybrid: bool, limited: bool) -> dict[str, Any]:
    """Return what Podman's configuration has to hold here; empty where it needs nothing.

    Args:
        hybrid: Whether cgroups are hybrid.
        limited: Whether limits can't be raised.
    """
    needs: dict[str, Any] = {}
    if hybrid or limited:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        # Podman lowers its own limit to that, and can't raise it again.
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
        if files == resource.RLIM_INFINITY:
            files = int(Path("/proc/sys/fs/nr_open").read_text())
        needs["containers"] = {
            "default_ulimits": [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
        }
    if hybrid:
        needs["engine"] = {"runtime": "runc"}
    return needs


def needed_here() -> dict[str, Any]:
    """Return what Podman's configuration has to hold on this machine (see `podman_needs`)."""
    return podman_needs(hybrid=cgroups_are_hybrid(), limited=os.geteuid() == 0 and not may_raise_limits())


def configured_files(home: Path, *, root: bool) -> tuple[Path, ...]:
    """Return the files that Podman reads when CONTAINERS_CONF isn't set, the weakest first.

    Source: containers.conf(5).
    """
    folders = [Path("/etc/containers")]
    if not root:
        folders.append(Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers")
    files = [Path("/usr/share/containers/containers.conf")]
    for folder in folders:
        files += [folder / "containers.conf", *sorted((folder / "containers.conf.d").glob("*.conf"))]
    return tuple(path for path in files if path.is_file())


def merged_configuration(files: tuple[Path, ...], needs: Mapping[str, Any]) -> str:
    """Return a containers.conf that says what `files` say, and `needs` on top.

    CONTAINERS_CONF replaces all other files, so what they say has to be in it.

    Raises:
        UsageError: One of the files isn't TOML.
    """
    whole: dict[str, Any] = {}
    for path in files:
        try:
            _merge(whole, tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"Podman's configuration {path} can't be read: {error}") from error
    _merge(whole, needs)
    return to_toml(whole)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """Return a table as TOML; values are strings, numbers, booleans, arrays of them and tables."""
    plain = [
        f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if not isinstance(value, dict)
    ]
    text = (f"[{prefix}]\n" if prefix else "") + "".join(plain)
    for key, value in table.items():
        if isinstance(value, dict):
            text += to_toml(value, f"{prefix}.{_key(key)}" if prefix else _key(key))
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # A JSON string, number or boolean is the same in TOML, except that TOML has no surrogate pairs.
    return json.dumps(value, ensure_ascii=False)
