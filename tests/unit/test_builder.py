"""Where a build runs, and from which commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.builder import LOCAL_BUILDER, Builder, builder_of, public_url, source_of
from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from pathlib import Path

ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_SERVER_URL": "https://git.example.org",
    "GITHUB_REPOSITORY": "owner/capsules",
    "GITHUB_WORKFLOW_REF": "owner/capsules/.github/workflows/release.yml@refs/tags/v1",
    "GITHUB_RUN_ID": "123",
    "GITHUB_RUN_ATTEMPT": "2",
}


def test_a_workflow_is_known_by_the_name_in_its_certificate() -> None:
    assert builder_of(ACTIONS) == Builder(
        "https://git.example.org/owner/capsules/.github/workflows/release.yml@refs/tags/v1",
        "https://git.example.org/owner/capsules/actions/runs/123/attempts/2",
    )


@pytest.mark.parametrize("missing", ["GITHUB_ACTIONS", "GITHUB_SERVER_URL", "GITHUB_WORKFLOW_REF"])
def test_anything_else_is_somebodys_machine(missing: str) -> None:
    assert builder_of({**ACTIONS, missing: ""}) == Builder(LOCAL_BUILDER, None)
    assert builder_of({}) == Builder(LOCAL_BUILDER, None)


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        ("https://git.example.org/a/b.git", "https://git.example.org/a/b.git"),
        ("https://user:secret@git.example.org/a/b", "https://git.example.org/a/b"),
        ("https://secret@git.example.org:8443/a/b?token=secret#secret", "https://git.example.org:8443/a/b"),
        ("ssh://git@git.example.org/a/b", "ssh://git.example.org/a/b"),
        ("git@git.example.org:a/b.git", "ssh://git.example.org/a/b.git"),
        ("/srv/repositories/b", None),
        ("../b", None),
        ("file:///srv/b", None),
        ("ext::sh -c secret", None),
        ("ext::secret", None),
        ("https://git.example.org/a b", None),
        ("https://git.example.org/\u00e4", None),
        ("https://[::1/a", None),
    ],
)
def test_a_remote_is_told_without_what_is_nobodys_business(remote: str, shown: str | None) -> None:
    assert public_url(remote) == shown


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return run(["git", "-C", str(folder), *who, *arguments]).text.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes" / "a.toml").write_text("a")
    (folder / "notes").write_text("not read by builds")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def test_a_checkout_is_known_by_its_commit(checkout: Path) -> None:
    source = source_of(checkout)
    assert source is not None
    assert source.commit == git(checkout, "rev-parse", "HEAD")
    assert (source.modified, source.repository) == (False, None)
    git(checkout, "remote", "add", "origin", "https://me:secret@git.example.org/a")
    assert source_of(checkout) != source


@pytest.mark.parametrize(
    ("name", "modified"), [("recipes/a.toml", True), ("recipes/new.toml", True), ("notes", False)]
)
def test_a_change_is_told_where_builds_read(checkout: Path, name: str, modified: bool) -> None:
    (checkout / name).write_text("changed")
    source = source_of(checkout)
    assert source is not None
    assert source.modified is modified


def test_a_folder_in_somebody_elses_repository_has_no_commit_of_its_own(
    checkout: Path, tmp_path: Path
) -> None:
    assert source_of(checkout / "recipes") is None
    assert source_of(tmp_path) is None
    assert source_of(None) is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert source_of(checkout) is None
