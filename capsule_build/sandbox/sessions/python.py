"""Python's sessions: a run is a task of Python's guest, which keeps its variables as bytes."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...runtime.errors import CapsuleError
from ..languages import PYTHON
from ..modules import Modules, Source
from ..source import TaskFile, compiled
from ..trees import FolderTree
from .call import engine
from .kind import Left

if TYPE_CHECKING:
    from ..options import Policy
    from .call import Call

MAX_STATE_CHARACTERS: Final = 64 << 20
"""Of what a run leaves for the next, in base64."""

_NAME: Final = "session"
_SOURCE: Final = "from capsule_session import main\n"


class PythonKind:
    """See `Kind`.

    Args:
        policy: The limits and grants of each run.
    """

    def __init__(self, policy: Policy) -> None:
        self._tasks = {policy.name: policy}
        self._entry = policy.name

    def run(self, code: str, state: str | None, number: int, folder: Path, call: Call) -> Left:
        """Run a piece of code (see `Kind`)."""
        program = compiled(_SOURCE, _NAME, engine(PYTHON))
        file = TaskFile(_NAME, _SOURCE, self._tasks, self._entry, _modules(), program)
        answer = call.answer(file, [code, state, number, call.last], folder, PYTHON)
        if not isinstance(answer, dict) or not ("failed" in answer or "state" in answer):
            raise call.failure("wasm_error", "The guest gave an answer that isn't one.")
        if "failed" in answer:
            raise call.failure("task_error", str(answer["failed"]))
        kept, value = answer["state"], answer["value"]
        if not isinstance(kept, str) or len(kept) > MAX_STATE_CHARACTERS:
            message = f"What the run leaves has more than {MAX_STATE_CHARACTERS} characters."
            raise call.failure("memory_exceeded", message)
        return Left(kept, value if isinstance(value, str) else None, tuple(map(str, answer["lost"])))


@functools.cache
def _modules() -> Modules:
    """Return what runs can import beside the standard library: what keeps functions for the next."""
    found = importlib.util.find_spec("cloudpickle")
    if found is None or found.origin is None:
        raise CapsuleError("cloudpickle is missing.", hint="Install capsule-build again.")
    folder = str(Path(found.origin).parents[1])
    return Modules([Source(FolderTree(folder), frozenset({"cloudpickle"}), "/packages/")])
