"""The table of figures: what was measured again takes its place, and the rest stays."""

from __future__ import annotations

from benchmarks.__main__ import merged
from benchmarks.figures import Figure


def row(name: str, ours: float) -> tuple[str, ...]:
    return Figure(name, ours, "theirs", 2.0, "s", at_most=1.0).row()


def test_a_figure_that_is_measured_again_keeps_its_place() -> None:
    first = merged("", [row("packing, time", 1.0), row("packing, size", 2.0)])
    second = merged(f"On a machine:\n\n{first}", [row("packing, time", 3.0), row("start-up", 1.0)])
    lines = second.splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        *("| figure", "| ---", "| packing, time", "| packing, size", "| start-up")
    ]
    assert "3.00 s" in lines[2]
    assert "NO" in lines[2]
    assert lines[3] == first.splitlines()[3]
