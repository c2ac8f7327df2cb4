"""The guests of this installation, by their languages and digests, and what a packed file wants of them."""

from __future__ import annotations

from . import guest
from .languages import JAVASCRIPT
from .options import ConfigError
from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable


class Guest(Record):
    """A guest.

    Attributes:
        language: Whose tasks it runs: `python` or `javascript`.
        sha256: The digest of its WebAssembly, as it is recorded beside its sources.
    """

    language: str
    sha256: str


_told: set[Guest] = set()


def guest_of(language: str) -> Guest:
    """Return the guest that this installation has for a language.

    Raises:
        CapsuleError: Its digest isn't there.
    """
    folder = guest.sources()
    if language == JAVASCRIPT:
        from .javascript.guest import sources

        folder = sources()
    return Guest(language, guest.recorded(folder))


def compare(wanted: Guest, name: str, *, must_be_same: bool, say: Callable[[str], None]) -> None:
    """Notice that a file was packed for another guest than the one that will run it.

    Args:
        wanted: The guest that it was packed for.
        name: The file, for people.
        must_be_same: Whether another one is refused.
        say: Hears of another one, once in a process.

    Raises:
        ConfigError: It is another one, and may not be.
    """
    here = guest_of(wanted.language)
    if here == wanted:
        return
    difference = f"{name} was packed for the {wanted.language} guest {wanted.sha256}; here is {here.sha256}"
    if must_be_same:
        raise ConfigError(
            f"{difference}.",
            hint="Use the version of capsule-build that packed it, pack it again, or leave out same_guest.",
        )
    if wanted not in _told:
        _told.add(wanted)
        say(f"note: {difference}. It is run all the same.")
