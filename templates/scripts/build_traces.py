"""Takes the machine on which a CPython was built out of what it remembers of its own build.

What is cleaned are the values that `sysconfig`, pkg-config files and python-config hand to whoever compiles
an extension: paths below the old prefix become paths below the new one, flags that name other folders of that
machine are dropped, and compilers get their plain names.
"""

from __future__ import annotations

import re
import shlex

# Folders that mean the same on every machine.
_COMMON = (
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
)
_COMMON += ("/usr/lib64", "/usr/sbin", "/usr/share")
_PARTS = re.compile(r"[=,:;'\"()\s]")
_SHORT = re.compile(r"-(?:[IL]|isystem|idirafter|iquote)(?=/)")
_TOOLS = (
    (re.compile(r"(?:.*-)?(?:gcc|clang|cc)(?:-[0-9.]+)?"), "cc"),
    (re.compile(r"(?:.*-)?(?:g\+\+|clang\+\+|c\+\+)(?:-[0-9.]+)?"), "c++"),
    (re.compile(r"(?:.*-)?ar(?:-[0-9.]+)?"), "ar"),
    (re.compile(r"(?:.*-)?ranlib(?:-[0-9.]+)?"), "ranlib"),
)
_TOOL_VARIABLES = frozenset(
    {"CC", "CXX", "MAINCC", "CPP", "LINKCC", "LDSHARED", "LDCXXSHARED", "BLDSHARED", "AR", "RANLIB"}
)
# What one compiler knows and others refuse, what belongs to the profiling of CPython's own build, and rpaths.
_OWN_FLAGS = re.compile(
    r"-fdebug-default-version=.*|-fprofile-.*|-flto.*|-fuse-ld=.*|--?rtlib=.*|-fuse-linker-plugin|-ffat-lto-objects"
    r"|-Wno-unused-command-line-argument|-Wno-backend-plugin|-ffile-prefix-map=.*|-fdebug-prefix-map=.*|-Wl,-?-rpath.*"
)


class Cleaner:
    """Cleans values.

    Args:
        old: The prefix that CPython was built for.
        new: The prefix where it will lie.
    """

    def __init__(self, old: str, new: str) -> None:
        # A system's own CPython has the prefix /usr, which means much else besides.
        self._old = (
            None
            if old in {"", "/", "/usr"}
            else re.compile(rf"(?:(?<![\w.])|(?<=-I)|(?<=-L)){re.escape(old)}(?![\w.-])")
        )
        self._old_text = old
        self._new = new

    def value(self, text: str) -> str:
        """Return one value without traces: words that name a foreign folder are dropped."""
        if self._old is not None:
            text = self._old.sub(self._new, text)
        kept = [word for word in _words(text) if not self._foreign(word) and not _OWN_FLAGS.fullmatch(word)]
        return text if len(kept) == len(_words(text)) else " ".join(kept)

    def variable(self, name: str, text: str) -> str:
        """Return the value of a build variable, its compiler by its plain name."""
        if name in _TOOL_VARIABLES and text:
            words = _words(text)
            words[0] = _plain_tool(words[0])
            # Some take these two for the name of one program.
            text = words[0] if name in {"CC", "CXX"} else " ".join(words)
        return self.value(text)

    def _foreign(self, word: str) -> bool:
        # A path below the root of a staged installation.
        if self._old is not None and re.search(rf"\.{re.escape(self._old_text)}(?![\w.-])", word):
            return True
        for part in _PARTS.split(_SHORT.sub("", word)):
            if re.match(r"/\w", part) and not _is_below(part, (*_COMMON, self._new)):
                return True
        return False


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text, posix=False)
    except ValueError:
        return text.split()


def _plain_tool(word: str) -> str:
    name = word.rpartition("/")[2]
    for pattern, plain in _TOOLS:
        if pattern.fullmatch(name):
            return plain
    return name


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
