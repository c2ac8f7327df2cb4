"""The most memory that the builder's process takes, whatever the size of what it packs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run

from .figures import Figure

if TYPE_CHECKING:
    from .bench import Bench

_LIMIT_MB = 300.0
_LARGE_BYTES = 2 << 30

# VmHWM is the peak of this very program; getrusage would also count what its parent held when it was started.
_PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
"""
_BUILD = f"""
import json, sys
{_PEAK}
from capsule_build.cli.app import run
code = run(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps([code, peak()]))
"""
_PACK = f"""
import json, sys
from pathlib import Path
{_PEAK}
from capsule_build.pack import pack
with open("/dev/null", "wb") as out:
    pack(Path(sys.argv[2]), out, epoch=0)
open(sys.argv[1], "w").write(json.dumps([0, peak()]))
"""


def measure(bench: Bench) -> list[Figure]:
    """A whole build of node24, and packing a tree with one file of 2 GiB."""
    bench.bundle("musl")
    output = str(bench.folder / "memory.tar.gz")
    arguments = ["node24", output, "--libc", "musl", "--container-cli", bench.engine.name, "--newer-pins"]
    large = bench.folder / "large"
    large.mkdir()
    (large / "agentcompass-capsule.json").write_text("{}")
    with (large / "file").open("wb") as stream:
        stream.truncate(_LARGE_BYTES)
    return [
        Figure(name, _peak(bench, program, words) / 1e6, "limit", _LIMIT_MB, "MB", at_most=1.0)
        for name, program, words in (
            ("peak memory, a build", _BUILD, arguments),
            ("peak memory, packing 2 GiB", _PACK, [str(large)]),
        )
    ]


def _peak(bench: Bench, program: str, words: list[str]) -> int:
    answer = bench.folder / "peak.json"
    run([sys.executable, "-c", program, str(answer), *words])
    code, peak = json.loads(answer.read_bytes())
    if code != 0:
        raise RuntimeError(f"the build ended with status {code}")
    return int(peak)
