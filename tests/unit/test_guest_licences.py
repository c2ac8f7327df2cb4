"""What the guests of tasks embed has its licence text in the wheel, as its source has it."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from capsule_build.pins import load_pins
from capsule_build.sandbox import guest
from capsule_build.sandbox.javascript.guest import PINS
from capsule_build.sandbox.javascript.guest import sources as javascript

ROOT = Path(__file__).parents[2]
ONLY_MAKE_IT = {"esbuild"}
SAME_AS = {"componentize-qjs-binding": "componentize-qjs"}
"""The compiled half of a package, with the same text in it."""

WORDS = {
    "componentize-py": "LLVM Exceptions",
    "cpython": "(c) 2001 Python Software Foundation; All Rights Reserved",
    "cpython-parts": "Jean-loup Gailly",
    "hacl-star": "INRIA, CMU and Microsoft Corporation",
    "wasi-libc": "Rich Felker",
    "quickjs-ng": "Fabrice Bellard",
    "rquickjs": "Mees Delzenne",
}
"""What is in the guests and no package of npm, and whose text it must be."""


def texts() -> dict[str, str]:
    folders = (Path(guest.sources(), "LICENSES"), Path(javascript(), "LICENSES"))
    return {path.stem: path.read_text(encoding="utf-8") for folder in folders for path in folder.iterdir()}


def test_each_embedded_package_has_one_and_no_other() -> None:
    pins = load_pins(Path(javascript(), PINS)).pins
    packages = {SAME_AS.get(pin.component, pin.component) for pin in pins} - ONLY_MAKE_IT
    assert set(texts()) == packages | set(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_a_text_is_that_of_its_component(name: str) -> None:
    assert WORDS[name] in texts()[name]


def test_what_is_zlibs_expats_and_libmpdecs_is_there() -> None:
    parts = texts()["cpython-parts"]
    for name in ("Expat maintainers", "Stefan Krah", "Lucent Technologies", "Makoto Matsumoto"):
        assert name in parts


def test_componentize_pys_text_is_that_of_the_wheel() -> None:
    (own,) = (
        path
        for path in importlib.metadata.files("componentize-py") or ()
        if re.search(r"licenses/LICENSE$", str(path))
    )
    assert texts()["componentize-py"] == own.read_text(encoding="utf-8")


def test_they_go_into_wheel_and_source_archive() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["force-include"]["guest"] == "capsule_build/_data/guest"
    assert "guest" in targets["sdist"]["include"]
