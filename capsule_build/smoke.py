"""Runs every tool of a bundle where it will live: in an image that knows nothing of it, without a network."""

from __future__ import annotations

import copy
import shlex
import tarfile
import uuid
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from .debian_archive import read_member
from .engine.protocol import LABEL, ContainerSpec, container
from .recipes import SmokeCheck
from .runtime.archive import check_bundle
from .runtime.errors import CapsuleError, ContractError
from .runtime.files import CHUNK_BYTES, write_atomically
from .sbom import FILE_NAME as SBOM
from .sbom import NATIVE, component_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .engine.protocol import Engine
    from .recipes import Recipe
    from .runtime.manifest import Manifest

_SECONDS_EACH: Final = 60.0
_TRIED_WITH: Final = "libexec/bash"


@dataclass(frozen=True)
class ToolResult:
    """How one tool did: what it should have printed, what it printed, and its exit status."""

    tool: str
    expected: str
    printed: str
    code: int

    @property
    def passed(self) -> bool:
        """Whether it ran and said what it should."""
        return self.code == 0 and self.printed == self.expected

    def to_json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "tool": self.tool,
            "passed": self.passed,
            "expected": self.expected,
            "printed": self.printed,
            "code": self.code,
        }


def run_smoke(engine: Engine, image: str, bundle: Path, recipe: Recipe) -> tuple[ToolResult, ...]:
    """Unpack a bundle at its install root in a container of `image`, and run every tool there.

    Args:
        engine: The engine.
        image: An image that the engine holds.
        bundle: The bundle.
        recipe: The recipe of the bundle's runtime, which says what each tool must print.

    Raises:
        ContractError: The bundle breaks the contract, or isn't one of this recipe.
        CapsuleError: The container can't be made or run.
    """
    manifest = check_bundle(bundle).manifest
    if manifest.runtime_id != recipe.id:
        raise ContractError(f"{bundle} is a capsule of {manifest.runtime_id}, not of {recipe.id}.")
    words = {
        **component_versions(_read_member(bundle, SBOM)),
        "root": manifest.install_root,
        "arch": manifest.platform.architecture,
    }
    checks = [
        (check, check.expect.format_map(words))
        for check in (*recipe.smoke, SmokeCheck("capsule-exec", ("--version",), f"capsule-exec {{{NATIVE}}}"))
    ]
    mark = uuid.uuid4().hex
    root = PurePosixPath(manifest.install_root)
    script = "\n".join(
        f"printf '%s\\n' {mark}; {shlex.join([_path(manifest, check.tool), *check.arguments])} 2>&1; "
        f"printf '\\n%s %d\\n' {mark} $?"
        for check, _ in checks
    )
    spec = ContainerSpec(image=image, argv=(str(root / _TRIED_WITH), "-c", script))
    with container(engine, spec) as made:
        engine.copy_in(made, "/", _at_install_root(bundle, root))
        outcome = engine.start(made, timeout=_SECONDS_EACH * len(checks))
    printed = outcome.stdout.decode("utf-8", "backslashreplace").split(f"{mark}\n")[1:]
    if len(printed) != len(checks):
        said = (outcome.stderr or outcome.stdout).decode("utf-8", "backslashreplace").strip()
        raise CapsuleError(
            f"The capsule's own shell doesn't run in '{image}' (status {outcome.code})"
            + (f": {said}" if said else "."),
            hint="Is the image for another architecture, or its /tmp not executable?",
        )
    return tuple(
        _result(check.tool, expected, text, mark)
        for (check, expected), text in zip(checks, printed, strict=True)
    )


def bare_image(engine: Engine, busybox: Path, folder: Path) -> str:
    """Make an image that holds nothing but a static shell, and return its id.

    Args:
        engine: The engine.
        busybox: The Debian package `busybox-static`.
        folder: An empty folder for the build's context.
    """
    write_atomically(folder / "busybox", read_member(busybox, "usr/bin/busybox"), mode=0o755)
    dockerfile = (
        f"FROM scratch\nLABEL {LABEL}=smoke\nCOPY busybox /bin/busybox\n"
        'RUN ["/bin/busybox", "ln", "-s", "busybox", "/bin/sh"]\n'
    )
    write_atomically(folder / "Dockerfile", dockerfile.encode())
    return engine.build(
        folder,
        tag="localhost/capsule-build/static-shell",
        labels={LABEL: "smoke"},
        on_line=lambda _line: None,
    )


def require_passed(results: Iterable[ToolResult], image: str) -> None:
    """Raise unless all tools passed.

    Raises:
        CapsuleError: Some didn't; the message says how each failed.
    """
    failed = [result for result in results if not result.passed]
    if failed:
        raise CapsuleError(
            f"The smoke test in {image} failed:\n"
            + "\n".join(
                f"  {item.tool}: expected '{item.expected}', got '{item.printed}' (status {item.code})"
                for item in failed
            )
        )


def _path(manifest: Manifest, tool: str) -> str:
    return f"{manifest.install_root}/{manifest.tools.get(tool, f'bin/{tool}')}"


def _result(tool: str, expected: str, text: str, mark: str) -> ToolResult:
    printed, separator, code = text.rpartition(f"\n{mark} ")
    return ToolResult(tool, expected, printed.strip(), int(code) if separator else -1)


def _read_member(bundle: Path, name: str) -> bytes:
    with tarfile.open(bundle, "r|gz") as archive:
        for member in archive:
            if member.name == name:
                stream = archive.extractfile(member)
                if stream is not None:
                    return stream.read()
    raise ContractError(f"{bundle} has no {name}.")


def _at_install_root(bundle: Path, root: PurePosixPath) -> Iterator[bytes]:
    """Yield a tar stream of a checked bundle's members, below the install root and its parents."""
    for parent in reversed([root, *root.parents][:-1]):
        folder = tarfile.TarInfo(str(parent.relative_to("/")))
        folder.type = tarfile.DIRTYPE
        folder.mode = 0o1777 if parent == PurePosixPath("/tmp") else 0o755  # noqa: S108 - the contract's
        yield folder.tobuf()
    with tarfile.open(bundle, "r|gz") as archive:
        for member in archive:
            moved = copy.copy(member)
            moved.name = f"{root.relative_to('/')}/{member.name}"
            yield moved.tobuf(tarfile.GNU_FORMAT)
            if member.isreg():
                stream = archive.extractfile(member)
                while stream is not None and (piece := stream.read(CHUNK_BYTES)):
                    yield piece
                yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
    yield b"\0" * tarfile.RECORDSIZE
