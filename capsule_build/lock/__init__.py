"""Regenerates the registry lock from the bundles in a folder, and revokes what must not be used any more."""

from .entries import Entry, PassedOver, TaskEntry, bundles_in, read_entries
from .merging import Change, describe
from .updating import (
    Update,
    check_lock,
    exclusive,
    proposed,
    revoke,
    revoke_task,
    update_lock,
    writable_place,
)
from .urls import parse_base_url

__all__ = [
    "Change",
    "Entry",
    "PassedOver",
    "TaskEntry",
    "Update",
    "bundles_in",
    "check_lock",
    "describe",
    "exclusive",
    "parse_base_url",
    "proposed",
    "read_entries",
    "revoke",
    "revoke_task",
    "update_lock",
    "writable_place",
]
