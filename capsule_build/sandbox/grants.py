"""From the words of a policy to what this machine gives: open folders, values of variables."""

from __future__ import annotations

import os

from .options import ConfigError, split_mode
from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .options import Folder


class Mount(Record):
    """A folder that whoever runs a file adds for its entry task.

    Attributes:
        host: A folder of this machine.
        guest: Where the task sees it.
        writable: Whether it may change what is there.
    """

    host: str
    guest: str
    writable: bool


class OpenFolder(Record):
    """A folder that was checked, and is open: what its name means later changes nothing.

    Attributes:
        handle: Its descriptor.
        guest: Where the task sees it.
        writable: Whether it may change what is there.
    """

    handle: int
    guest: str
    writable: bool


def open_folders(
    folders: Iterable[Folder], mounts: Iterable[Mount], *, working: str, where: str = "allowed_files"
) -> tuple[OpenFolder, ...]:
    """Open what a task may use. The caller closes the handles (see `close_folders`).

    Args:
        folders: Folders below the working folder.
        mounts: Folders from anywhere, as the user gave them.
        working: The working folder.
        where: What an error about one of `folders` begins with: the option, and whose it is.

    Raises:
        ConfigError: One isn't there, isn't a folder, or lies elsewhere by way of a symlink.
    """
    opened: list[OpenFolder] = []
    try:
        top = os.path.realpath(working)
        for folder in folders:
            handle = _open(top, folder.path, where)
            parts = [part for part in folder.path.split("/") if part not in ("", ".")]
            opened.append(OpenFolder(handle, "/" + "/".join(parts), folder.writable))
            _require_inside(handle, top, folder.path, where)
        for mount in mounts:
            handle = _open(top, mount.host, "The folders to mount")
            opened.append(OpenFolder(handle, mount.guest, mount.writable))
    except BaseException:
        close_folders(opened)
        raise
    return tuple(opened)


def _require_inside(handle: int, top: str, name: str, where: str) -> None:
    """Refuse what was opened if it lies elsewhere; its name could mean something else by now."""
    true = os.readlink(f"/proc/self/fd/{handle}")
    if true != top and not true.startswith(top.rstrip("/") + "/"):
        raise ConfigError(f"{where}: '{name}' leads out of the working folder, to {true}.")


def _open(top: str, name: str, where: str) -> int:
    path = os.path.join(top, name)
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except NotADirectoryError:
        raise ConfigError(f"{where}: '{name}' is not a folder.", hint="Name the folder it is in.") from None
    except FileNotFoundError:
        raise ConfigError(
            f"{where}: there is no folder '{name}'.", hint=f"Make it: mkdir -p {os.path.normpath(path)}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{where}: '{name}' can't be opened: {error.strerror}.") from None


def close_folders(folders: Iterable[OpenFolder]) -> None:
    """Close what `open_folders` opened."""
    for folder in folders:
        os.close(folder.handle)


def read_mount(text: str) -> Mount:
    """Read `HOST[::GUEST][:ro|:rw]`.

    Raises:
        ConfigError: It has another form.
    """
    host, apart, guest = text.partition("::")
    try:
        if apart:
            guest, writable = split_mode(guest)
        else:
            host, writable = split_mode(host)
    except ValueError as error:
        raise ConfigError(f"The mount {text}: {error}", hint=_with_two_colons(text)) from None
    guest = guest or "/" + os.path.basename(os.path.abspath(host))
    if (
        not host
        or not _is_name(host)
        or not _is_text(guest)
        or ".." in guest.split("/")
        or guest.strip("/") == ""
    ):
        raise ConfigError(
            f"The mount {text}: it must be HOST[::GUEST][:ro|:rw], with folders that have names."
        )
    return Mount(host, "/" + guest.strip("/"), writable)


def _with_two_colons(text: str) -> str | None:
    """Return what to write in place of `HOST:/GUEST`, as other programs have it; `None`: it is none."""
    host, _, guest = text.partition(":")
    if not host or not guest.startswith("/"):
        return None
    return f"A path for the task stands behind two colons: {host}::{guest}"


def _is_name(text: str) -> bool:
    """Return whether the system can have such a path: one that came as JSON may be none."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _is_text(text: str) -> bool:
    """Return whether the guest can have such a path: its names are UTF-8."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
