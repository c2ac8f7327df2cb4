"""Which libraries a program gets from its loader, and what is missing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .why_search import Loaded
from .why_view import Problem

if TYPE_CHECKING:
    from .elf import Elf
    from .why_search import Candidate, Search
    from .why_view import Trail, View

_MAX_FILES: Final = 500
_PRELOAD: Final = "LD_PRELOAD"


@dataclass
class Closure:
    """What is in the process of a program: its files in the loader's order, and what is wrong with them."""

    loaded: list[Loaded]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def closure_of(program: Loaded, search: Search, view: View) -> Closure:
    """Return the libraries of a program as its loader would find them: breadth first, each name once."""
    found = Closure([program])
    names: dict[str, Loaded] = {}
    waiting = deque([program])
    preloaded = _preloaded(program, search, view, found)
    found.loaded += preloaded
    waiting.extend(preloaded)
    for one in preloaded:
        names.setdefault(one.elf.soname or one.name, one)
    while waiting and len(found.loaded) < _MAX_FILES:
        asker = waiting.popleft()
        wanted = [name for name in asker.elf.needed if name not in names and not search.is_own(name)]
        places = {name: search.candidates(name, asker) for name in wanted}
        trails = view.follow({place.path: None for listed in places.values() for place in listed})
        for name in wanted:
            if name in names:
                continue
            library = _first(name, asker, places[name], search, view, trails)
            if library is None:
                found.problems.append(_missing(name, asker, places[name], program))
                # Said once; what else asks for it has the same reason.
                names[name] = asker
                continue
            names[name] = library
            names.setdefault(library.elf.soname or name, library)
            found.loaded.append(library)
            waiting.append(library)
            found.problems += _foreign(library, search)
    if search.libc == "glibc":
        found.problems += _versions(found.loaded, names)
    return found


def libc_of(elf: Elf, path: str) -> str | None:
    """Return the C library that a library asks for, or is: `glibc`, `musl`; `None`: it doesn't say."""
    # musl itself has no SONAME everywhere: there only its file's name tells.
    wanted = {*elf.needed, *elf.versions, elf.soname or path.rpartition("/")[2]}
    if any(name.startswith(("libc.so.6", "ld-linux", "libm.so.6", "libpthread.so.0")) for name in wanted):
        return "glibc"
    if any(name.startswith(("libc.musl-", "ld-musl-")) or name == "libc.so" for name in wanted):
        return "musl"
    return None


def _first(
    name: str,
    asker: Loaded | None,
    places: list[Candidate],
    search: Search,
    view: View,
    trails: dict[str, Trail],
) -> Loaded | None:
    for place in places:
        entry = trails[place.path].entry
        elf = view.elf_or_none(entry) if entry is not None and entry.kind == "file" else None
        if entry is not None and elf is not None and search.fits(elf):
            return Loaded(name, place.path, entry.real_path.rpartition("/")[0], elf, place.how, asker)
    return None


def _preloaded(program: Loaded, search: Search, view: View, found: Closure) -> list[Loaded]:
    preloaded: list[Loaded] = []
    text = view.surroundings.variable(_PRELOAD)
    for name in text.replace(":", " ").split():
        places = search.candidates(name, program)
        trails = view.follow(place.path for place in places)
        library = _first(name, None, places, search, view, trails)
        if library is None:
            found.notes.append(f"{_PRELOAD} names '{name}', which isn't there; loaders only warn about that.")
            continue
        preloaded.append(Loaded(name, library.path, library.folder, library.elf, _PRELOAD))
        found.problems += _foreign(preloaded[-1], search)
    return preloaded


def _missing(name: str, asker: Loaded, places: list[Candidate], program: Loaded) -> Problem:
    looked = list(dict.fromkeys(place.path.rpartition("/")[0] for place in places))
    by = f"'{asker.path}'" if asker is program else f"Its library '{asker.path}'"
    blame = _blame(asker)
    return Problem(
        "library-missing",
        asker.path,
        f"{by} needs the library '{name}', which isn't where its loader looks: {', '.join(looked)}.{blame}",
        hint=_unset(asker),
    )


def _foreign(library: Loaded, search: Search) -> list[Problem]:
    """Return the problem of a library of the other C library that a variable brought into a process."""
    libc = libc_of(library.elf, library.path)
    if libc in (None, search.libc) or library.how not in (_PRELOAD, "LD_LIBRARY_PATH"):
        return []
    return [
        Problem(
            "other-libc",
            library.path,
            f"{library.how} brings '{library.path}' into the process, which is made for {libc}; the program "
            f"is one for {search.libc}, and one process can have only one C library.",
            hint=_unset(library),
        )
    ]


def _versions(loaded: list[Loaded], names: dict[str, Loaded]) -> list[Problem]:
    problems = []
    for one in loaded:
        for library, versions in one.elf.versions.items():
            provider = names.get(library)
            if provider is None or provider.elf.soname != library or not provider.elf.defines:
                continue
            missing = [version for version in versions if version not in provider.elf.defines]
            if missing:
                problems.append(_too_old(one, loaded[0], provider, missing))
    return problems


def _too_old(one: Loaded, program: Loaded, provider: Loaded, missing: list[str]) -> Problem:
    newest = max(missing, key=_order)
    family = newest.partition("_")[0]
    has = [version for version in provider.elf.defines if version.partition("_")[0] == family]
    numbered = [version for version in has if _order(version)]
    best = f"; its newest is {max(numbered, key=_order)}" if numbered else ""
    by = f"'{one.path}'" if one is program else f"Its library '{one.path}'"
    also = "" if len(missing) == 1 else f" (and {len(missing) - 1} more)"
    return Problem(
        "version-missing",
        one.path,
        f"{by} needs {newest}{also} of '{provider.path}', which hasn't it{best}.{_blame(provider)}",
        hint=_unset(provider),
    )


def _blame(library: Loaded) -> str:
    """Return what a person should know of a file that only a variable brought into the process."""
    for one in library.chain():
        if one.how in (_PRELOAD, "LD_LIBRARY_PATH"):
            return f" '{one.path}' is there because of {one.how}."
    return ""


def _unset(library: Loaded) -> str | None:
    for one in library.chain():
        if one.how in (_PRELOAD, "LD_LIBRARY_PATH"):
            return f"Unset {one.how} in the container's configuration, or take '{one.path}' out of it."
    return None


def _order(version: str) -> tuple[int, ...]:
    number = version.rpartition("_")[2]
    parts = number.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()
