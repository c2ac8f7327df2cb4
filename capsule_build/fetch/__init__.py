"""Takes inputs by pin into the content-addressed cache."""

from .cache import Cache, default_root
from .lookup import current, look_up
from .obtain import Fetched, VanishedError, fetch_all
from .progress import Progress, Silence
from .transfer import NotThereError, StorageError, UnreachableError, WrongFileError

__all__ = [
    "Cache",
    "Fetched",
    "NotThereError",
    "Progress",
    "Silence",
    "StorageError",
    "UnreachableError",
    "VanishedError",
    "WrongFileError",
    "current",
    "default_root",
    "fetch_all",
    "look_up",
]
