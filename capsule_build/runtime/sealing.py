"""Sealing a setup root, by the capsule's own `seal-tree`, and its report.

What a seal does, and the format of its report: `docs/seal-tree.md`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .errors import TargetError
from .process import CommandError, ProgramMissingError

if TYPE_CHECKING:
    from .environment import Environment
    from .installing import Installed

SCHEMA: Final = "agentcompass.seal-report.v1"
"""What `schema_version` of a report says."""

SEAL_SECONDS: Final = 600.0
"""How long sealing may take."""

_REFUSED: Final = 2
_SHOWN_BYTES: Final = 200
_SEALER: Final = "seal-tree"


@dataclass(frozen=True)
class Left:
    """A file that isn't sealed, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class SealReport:
    """What a seal did.

    Attributes:
        root: The setup root.
        dry_run: Whether nothing was written.
        scanned: How many regular files were opened.
        already_sealed: How many of these were sealed before, and right.
        scripts: Files whose first line was changed.
        interpreters: Programs that got the capsule's loader.
        rpaths: Programs and libraries that got the capsule's libraries.
        skipped: What was left as it is, for a reason.
        failures: What needs sealing and isn't sealed.
    """

    root: str
    dry_run: bool
    scanned: int
    already_sealed: int
    scripts: tuple[str, ...]
    interpreters: tuple[str, ...]
    rpaths: tuple[str, ...]
    skipped: tuple[Left, ...]
    failures: tuple[Left, ...]

    @property
    def changed(self) -> int:
        """How many changes were made."""
        return len(self.scripts) + len(self.interpreters) + len(self.rpaths)

    def behind(self, earlier: SealReport) -> SealReport:
        """Return the report of two seals of one root as one: this one, and an earlier one."""
        return replace(
            self,
            already_sealed=earlier.already_sealed,
            scripts=tuple(sorted({*earlier.scripts, *self.scripts}, key=os.fsencode)),
            interpreters=tuple(sorted({*earlier.interpreters, *self.interpreters}, key=os.fsencode)),
            rpaths=tuple(sorted({*earlier.rpaths, *self.rpaths}, key=os.fsencode)),
        )

    def as_json(self) -> dict[str, object]:
        """Return the report as JSON values, in the format of `seal-tree --json`."""
        changes = {
            name: {"count": len(paths), "paths": list(paths)}
            for name, paths in (
                ("scripts", self.scripts),
                ("interpreters", self.interpreters),
                ("rpaths", self.rpaths),
            )
        }
        left = {
            name: [{"path": item.path, "reason": item.reason} for item in items]
            for name, items in (("skipped", self.skipped), ("failures", self.failures))
        }
        return {
            "schema_version": SCHEMA,
            "root": self.root,
            "dry_run": self.dry_run,
            "scanned": self.scanned,
            "already_sealed": self.already_sealed,
            **changes,
            **left,
        }


def seal(
    installed: Installed, environment: Environment, *, dry_run: bool = False, timeout: float = SEAL_SECONDS
) -> SealReport:
    """Seal the setup root of an installed capsule. Files that can't be sealed are in the report's `failures`.

    Args:
        installed: The capsule, as `install` or `installed` returns it.
        environment: Where it is.
        dry_run: Only say what would be done.
        timeout: Seconds.

    Raises:
        TargetError: There is no setup root, it is refused, or the sealer can't run there.
        CommandError: It doesn't end in time.
    """
    options = ["--json", *(["--dry-run"] if dry_run else [])]
    argv = [installed.tools[_SEALER], *options, installed.setup_root]
    try:
        result = environment.run(argv, timeout=timeout)
    except ProgramMissingError as error:
        raise TargetError(
            f"{environment.name}: '{argv[0]}' can't be started.", hint="Verify the installed capsule."
        ) from error
    except CommandError as error:
        raise CommandError(
            f"{environment.name}: sealing '{installed.setup_root}' didn't end within {timeout:g} s.",
            result=error.result,
        ) from error
    if result.code >= _REFUSED or result.code < 0:
        said = result.error_text.strip() or f"{_SEALER} ended with status {result.code}"
        raise TargetError(f"{environment.name}: '{installed.setup_root}' can't be sealed: {said}")
    return parse_report(result.stdout, environment.name)


def parse_report(printed: bytes, name: str = "seal-tree") -> SealReport:
    """Read what `seal-tree --json` prints.

    Args:
        printed: The JSON text. A byte of a path that isn't UTF-8 is a lone surrogate in it.
        name: How errors name where it comes from.

    Raises:
        TargetError: It is no such report.
    """
    try:
        said: dict[str, Any] = json.loads(printed)
        report = SealReport(
            root=said["root"],
            dry_run=said["dry_run"],
            scanned=said["scanned"],
            already_sealed=said["already_sealed"],
            scripts=tuple(said["scripts"]["paths"]),
            interpreters=tuple(said["interpreters"]["paths"]),
            rpaths=tuple(said["rpaths"]["paths"]),
            skipped=tuple(Left(item["path"], item["reason"]) for item in said["skipped"]),
            failures=tuple(Left(item["path"], item["reason"]) for item in said["failures"]),
        )
        is_known = said["schema_version"] == SCHEMA
    except (ValueError, KeyError, TypeError):
        is_known = False
    if not is_known:
        shown = printed[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        raise TargetError(f"{name}: the sealer printed what isn't understood: {shown!a}")
    return report
