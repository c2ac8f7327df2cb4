"""What sealing did to a program: the capsule's own sealer is asked, without writing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .elf import MAGIC
from .errors import CapsuleError
from .layout import CAPSULES, SETUPS
from .sealing import SEAL_SECONDS, parse_report
from .why_scripts import first_line, is_script

if TYPE_CHECKING:
    from .environment import Environment
    from .sealing import SealReport
    from .target import Target
    from .why_files import Entry
    from .why_view import View

_SEALER: Final = "seal-tree"


@dataclass(frozen=True)
class Sealing:
    """What sealing did to a file.

    Attributes:
        state: `outside`: it lies in no setup root; `sealed`; `unsealed`: a seal would change it;
            `left-alone`; `failed`: it can't be sealed; `untouched`: it needs nothing; `unknown`: the sealer
            can't be asked.
        message: The same for people, with the reason.
        setup_root: The setup root that it lies in.
        capsule: The name of the installed capsule that the setup root belongs to.
    """

    state: str
    message: str
    setup_root: str | None = None
    capsule: str | None = None


def sealing_of(
    environment: Environment, target: Target | None, entry: Entry, head: bytes, view: View
) -> Sealing:
    """Return what sealing did to a file.

    Args:
        environment: Where it is.
        target: What a probe found there; `None`: it couldn't look.
        entry: The file, behind symlinks.
        head: Its first bytes.
        view: The environment's files.
    """
    path = entry.real_path
    if not path.startswith(f"{SETUPS}/"):
        return Sealing("outside", f"It lies in no setup root ('{SETUPS}/...'): sealing never touches it.")
    digest = path.removeprefix(f"{SETUPS}/").partition("/")[0]
    root = f"{SETUPS}/{digest}"
    installed = target.capsules.installed.values() if target is not None else ()
    capsule = next((item for item in installed if item.mark.digest == digest), None)
    if capsule is None:
        return Sealing(
            "unknown",
            f"It lies in the setup root of the capsule {digest}, which isn't found there.",
            root,
        )
    name = capsule.mark.name
    sealer = f"{CAPSULES}/{name}/{capsule.manifest.tools[_SEALER]}"
    try:
        result = environment.run([sealer, "--json", "--dry-run", root], timeout=SEAL_SECONDS)
        report = parse_report(result.stdout, environment.name)
    except CapsuleError as error:
        return Sealing("unknown", f"The sealer of {name} can't be asked: {error.message}", root, name)
    state, message = _state(report, path, head, _private(entry, head, view))
    return Sealing(state, message, root, name)


def _state(report: SealReport, path: str, head: bytes, private: str | None) -> tuple[str, str]:
    if path in (*report.scripts, *report.interpreters, *report.rpaths):
        return "unsealed", "It isn't sealed yet: it came after the last seal, or changed since."
    for item in report.skipped:
        if item.path == path:
            return "left-alone", f"Sealing left it alone: {item.reason}."
    for item in report.failures:
        if item.path == path:
            return "failed", f"Sealing it fails: {item.reason}."
    if private is not None:
        return "sealed", f"It is sealed: {private}."
    what = (
        "runs with the image's own"
        if head.startswith(MAGIC) or is_script(head)
        else "is no program that needs"
    )
    return "untouched", f"Sealing has nothing to do: it {what} loader or interpreter."


def _private(entry: Entry, head: bytes, view: View) -> str | None:
    """Return what of a capsule a file names."""
    if head.startswith(MAGIC):
        elf = view.elf_or_none(entry)
        if elf is None:
            return None
        named = []
        if (elf.interpreter or "").startswith(CAPSULES):
            named.append(f"its loader is '{elf.interpreter}'")
        if CAPSULES in (run_path := elf.rpath or ""):
            named.append(f"its RPATH is '{run_path}'")
        named += [f"it names '{name}'" for name in elf.needed if name.startswith(CAPSULES)]
        return ", ".join(named) or None
    line = first_line(head) if is_script(head) else None
    if line is not None and line.interpreter.startswith(CAPSULES):
        return f"its first line names '{line.interpreter}'"
    return None
