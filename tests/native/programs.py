"""Small programs and libraries, compiled by the tests that seal them, each kind once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HELLO: Final = r"""
#include <stdio.h>
int main(int argc, char **argv) { printf("hello %d\n", argc); return 0; }
"""

CPP_LIBRARY: Final = r"""
#include <map>
#include <string>
extern "C" int count(void) { std::map<std::string, int> m; m["a"] = 1; m["b"] = 41; return m["a"] + m["b"]; }
"""

USES_COUNT: Final = r"""
#include <stdio.h>
int count(void);
int main(void) { printf("count %d\n", count()); return 0; }
"""


@dataclass(frozen=True)
class Compiler:
    """Compiles sources of a few lines; the same source and flags are compiled once."""

    folder: Path

    def __call__(
        self,
        source: str,
        *flags: str,
        name: str = "program",
        compiler: str = "gcc",
        inputs: Sequence[Path] = (),
    ) -> Path:
        """Return the program or library that a compiler makes of the source, under the file name `name`."""
        language = "cpp" if compiler.endswith("++") else "c"
        key = repr((source, flags, name, compiler, [str(path) for path in inputs]))
        folder = self.folder / hashlib.sha256(key.encode()).hexdigest()[:16]
        output = folder / name
        if not output.exists():
            folder.mkdir(exist_ok=True)
            text = folder / f"source.{language}"
            text.write_text(source)
            run([compiler, "-O1", "-o", str(output), str(text), *map(str, inputs), *flags], timeout=120)
        return output

    def musl(self, source: str, *flags: str, name: str = "program", inputs: Sequence[Path] = ()) -> Path:
        """Return what the compiler makes for the C library musl."""
        return self(source, *flags, name=name, compiler="musl-gcc", inputs=inputs)


def program_headers(path: Path) -> str:
    return run(["readelf", "--wide", "--program-headers", str(path)]).text


def dynamic_section(path: Path) -> str:
    return run(["readelf", "--wide", "--dynamic", str(path)]).text
