"""One request to run a file: what the command line, and `capsule.run`, ask for."""

from __future__ import annotations

import os

from ..runtime.errors import CapsuleError, ContractError, DigestError, SignatureError
from .grants import read_mount
from .guests import compare
from .languages import JAVASCRIPT, PACKED_SUFFIX, PYTHON, SUFFIXES, language_of
from .options import ConfigError
from .project import FILE, load_project
from .records import Record
from .running import Context, failure, machine, run_entry
from .source import load_source, with_code
from .trust import read_trust

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from .machine import Machine
    from .source import TaskFile
    from .standby import Standby
    from .trust import Trust

_NOT_AS_IT_MUST_BE: Final = (
    ConfigError.exit_code,
    ContractError.exit_code,
    DigestError.exit_code,
    SignatureError.exit_code,
)


class Request(Record):
    """What to run.

    Attributes:
        file: A source file, or a packed one; `None`: the entry point that `capsule.toml` names.
        args: The entry task's arguments.
        kwargs: Its keyword arguments.
        packed: Whether it must be a packed file.
        mounts: Folders to add, as `HOST[::GUEST][:ro|:rw]`.
        packages: Folders of installed packages.
        shared_compute: Whether nested tasks take their fuel from their caller's.
        working: The working folder.
        trace: Whether what becomes of the tasks is written into the trace, also where `capsule.toml` doesn't
            ask for it.
        trust: Whose signature is asked for, beside what `capsule.toml` asks for: the fields of `trust.Trust`.
        sha256: The digest that a packed file must have; `None`: any.
    """

    file: str | None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    packed: bool = False
    mounts: Sequence[str] = ()
    packages: Sequence[str] = ()
    shared_compute: bool = False
    working: str = "."
    trace: bool = False
    trust: Mapping[str, Any] | None = None
    sha256: str | None = None


def perform(
    request: Request,
    *,
    output: Callable[[int, bytes], None],
    event: Callable[[str, str], None],
    say: Callable[[str], None],
    standby: Standby | None = None,
) -> dict[str, Any]:
    """Run a file and return the envelope of its entry task.

    Args:
        request: What to run.
        output: Hears what the tasks print: 1 or 2, and bytes.
        event: Hears a task's name and what became of it.
        say: Hears what takes its time, where the sandbox must be prepared first.
        standby: Has an instance ready, for a process that has many requests.

    Raises:
        CapsuleError: It can't be run.
    """
    project = load_project(request.working)
    name = request.file or project.entrypoint
    if name is None:
        raise ConfigError(
            "No file was named.",
            hint=f"Name one, or set [workflow] entrypoint in {FILE} of the working folder.",
        )
    path = name if request.working == "." else os.path.join(request.working, name)
    if not os.path.exists(path):
        raise ConfigError(f"There is no file {path}.", hint=_how_to_pack(path, name))
    packed = path.endswith(PACKED_SUFFIX)
    if request.packed and not packed:
        raise ConfigError(
            f"{name} is no packed file ({PACKED_SUFFIX}).",
            hint="'capsule run' runs a source file; 'capsule build FILE --export' packs one.",
        )
    language = language_of(path)
    if not packed and language is None:
        raise ConfigError(
            f"{name} is neither a Python file (.py), nor one of JavaScript or TypeScript (.js, .mjs, .ts), "
            f"nor a packed one ({PACKED_SUFFIX})."
        )
    trusts = [] if project.trust is None else [project.trust]
    if request.trust:
        trusts.append(read_trust(request.trust, request.working, "trust"))
    asking = [trust for trust in trusts if trust.asks_for_signature]
    if not packed and asking:
        how = "--sign" if asking[0].public_key is None else "--key KEY.pem"
        raise SignatureError(
            f"{name} isn't signed: it is a source file, and a signed bundle is asked for.",
            hint=f"'capsule build {name} --export {how}' makes one. What is asked for stands in [trust] of "
            f"{FILE}, or in the request.",
        )
    mounts = [read_mount(text) for text in request.mounts]
    if packed:
        file, engine = _packed(request, path, name, trusts, say)
    elif language == JAVASCRIPT:
        from .javascript.loading import load_javascript

        engine = machine(say, JAVASCRIPT)
        file = load_javascript(path, project, engine, say).file
    else:
        engine = machine(say)
        file = load_source(path, project, engine, packages=_folders(request))
    trace = None
    if request.trace or project.trace:
        from .trace import Trace

        trace = Trace(request.working, name, project.version, say)
    shared = request.shared_compute
    context = Context(file, engine, request.working, output, event, shared, trace, standby=standby)
    try:
        return run_entry(context, request.args, kwargs=request.kwargs, mounts=mounts)
    finally:
        if trace is not None:
            trace.close()


def _packed(
    request: Request, path: str, name: str, trusts: Sequence[Trust], say: Callable[[str], None]
) -> tuple[TaskFile, Machine]:
    from .artifact import read_artifact, read_artifact_bytes

    # Read once: what was verified is what is run.
    data = read_artifact_bytes(path)
    if request.sha256 is not None:
        _require_digest(data, request.sha256, path)
    for trust in trusts:
        by_request = bool(request.trust) and trust is trusts[-1]
        trust.require_signature(path, data, "The request" if by_request else f"[trust] of {FILE}")
    artifact = read_artifact(data, path)
    same = any(trust.same_guest for trust in trusts)
    compare(artifact.guest, name, must_be_same=same, say=say)
    engine = machine(say, artifact.guest.language)
    in_python = artifact.guest.language == PYTHON
    return (with_code(artifact.file, engine) if in_python else artifact.file), engine


def attempt(
    request: Request,
    *,
    output: Callable[[int, bytes], None],
    event: Callable[[str, str], None],
    say: Callable[[str], None],
    standby: Standby | None = None,
) -> dict[str, Any]:
    """Run a file as `perform` does, and return an envelope also where it can't be run."""
    try:
        return perform(request, output=output, event=event, say=say, standby=standby)
    except CapsuleError as error:
        return refusal(error)


def refusal(error: CapsuleError) -> dict[str, Any]:
    """Return the envelope of what can't be run."""
    kind = "config_error" if error.exit_code in _NOT_AS_IT_MUST_BE else "wasm_error"
    return failure("main", kind, str(error))


def _how_to_pack(path: str, name: str) -> str | None:
    """Return what makes a packed file that isn't there; `None`: it would be no packed file."""
    if not path.endswith(PACKED_SUFFIX):
        return None
    for suffix in SUFFIXES:
        if os.path.exists(path.removesuffix(PACKED_SUFFIX) + suffix):
            return f"'capsule build {name.removesuffix(PACKED_SUFFIX)}{suffix} --export' makes it."
    return "'capsule build FILE --export' makes one of a source file."


def _require_digest(data: bytes, sha256: str, path: str) -> None:
    import hashlib

    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise DigestError(f"{path} was changed: its SHA-256 is {found}, and {sha256} is asked for.")


def _folders(request: Request) -> list[str]:
    folders = [os.path.join(request.working, folder) for folder in request.packages]
    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError(f"--packages {folder} is not a folder.")
    return folders
