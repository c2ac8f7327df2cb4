"""Attempts of tasks to get more than was granted, in any language: what one is, where it is made, what holds after it.

The task of an attempt is granted `data` (to read and write), `input` (to read), one variable and one host. Around
it lies what it must not reach: a file beside its folders, one above, a secret variable, other hosts of this machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from capsule_build.runtime.errors import CapsuleError

from .tasks import error_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from .tasks import Bench, Web

SECRET = "the secret of this machine"
DENIED = "permission_denied"
FAILED = "task_error"
REFUSED = "refused"


class Attempt(NamedTuple):
    """What a task tries, and what comes of it.

    Attributes:
        name: What is tried.
        body: The task's body. `PORT` is the port of a server of this machine; `ask` asks the host directly.
        kind: A pattern of the type of the error that it ends with, `REFUSED` where the file isn't even run; `None`:
            it ends well, and found nothing.
        says: A pattern that the error's message has; or the result that it ends with, or a pattern of that.
        options: Options beside the usual ones.
        reaches: Paths that the server is asked for.
    """

    name: str
    body: str
    kind: str | None
    says: Any
    options: str = ""
    reaches: tuple[str, ...] = ()


def furnish(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay what is granted into a working folder, and what isn't around it."""
    monkeypatch.setenv("CAPSULE_T_GIVEN", "given")
    monkeypatch.setenv("CAPSULE_T_SECRET", SECRET)
    bench.write("secret.txt", SECRET)
    bench.write("data/d.txt", "d")
    bench.write("input/in.txt", "in")
    (bench.folder.parent / "secret.txt").write_text(SECRET)
    (bench.folder / "data" / "out.txt").symlink_to("../secret.txt")
    (bench.folder / "data" / "up").symlink_to("..")


def assert_held(attempt: Attempt, bench: Bench, name: str, web: Web) -> None:
    """Run a file whose task is the attempt: it ends as it should, learns no secret and changes nothing outside.

    Raises:
        AssertionError: One of these doesn't hold.
    """
    before, asked = _outside(bench.folder), len(web.asked)
    try:
        envelope = bench.run(name)
    except CapsuleError as error:
        said = str(error)
        kind: str | None = REFUSED
        found: Any = said
    else:
        said = str(envelope)
        kind, found = (None, envelope["result"]) if envelope["success"] else error_of(envelope)
    if attempt.kind is None:
        assert kind is None, said
        if isinstance(attempt.says, re.Pattern):
            assert attempt.says.search(found)
        else:
            assert found == attempt.says
    else:
        assert kind is not None, said
        assert re.fullmatch(attempt.kind, kind), (kind, found)
        assert re.search(attempt.says, found), found
    said += str(bench.printed)
    assert SECRET not in said
    assert "root:" not in said
    assert _outside(bench.folder) == before
    # What redirects is asked by intent; where it points to must not be.
    reached = [path for _, path, _, _ in web.asked[asked:] if not path.startswith("/to")]
    assert reached == list(attempt.reaches)


def _outside(work: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that lies outside of what a task may change."""
    return {
        str(path.relative_to(work.parent)): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        for path in work.parent.rglob("*")
        if path.is_file() and not path.is_relative_to(work / "data")
    }
