"""Where a build runs, and from which source: what its record and provenance say of both.

In GitHub Actions the builder is the workflow, by the name that its signing certificate has too. Anywhere else
it is a person's machine, and nothing about that machine is told.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from .runtime.errors import CapsuleError
from .runtime.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOCAL_BUILDER: Final = "urn:agentcompass:capsule-build:builder:local"
_READ_BY_BUILDS: Final = ("capsule_build", "recipes", "templates", "native", "LICENSE")
_PUBLIC_SCHEMES: Final = ("https", "http", "ssh", "git")
_SCP_LIKE: Final = re.compile(r"(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^/:].*)")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_GIT_SECONDS: Final = 30


@dataclass(frozen=True)
class Builder:
    """What runs a build.

    Attributes:
        id: A URI: of the workflow, or `LOCAL_BUILDER`.
        invocation: The URI of the workflow's run; `None` for a local build.
    """

    id: str
    invocation: str | None


@dataclass(frozen=True)
class Source:
    """The commit of a checkout.

    Attributes:
        commit: The commit's full name, in lower-case hexadecimal.
        modified: Whether files that builds read differ from it.
        repository: The URL of the remote `origin`, without user or password; `None` where it has none that
            others could use.
    """

    commit: str
    modified: bool
    repository: str | None


def builder_of(environment: Mapping[str, str] = os.environ) -> Builder:
    """Return what runs builds here.

    The variables are those that GitHub documents for its Actions: they name the workflow file and the run.
    """
    server, workflow = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_WORKFLOW_REF")
    if environment.get("GITHUB_ACTIONS") != "true" or not server or not workflow:
        return Builder(LOCAL_BUILDER, None)
    invocation = None
    if environment.get("GITHUB_REPOSITORY") and environment.get("GITHUB_RUN_ID"):
        attempt = environment.get("GITHUB_RUN_ATTEMPT", "1")
        invocation = (
            f"{server}/{environment['GITHUB_REPOSITORY']}/actions/runs/{environment['GITHUB_RUN_ID']}"
            f"/attempts/{attempt}"
        )
    return Builder(f"{server}/{workflow}", invocation)


def source_of(checkout: Path | None) -> Source | None:
    """Return the commit that a checkout is at.

    Returns:
        `None` where there is no checkout, or it isn't the top of a git repository that git agrees to read.
    """
    if checkout is None:
        return None
    try:
        top = _git(checkout, "rev-parse", "--show-toplevel")
        commit = _git(checkout, "rev-parse", "--verify", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=normal", "--", *_READ_BY_BUILDS)
    except CapsuleError:
        return None
    if os.path.realpath(top) != os.path.realpath(checkout):
        return None
    return Source(commit=commit, modified=bool(changed), repository=_repository(checkout))


def _repository(checkout: Path) -> str | None:
    try:
        return public_url(_git(checkout, "remote", "get-url", "origin"))
    except CapsuleError:
        return None


def public_url(remote: str) -> str | None:
    """Return a remote's URL as others may see it.

    Args:
        remote: As git has it: a URL, or `host:path`, which means ssh.

    Returns:
        `None` for a path of this machine, or a URL of another kind.
    """
    if not _PRINTABLE.fullmatch(remote):
        return None
    if "://" not in remote:
        short = _SCP_LIKE.fullmatch(remote)
        return f"ssh://{short['host']}/{short['path']}" if short else None
    try:
        parts = urlsplit(remote)
    except ValueError:
        return None
    if parts.scheme not in _PUBLIC_SCHEMES or not parts.hostname:
        return None
    # A token can stand in the user's place or in a query.
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _git(folder: Path, *arguments: str) -> str:
    return run(["git", "-C", str(folder), *arguments], timeout=_GIT_SECONDS).text.strip()
