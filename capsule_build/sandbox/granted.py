"""What a task is granted, in words: for whoever decides whether to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.rules import shown

if TYPE_CHECKING:
    from .options import Policy


def describe(policy: Policy) -> str:
    """Return the limits and grants of a task, in one line."""
    said = [f"compute {policy.fuel}"]
    if policy.memory is not None:
        said.append(f"ram {policy.memory}")
    if policy.timeout_ms is not None:
        said.append(f"timeout {policy.timeout_ms} ms")
    if policy.max_retries:
        said.append(f"retries {policy.max_retries}")
    # A path may hold anything, also what a terminal would take for a command.
    folders = [f"{shown(folder.path)} ({'rw' if folder.writable else 'ro'})" for folder in policy.folders]
    for what, names in (("files", folders), ("hosts", policy.hosts), ("variables", policy.variables)):
        said.append(f"{what} {', '.join(names) or 'none'}")
    return "; ".join(said)
