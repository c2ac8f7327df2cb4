"""The arguments of `capsule run` and `capsule exec`, read by hand: see `entry`."""

from __future__ import annotations

from ...sandbox.records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence


class Arguments(Record):
    """What was asked for.

    Attributes:
        command: `run` or `exec`.
        file: The file; `None`: the entry point that `capsule.toml` names.
        args: The task's arguments.
        as_json: Whether only the envelope goes to standard output.
        verbose: Whether each task's life is told.
        shared_compute: Whether nested tasks take their fuel from their caller's.
        mounts: Folders to add, as `HOST[::GUEST][:ro|:rw]`.
        args_file: A file with a JSON list of arguments.
        packages: Folders of installed packages.
        trace: Whether what becomes of the tasks is written into the trace.
        trust: Whose signature is asked for, by the fields of `sandbox.trust.Trust`; `None`: what is said
            elsewhere.
        lock: The registry lock; `None`: what the environment says, else the shipped one.
        data_dir: The folder of bundles; `None`: what the environment says, else the user's own.
        repeated: An option that was given twice and can be meant once: which one counted could be decided by
            whoever has the last word.
    """

    command: str
    file: str | None = None
    args: tuple[str, ...] = ()
    as_json: bool = False
    verbose: bool = False
    shared_compute: bool = False
    mounts: tuple[str, ...] = ()
    args_file: str | None = None
    packages: tuple[str, ...] = ()
    trace: bool = False
    trust: dict[str, str] | None = None
    lock: str | None = None
    data_dir: str | None = None
    repeated: str | None = None


_FLAGS = {
    "--json": "as_json",
    "--verbose": "verbose",
    "--shared-compute": "shared_compute",
    "--trace": "trace",
}
_MOUNT = {"--mount": "mounts"}
_LISTS = {**_MOUNT, "--packages": "packages"}
_TRUST = {
    "--identity": "identity",
    "--issuer": "issuer",
    "--public-key": "public_key",
    "--trust-root": "trust_root",
    "--trust-config": "trust_root",
    "--builder": "builder",
}
_ONCE = {**_TRUST, "--lock": "lock", "--data-dir": "data_dir"}
_ARGS_FILE = {"--args-file": "args_file"}


def read_arguments(argv: Sequence[str]) -> Arguments | None:
    """Return what the words ask for; `None`: Typer shall read them, for help or to say what is wrong.

    An option counts wherever it stands before a `--`; a word that begins with a dash and a digit is an
    argument.
    """
    flags: dict[str, bool] = {}
    lists: dict[str, list[str]] = {"mounts": [], "packages": []}
    args_file: str | None = None
    once: dict[str, str] = {}
    repeated: str | None = None
    # A source isn't signed and isn't in the lock; a packed file has its packages in it.
    values = {**_ARGS_FILE, **_MOUNT, **_ONCE} if argv[0] == "exec" else {**_ARGS_FILE, **_LISTS}
    plain: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            plain.extend(words)
        elif word in _FLAGS:
            flags[_FLAGS[word]] = True
        elif word.partition("=")[0] in values:
            name, equals, value = word.partition("=")
            if not equals:
                following = next(words, None)
                if following is None:
                    return None
                value = following
            if name in _LISTS:
                lists[_LISTS[name]].append(value)
            elif name in _ONCE:
                repeated = name if _ONCE[name] in once else repeated
                once[_ONCE[name]] = value
            else:
                args_file = value
        elif word.startswith("-") and not word[1:2].isdigit() and word != "-":
            return None
        else:
            plain.append(word)
    return Arguments(
        argv[0],
        plain[0] if plain else None,
        tuple(plain[1:]),
        mounts=tuple(lists["mounts"]),
        packages=tuple(lists["packages"]),
        args_file=args_file,
        lock=once.pop("lock", None),
        data_dir=once.pop("data_dir", None),
        trust=once or None,
        repeated=repeated,
        **flags,
    )
