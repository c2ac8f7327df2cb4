"""JavaScript's sessions: the guest's whole memory is kept, and the next run goes on in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..javascript.image import MAX_IMAGE_BYTES, Image, MemoryCarrier
from ..languages import JAVASCRIPT
from ..modules import Modules
from ..source import TaskFile
from .call import FOLDER
from .kind import Left

if TYPE_CHECKING:
    from pathlib import Path

    from ..options import Policy
    from .call import Call


class JavaScriptKind:
    """See `Kind`.

    Args:
        policy: The limits and grants of each run.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def run(self, code: str, state: Image | None, number: int, folder: Path, call: Call) -> Left:
        """Run a piece of code (see `Kind`). The guest itself counts the runs."""
        del number
        name = self._policy.name
        file = TaskFile(FOLDER, code, {name: self._policy}, name, Modules([]))
        carrier = MemoryCarrier(state, keep=not call.last)
        try:
            answer = call.answer(file, [], folder, JAVASCRIPT, carrier)
        finally:
            left = carrier.take()
        if not isinstance(answer, dict) or "value" not in answer:
            raise call.failure("wasm_error", "The guest gave an answer that isn't one.")
        if left is None and not call.last:
            message = (
                f"The run leaves more than {MAX_IMAGE_BYTES >> 20} MB of memory to the next. What takes so "
                "much is for a run that is no session's."
            )
            raise call.failure("memory_exceeded", message)
        value: Any = answer["value"]
        return Left(left, value if isinstance(value, str) else None, ())
