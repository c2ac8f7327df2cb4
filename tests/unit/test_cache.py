from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_build.fetch.cache import Cache, default_root
from capsule_build.fetch.transfer import StorageError, WrongFileError

DATA = b"an input"
DIGEST = hashlib.sha256(DATA).hexdigest()
REPOSITORY = Path(__file__).parents[2]


def filled(root: Path, data: bytes = DATA) -> Cache:
    cache = Cache(root)
    with cache.stage() as folder:
        (folder / "file").write_bytes(data)
        cache.adopt(folder / "file", hashlib.sha256(data).hexdigest(), len(data))
    return cache


def test_an_adopted_file_is_found_by_its_digest(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    path = cache.get(DIGEST, len(DATA))
    assert path == tmp_path / "sha256" / DIGEST
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o444
    assert cache.get(DIGEST, None) == path
    assert cache.get("0" * 64, None) is None


@pytest.mark.parametrize("size", [len(DATA), None])
def test_what_has_another_digest_never_gets_its_name(tmp_path: Path, size: int | None) -> None:
    cache = Cache(tmp_path)
    with cache.stage() as folder:
        (folder / "file").write_bytes(b"AN INPUT")
        with pytest.raises(WrongFileError, match=f"instead of {DIGEST}"):
            cache.adopt(folder / "file", DIGEST, size)
    assert cache.entries() == []


def test_what_has_another_size_never_gets_its_name(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.stage() as folder:
        (folder / "file").write_bytes(DATA)
        with pytest.raises(WrongFileError, match="has 8 bytes instead of 9"):
            cache.adopt(folder / "file", DIGEST, 9)
    assert cache.entries() == []


@pytest.mark.parametrize("poison", [b"AN INPUT", b"short", b""])
def test_a_poisoned_file_is_removed_and_said(tmp_path: Path, poison: bytes) -> None:
    cache = filled(tmp_path)
    cache.path(DIGEST).chmod(0o644)
    cache.path(DIGEST).write_bytes(poison)
    said: list[str] = []
    assert cache.get(DIGEST, len(DATA), say=said.append) is None
    assert not cache.path(DIGEST).exists()
    assert len(said) == 1
    assert "not what its name says" in said[0]


def test_a_symlink_or_a_folder_in_a_files_place_is_not_trusted(tmp_path: Path) -> None:
    cache = filled(tmp_path / "cache")
    (tmp_path / "outside").write_bytes(DATA)
    cache.path(DIGEST).unlink()
    cache.path(DIGEST).symlink_to(tmp_path / "outside")
    assert cache.get(DIGEST, len(DATA)) is None
    assert (tmp_path / "outside").read_bytes() == DATA
    cache.path(DIGEST).mkdir()
    (cache.path(DIGEST) / "inner").touch()
    assert cache.get(DIGEST, None) is None
    assert not cache.path(DIGEST).exists()


def test_only_a_digest_is_a_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a SHA-256"):
        Cache(tmp_path).path("../../etc/passwd")


def test_a_staging_folder_is_empty_private_and_gone_afterwards(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.stage() as first, cache.stage() as second:
        assert first != second
        assert list(first.iterdir()) == []
        assert first.parent == tmp_path / "staging"
        (first / "sealed").mkdir()
        (first / "sealed" / "file").touch()
        (first / "sealed").chmod(0o555)
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_staging_folder_is_gone_after_an_interrupt(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def interrupted() -> None:
        with cache.stage() as folder:
            (folder / "half").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / "staging").iterdir()) == []


def test_what_a_killed_process_left_is_cleaned_and_what_a_live_one_has_is_kept(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from capsule_build.fetch.cache import Cache\n"
        "with Cache(Path(sys.argv[1])).stage() as folder:\n"
        "    (folder / 'half').write_bytes(b'x'); print(folder, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        left = Path(child.stdout.readline().strip())
        cache = Cache(tmp_path)
        with cache.stage():
            assert (left / "half").exists()
        child.kill()
        child.wait()
        with cache.stage() as mine:
            assert not left.exists()
            assert mine.exists()
    assert list((tmp_path / "staging").iterdir()) == []


def test_prune_removes_what_is_not_kept(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    filled(tmp_path, b"another")
    (tmp_path / "sha256" / "notes.txt").write_text("not ours")
    assert len(cache.entries()) == 2
    assert [entry.size for entry in cache.prune({DIGEST}, dry_run=True)] == [7]
    assert len(cache.entries()) == 2
    cache.prune({DIGEST})
    assert [entry.sha256 for entry in cache.entries()] == [DIGEST]
    cache.prune(set())
    assert cache.entries() == []
    assert (tmp_path / "sha256" / "notes.txt").exists()


def test_an_unwritable_cache_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="CAPSULE_CACHE_DIR"), Cache(tmp_path / "file").stage():
        pytest.fail("no staging folder can be there")
    assert Cache(tmp_path / "file").get(DIGEST, None) is None


def test_the_caches_place_follows_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CAPSULE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".cache" / "capsule-build"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_root() == tmp_path / ".cache" / "capsule-build"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg" / "capsule-build"
    monkeypatch.setenv("CAPSULE_CACHE_DIR", str(tmp_path / "own"))
    assert Cache().root == tmp_path / "own"
