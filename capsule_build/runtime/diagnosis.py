"""Why a harness can't be set up: from what programs printed, from what lies there, and by trying."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .errors import CapsuleError
from .finding import failure_of
from .process import CommandError, ProgramMissingError
from .target import SHELL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .commands import Outcome
    from .environment import Environment
    from .finding import Candidate, Surroundings, Trial
    from .harness import Harness
    from .sealing import SealReport

OFFLINE_WAYS: Final = (
    "Four ways need no registry: a filled cache ('npm_cache', 'wheelhouse'), an install command that fetches "
    "nothing, a harness in the image ('preinstalled'), and a local tree ('upload')."
)

_UNREACHABLE: Final = re.compile(
    r"\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED)\b"
    r"|NewConnectionError|Temporary failure in name resolution|ConnectTimeoutError|Network is unreachable"
    r"|[Nn]ame or service not known|Connection refused|dns error|error sending request|Failed to fetch: "
    r"|the network (?:was|is) disabled",
)
_UNTRUSTED: Final = re.compile(
    r"SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT|UNABLE_TO_VERIFY_LEAF|CERTIFICATE_VERIFY_FAILED"
    r"|self[- ]signed certificate|invalid peer certificate|unable to get local issuer"
)
# pip doesn't say why where it tries but once.
_NOTHING_FOUND: Final = "(from versions: none)"
_SCRIPT_FAILED: Final = re.compile(r"npm (?:error|ERR!) command failed")
_EMPTY: Final = frozenset({"PATH", "HOME"})
"""Variables whose absence is the trouble, and not what is in them."""

_CERTIFICATES: Final = (
    *("NODE_EXTRA_CA_CERTS", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
    *("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"),
)
"""Variables that name a file of certificates: for Node.js, npm, pip, uv and OpenSSL, requests, git."""

_KILLED: Final = (137, -9)
"""What a program's end by SIGKILL looks like: as shells and engines tell it, and as a parent sees it."""

_UNREADABLE: Final = 'for one; do [ -r "$one" ] || printf "%s\\n" "$one"; done'
_LOOK_SECONDS: Final = 60.0
_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHOWN: Final = 5


class SetUpError(CapsuleError):
    """A harness isn't there, can't be installed, or doesn't work."""


def is_script_failure(outcome: Outcome) -> bool:
    """Return whether npm says that a package's own script failed."""
    return not outcome.is_right and _SCRIPT_FAILED.search(outcome.said) is not None


def install_error(
    harness: Harness,
    outcome: Outcome,
    environment: Environment,
    around: Surroundings,
    unsealed: Sequence[str] = (),
) -> SetUpError:
    """Return the error of an install command that failed.

    Args:
        harness: Whose command it was.
        outcome: How it ended.
        environment: Where.
        around: What it met.
        unsealed: Programs in the setup root that the environment can't start as they are.
    """
    if outcome.code is None:
        what = f"didn't end within {harness.install_timeout:g} s, and was stopped"
    else:
        what = f"failed with status {outcome.code}"
    message = f"{environment.name}: the install command {what}: {outcome.command}"
    if outcome.said:
        message += f"\n{outcome.said}"
    missing = list(_missing_files(harness, environment))
    reasons = [*missing, *_reasons(outcome, around, unsealed, knows_files=bool(missing))]
    return SetUpError(message, hint="\n".join(reasons) or None)


def missing_error(name: str, harness: Harness, around: Surroundings, trials: Sequence[Trial]) -> SetUpError:
    """Return the error of a harness that must be there, and isn't."""
    if trials:
        tried = "\n".join(f"'{trial.candidate.path}': {_ended(trial.failure)}" for trial in trials)
        what = "is there, but doesn't work" if around.is_seen else "is not where it might be, or doesn't work"
        return SetUpError(f"{name}: '{harness.entrypoint}' {what}.\n{tried}")
    return SetUpError(
        f"{name}: '{harness.entrypoint}' is not there{_on_path(harness, around)}.",
        hint="The strategy 'install_if_missing' would install it.",
    )


def unusable_error(
    harness: Harness,
    trials: Sequence[Trial],
    environment: Environment,
    around: Surroundings,
    seal: SealReport | None = None,
    home: str | None = None,
) -> SetUpError:
    """Return the error of a harness that isn't there, or fails its check, though it was installed.

    Variables of the environment that are known to lead programs astray are tried out: without which of them
    does the check succeed?

    Args:
        harness: The harness.
        trials: What was tried, and how it failed.
        environment: Where.
        around: What it met there.
        seal: What sealing said; `None`: nothing was sealed.
        home: A folder that can be written to.
    """
    if not trials:
        place = _on_path(harness, around) if seal is None else f" in '{seal.root}'"
        return SetUpError(
            f"{environment.name}: '{harness.entrypoint}' is not there{place}, though installing succeeded.",
            hint="'entrypoint' must be the name of a command that is installed, or its path.",
        )
    candidate, failure = trials[0].candidate, trials[0].failure
    message = f"{environment.name}: '{candidate.path}' is installed, but doesn't work: {_ended(failure)}"
    culprit = _culprit(harness, candidate, environment, around, home)
    if culprit is not None:
        return SetUpError(message, hint=culprit)
    hints = []
    if seal is not None:
        hints += [f"Not sealed: '{item.path}': {item.reason}." for item in seal.failures[:_SHOWN]]
        hints.append(f"Ask: capsule why {candidate.path} {environment.name}")
    return SetUpError(message, hint="\n".join(hints) or None)


def _ended(failure: str) -> str:
    """Return a failure as a sentence; what a program printed is left as it is."""
    return failure if "\n" in failure else f"{failure}."


def _on_path(harness: Harness, around: Surroundings) -> str:
    path = around.variables.get("PATH", "")
    return "" if "/" in harness.entrypoint else f" in the image's PATH, '{path}'"


def _reasons(
    outcome: Outcome, around: Surroundings, unsealed: Sequence[str], *, knows_files: bool
) -> Iterator[str]:
    """Yield what may be behind a failed install command, the surest first.

    Args:
        outcome: How it ended.
        around: What it met.
        unsealed: As for `install_error`.
        knows_files: Whether it is said already which file of certificates isn't there.
    """
    if outcome.code in _KILLED:
        yield (
            "It was killed (SIGKILL): memory ran out, the machine's or what the container may have; or the "
            "container was stopped."
        )
    named = [path for path in unsealed if path in outcome.said or path.rpartition("/")[2] in outcome.said]
    if named:
        yield (
            "It started a program that it had just put there, and that can't start here before it is sealed: "
            f"{', '.join(named[:_SHOWN])}. What a package brings along is sealed before its scripts run, "
            "what they fetch is not. Install it elsewhere, and upload it."
        )
    if _UNTRUSTED.search(outcome.said):
        if not knows_files:
            yield (
                "A certificate isn't trusted. Name a file of certificates in 'install_env', as "
                "NODE_EXTRA_CA_CERTS for npm, PIP_CERT for pip, SSL_CERT_FILE for uv. "
                "It is a path in the container: copy the file there first."
            )
    elif _UNREACHABLE.search(outcome.said):
        yield f"The package registry can't be reached. {OFFLINE_WAYS}"
    elif _NOTHING_FOUND in outcome.said:
        yield f"The package registry doesn't have it, or can't be reached. {OFFLINE_WAYS}"
    astray = [name for name in around.variables if name not in _EMPTY and around.variables[name]]
    if astray:
        yield f"The environment sets {_listed(around.variables, astray)}, which may be the reason."


def _missing_files(harness: Harness, environment: Environment) -> Iterator[str]:
    """Yield a sentence for each file of certificates that `install_env` names and the environment lacks."""
    named = {name: harness.install_env[name] for name in _CERTIFICATES if harness.install_env.get(name)}
    if not named:
        return
    try:
        result = environment.run([SHELL, "-c", _UNREADABLE, "look", *named.values()], timeout=_LOOK_SECONDS)
    except (CommandError, ProgramMissingError):
        # What it is about is the command; that nothing can be looked at there adds nothing.
        return
    missing = result.text.splitlines()
    for name, path in named.items():
        if path in missing:
            yield (
                f"'install_env' sets {name}='{path}', and {environment.name} has no such file that can be "
                "read. It is a path in the container: copy the file there first."
            )


def _culprit(
    harness: Harness,
    candidate: Candidate,
    environment: Environment,
    around: Surroundings,
    home: str | None,
) -> str | None:
    """Return a sentence about the variable because of which a check fails; `None` where it is none."""
    changes: dict[str, str] = {
        name: "" for name, value in around.variables.items() if value and name not in _EMPTY
    }
    if home is not None and not around.has_home:
        changes["HOME"] = home
    if not around.variables.get("PATH"):
        changes["PATH"] = _SYSTEM_PATH
    tries = [{name: value} for name, value in changes.items()]
    if len(changes) > 1:
        tries.append(changes)
    for env in tries:
        if failure_of(harness, candidate, environment, env) is None:
            names = ", ".join(env)
            if set(env) <= _EMPTY:
                return f"It works once {names} is set to what can be used, as to {_listed(env, list(env))}."
            return (
                f"It is because of {_listed(around.variables, list(env))} in the environment: without that "
                f"the check succeeds. Take {names} out of the container's configuration."
            )
    return None


def _listed(values: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(f"{name}='{values.get(name, '')}'" for name in names)
