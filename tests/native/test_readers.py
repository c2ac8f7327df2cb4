"""The unit tests and the fuzzers of the C readers, with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest

from capsule_build.runtime.process import Result, run

from .capsules import NATIVE

CORPUS: Final = Path(__file__).parent / "corpus"
SECONDS: Final = int(os.environ.get("CAPSULE_FUZZ_SECONDS", "12"))
LONGEST: Final = {"elf": 16384, "script": 4200}


def _make(folder: Path, target: str) -> Path:
    run(["make", "--directory", str(NATIVE), f"OUT={folder}", target], timeout=300)
    return folder / target


def _fuzz(program: Path, work: Path, *arguments: str | Path, timeout: float) -> Result:
    return run([str(program), *map(str, arguments)], cwd=work, check=False, timeout=timeout)


def test_the_unit_tests_of_the_readers_pass(tmp_path: Path) -> None:
    result = run([str(_make(tmp_path, "readers-test"))], check=False)
    assert result.code == 0, result.error_text
    passed = re.fullmatch(r"(\d+) passed, 0 failed\n", result.text)
    assert passed is not None
    assert int(passed[1]) > 400


@pytest.mark.parametrize("reader", ["elf", "script"])
def test_fuzz_no_bytes_break_a_reader(tmp_path: Path, reader: str) -> None:
    """CAPSULE_FUZZ_SECONDS sets the time; CAPSULE_FUZZ_FOUND keeps what is found, for the corpus."""
    program = _make(tmp_path, f"fuzz-{reader}")
    found = Path(os.environ.get("CAPSULE_FUZZ_FOUND", str(tmp_path / "found"))) / reader
    found.mkdir(parents=True, exist_ok=True)
    limits = (f"-max_total_time={SECONDS}", f"-max_len={LONGEST[reader]}", "-timeout=5", "-rss_limit_mb=1024")
    result = _fuzz(program, tmp_path, *limits, found, CORPUS / reader, timeout=SECONDS + 120)
    crashes = [
        path.read_bytes()
        for path in tmp_path.glob("*-*")
        if path.name.startswith(("crash-", "timeout-", "oom-"))
    ]
    assert result.code == 0, (result.error_text[-3000:], crashes)
    runs = re.search(r"Done (\d+) runs", result.error_text)
    assert runs is not None
    assert int(runs[1]) > 1000


@pytest.mark.parametrize("reader", ["elf", "script"])
def test_the_corpus_is_small(reader: str) -> None:
    sizes = [path.stat().st_size for path in (CORPUS / reader).iterdir()]
    assert len(sizes) >= 5
    assert sum(sizes) < 400_000
