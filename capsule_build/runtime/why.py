"""Why a program can't start in an environment, and what sealing did to it.

The system often says no more than "No such file or directory" of a file that is plainly there: its loader or
interpreter isn't. This follows what the kernel and the loader would do, file by file, and names the first
things that fail. Where the loader can be asked, it has the last word. Nothing of the program is run.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from .elf import MAGIC, Elf, ElfError
from .errors import CapsuleError, ContractError, TargetError, UsageError
from .layout import CAPSULES
from .platforms import host_architecture
from .probing import probe
from .why_files import files_of
from .why_libraries import closure_of
from .why_scripts import HEAD_BYTES, Step, is_script, look_at_script, what_it_is
from .why_sealing import Sealing, sealing_of
from .why_search import Loaded, Search, libc_of_loader
from .why_view import Problem, Trail, View

if TYPE_CHECKING:
    from .environment import Environment
    from .target import Target
    from .why_files import Entry, Files

_MAX_STEPS: Final = 5
"""Interpreters of interpreters that the kernel follows."""

_LIST_SECONDS: Final = 15.0
_SAID_CHARACTERS: Final = 600
_ALSO_RUNS: Final = {"x86_64": ("i386",), "aarch64": ("arm",)}
"""Machines whose programs a kernel may run beside its own."""

_MENDED: Final = (
    *(
        "interpreter-missing",
        "command-missing",
        "env-unsupported",
        "env-arguments",
        "shebang-carriage-return",
    ),
    *("loader-missing", "library-missing", "version-missing", "loader-refuses"),
)
"""Problems that sealing mends, as a rule."""


@dataclass
class Explanation:
    """What was found out about a program.

    Attributes:
        path: The program.
        environment: The environment's name.
        chain: What is started in turn, and why: the program, its interpreter, and so on.
        libraries: The libraries that the last of these gets: path and what led to it.
        problems: What keeps it from starting; none: nothing was found.
        notes: What else a person should know.
        sealing: What sealing did to it.
    """

    path: str
    environment: str
    chain: list[tuple[str, str]] = field(default_factory=list)
    libraries: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sealing: Sealing | None = None

    @property
    def next_steps(self) -> list[str]:
        """What to do about it, where that is known."""
        state = self.sealing.state if self.sealing is not None else ""
        if not any(problem.kind in _MENDED for problem in self.problems):
            return []
        if state == "unsealed":
            return [f"Seal it: capsule seal TAG {self.environment}"]
        if state == "outside":
            return [
                "Install it with a capsule ('capsule setup'): sealed, it brings its own loader and libraries."
            ]
        return []

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {
            "path": self.path,
            "environment": self.environment,
            "chain": [{"path": path, "because": because} for path, because in self.chain],
            "libraries": [{"path": path, "how": how} for path, how in self.libraries],
            "problems": [asdict(problem) for problem in self.problems],
            "notes": self.notes,
            "next_steps": self.next_steps,
            "sealing": None if self.sealing is None else asdict(self.sealing),
        }


def explain(path: str, environment: Environment) -> Explanation:
    """Explain why a program can't start.

    Args:
        path: Its absolute path in the environment.
        environment: Where it is.

    Raises:
        UsageError: The path isn't absolute.
        TargetError: The environment can't be looked into.
        EngineError: Its engine can't be reached.
    """
    if not path.startswith("/") or "\n" in path:
        raise UsageError(f"{path!a} is not an absolute path in {environment.name}.")
    with contextlib.closing(files_of(environment)) as files:
        return _Explainer(path, environment, files).explain()


class _Explainer:
    def __init__(self, path: str, environment: Environment, files: Files) -> None:
        self._environment = environment
        self._view = View(files, files.surroundings())
        self._found = Explanation(path, environment.name)
        self._target = self._probed()

    def _probed(self) -> Target | None:
        """Return what a probe finds; what is wrong with the program may be in the probe's way, too."""
        try:
            return probe(self._environment)
        except (ContractError, TargetError) as error:
            self._found.notes.append(error.message)
            return None

    def explain(self) -> Explanation:
        found = self._found
        trail = self._view.at(found.path)
        self._program(found.path, trail, "it is what was asked for")
        entry = trail.entry
        if entry is not None and entry.kind == "file":
            found.sealing = sealing_of(self._environment, self._target, entry, self._head(entry), self._view)
        if not self._view.files.has_shell:
            found.notes.append("There is no shell, so mounts couldn't be looked at.")
        found.problems = list(dict.fromkeys(found.problems))
        return found

    def _program(self, path: str, trail: Trail, because: str) -> None:
        """Look at something that the kernel is told to start."""
        self._found.chain.append((trail.shown, because))
        entry = trail.entry
        if entry is None:
            self._add(_missing(path, trail, self._view.files.has_shell))
        elif entry.kind != "file":
            what = "a folder" if entry.kind == "folder" else "no regular file"
            self._add(Problem("not-a-file", path, f"'{path}' is {what}."))
        else:
            self._check_rights(path, entry)
            self._file(path, entry)

    def _check_rights(self, path: str, entry: Entry) -> None:
        if not entry.may_run:
            who = "by this user" if self._view.files.has_shell else "by anybody"
            self._add(
                Problem(
                    "not-executable",
                    path,
                    f"'{path}' may not be executed {who}.",
                    hint=f"chmod +x '{path}', or be another user.",
                )
            )
        if "noexec" in self._view.surroundings.options_at(entry.real_path):
            self._add(
                Problem(
                    "noexec",
                    path,
                    f"'{path}' lies on a file system that is mounted noexec: no program can run from it.",
                    hint="Mount it with exec (Docker: --tmpfs /tmp:exec), or put the program elsewhere.",
                )
            )

    def _file(self, path: str, entry: Entry) -> None:
        head = self._head(entry)
        if head.startswith(MAGIC):
            try:
                self._elf(path, entry, self._view.elf(entry))
            except ElfError as error:
                self._add(Problem("format", path, f"'{path}' is a broken ELF file: {error.message}"))
        elif not is_script(head):
            self._add(what_it_is(path, head))
        elif len(self._found.chain) > _MAX_STEPS:
            self._add(Problem("too-many-interpreters", path, f"'{path}' is one interpreter too many."))
        else:
            for item in look_at_script(entry, head, self._view):
                if isinstance(item, Step):
                    self._program(item.path, item.trail, item.because)
                else:
                    self._add(item)

    def _elf(self, path: str, entry: Entry, elf: Elf) -> None:
        program = self._target.program if self._target else None
        machine = program.machine if program else host_architecture()
        if elf.machine != machine and elf.machine not in _ALSO_RUNS.get(machine, ()):
            self._add(
                Problem(
                    "architecture",
                    path,
                    f"'{path}' is a program for {elf.machine}, and {self._environment.name} runs {machine}.",
                    hint=f"Install its build for {machine}.",
                )
            )
            return
        if elf.interpreter is None:
            if not elf.is_static:
                what = "an object file" if elf.type == "relocatable" else "a shared library"
                self._add(Problem("not-a-program", path, f"'{path}' is {what}, not a program."))
            return
        loader = self._loader(path, elf, elf.interpreter)
        libc = libc_of_loader(elf.interpreter)
        if loader is None:
            return
        if libc is None:
            self._found.notes.append(
                f"The loader '{elf.interpreter}' isn't known: its libraries aren't told."
            )
            return
        self._libraries(path, entry, elf, libc, elf.interpreter)

    def _loader(self, path: str, elf: Elf, name: str) -> Entry | None:
        """Return a program's loader if it can be the one that it needs."""
        trail = self._view.at(name)
        entry = trail.entry
        if entry is None:
            what = f"a symlink to nothing: {trail.shown}" if trail.is_link else "which isn't there"
            message = (
                f"'{path}' asks for the loader '{name}', {what}. The system then says 'No such file or "
                "directory' of the program itself."
            )
            hint = None
            if name.startswith(f"{CAPSULES}/"):
                hint = "Install the capsule again that it was sealed for."
            elif (libc := libc_of_loader(name)) is not None:
                message += f" It is a program for {libc}, which this environment lacks."
            self._add(Problem("loader-missing", path, message, hint))
            return None
        own = self._view.elf_or_none(entry)
        if own is None or (own.machine, own.bits) != (elf.machine, elf.bits):
            what = "no ELF file" if own is None else f"for {own.bits}-bit {own.machine}"
            self._add(Problem("loader-unfit", path, f"The loader of '{path}', '{name}', is {what}."))
            return None
        if libc_of_loader(name) == "glibc" and not any(item.startswith("GLIBC_") for item in own.defines):
            self._add(
                Problem(
                    "other-libc",
                    path,
                    f"'{path}' is a program for glibc, and its loader's place is taken by that of another C "
                    f"library: {trail.shown}.",
                )
            )
            return None
        return entry

    def _libraries(self, path: str, entry: Entry, elf: Elf, libc: str, loader: str) -> None:
        folder = entry.real_path.rpartition("/")[0] or "/"
        program = Loaded(path, path, folder, elf, "the program")
        found = closure_of(program, Search(libc, loader, program, self._view), self._view)
        self._found.libraries = [(item.path, item.how) for item in found.loaded[1:]]
        self._found.notes += found.notes
        said = self._asked(loader, path)
        if said is None:
            self._found.problems += found.problems
        elif said:
            # The loader has the last word; what was found out here says it better.
            self._found.problems += found.problems or [
                Problem("loader-refuses", path, f"The loader of '{path}' can't load it: {said}")
            ]

    def _asked(self, loader: str, path: str) -> str | None:
        """Return what a program's loader says against it; empty: nothing; `None`: it can't be asked."""
        if self._found.problems:
            return None
        try:
            result = self._environment.run([loader, "--list", path], timeout=_LIST_SECONDS)
        except CapsuleError:
            return None
        lines = [*result.text.splitlines(), *result.error_text.splitlines()]
        against = [line.strip() for line in lines if "not found" in line or "rror" in line]
        if result.code == 0 and not [line for line in against if "ignored" not in line]:
            return ""
        return "; ".join(against or lines)[:_SAID_CHARACTERS] or f"it ended with status {result.code}"

    def _head(self, entry: Entry) -> bytes:
        try:
            with self._view.files.open(entry) as stream:
                return stream.read(HEAD_BYTES)
        except TargetError as error:
            self._add(Problem("unreadable", entry.path, error.message))
            return b""

    def _add(self, problem: Problem) -> None:
        self._found.problems.append(problem)


def _missing(path: str, trail: Trail, has_shell: bool) -> Problem:
    if trail.is_loop:
        return Problem(
            "symlink-loop", path, f"'{path}' is a symlink that leads back to itself: {trail.shown}."
        )
    if trail.is_link:
        return Problem("dangling-symlink", path, f"'{path}' is a symlink to nothing: {trail.shown}.")
    also = "" if has_shell else ", or is a symlink to nothing"
    return Problem("missing", path, f"'{path}' isn't there{also}.")
