"""Regenerates the registry lock from the bundles in a folder, and revokes what must not be used any more."""

from .entries import Entry, PassedOver, read_entries
from .merging import Change, describe, merged
from .updating import Update, check_lock, exclusive, lock_bytes, proposed, revoke, update_lock
from .urls import parse_base_url

__all__ = [
    "Change",
    "Entry",
    "PassedOver",
    "Update",
    "check_lock",
    "describe",
    "exclusive",
    "lock_bytes",
    "merged",
    "parse_base_url",
    "proposed",
    "read_entries",
    "revoke",
    "update_lock",
]
