"""A measured figure, and how it is taken."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Figure:
    """One figure: ours against something else, or against a limit.

    Attributes:
        name: What is measured.
        ours: Our value, the median of the runs.
        against: The name of what it is compared with.
        theirs: Its value, in the same unit.
        unit: `s`, `ms` or `MB` (1 MB is 1,000,000 bytes).
        at_most: The highest ratio of ours to theirs that is promised; `None`: none is.
    """

    name: str
    ours: float
    against: str
    theirs: float
    unit: str
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        """Ours, as a multiple of theirs."""
        return self.ours / self.theirs

    @property
    def holds(self) -> bool | None:
        """Whether the promise is kept; `None` where none is made."""
        return None if self.at_most is None else self.ratio <= self.at_most

    def to_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "name": self.name,
            "ours": self.ours,
            "against": self.against,
            "theirs": self.theirs,
            "unit": self.unit,
            "ratio": self.ratio,
            "at_most": self.at_most,
            "holds": self.holds,
        }

    def row(self) -> tuple[str, ...]:
        """Return it as the cells of a table."""
        promise = "" if self.at_most is None else f"at most {self.at_most:.2f}"
        verdict = {None: "", True: "yes", False: "NO"}[self.holds]
        return (
            self.name,
            f"{self.ours:.2f} {self.unit}",
            f"{self.against}: {self.theirs:.2f} {self.unit}",
            f"{self.ratio:.3f}",
            promise,
            verdict,
        )


COLUMNS = ("figure", "ours", "compared with", "ratio", "promised", "kept")


def alternate(runs: int, *actions: Callable[[], object]) -> tuple[float, ...]:
    """Run actions in turn, `runs` rounds and one to warm up, and return each one's median in seconds."""
    taken: list[list[float]] = [[] for _ in actions]
    for turn in range(runs + 1):
        for action, times in zip(actions, taken, strict=True):
            began = time.perf_counter()
            action()
            if turn:
                times.append(time.perf_counter() - began)
    return tuple(statistics.median(times) for times in taken)
