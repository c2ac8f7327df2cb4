from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest
import zstandard

from capsule_build.licence_texts import pack_texts
from capsule_build.runtime.errors import InputError
from tests import archives

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "python/PYTHON.json": b"{}",
    "python/licenses/LICENSE.zlib.txt": b"zlib's text\n",
    "python/licenses/LICENSE.bzip2.txt": b"bzip2's text\n",
    "python/install/lib/licenses/LICENSE.other.txt": b"not one of the texts\n",
}


def write_full_archive(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(zstandard.compress(archives.tar_bytes(files)))
    return path


def test_only_the_texts_are_taken_sorted_and_without_a_time(tmp_path: Path) -> None:
    archive = write_full_archive(tmp_path / "full.tar.zst", FILES)
    target = pack_texts(archive, tmp_path / "texts.tar")
    with tarfile.open(target) as packed:
        found = {item.name: (item.mtime, item.uid) for item in packed}
        reader = packed.extractfile("licenses/LICENSE.bzip2.txt")
        assert reader is not None
        assert reader.read() == b"bzip2's text\n"
    assert found == {"licenses/LICENSE.bzip2.txt": (0, 0), "licenses/LICENSE.zlib.txt": (0, 0)}
    assert list(found) == sorted(found)


def test_the_order_in_the_archive_doesnt_matter(tmp_path: Path) -> None:
    texts = [
        pack_texts(
            write_full_archive(tmp_path / f"{number}.tar.zst", dict(files)), tmp_path / f"{number}.tar"
        )
        for number, files in enumerate((FILES.items(), reversed(FILES.items())))
    ]
    assert texts[0].read_bytes() == texts[1].read_bytes()


def test_an_archive_without_texts_is_refused(tmp_path: Path) -> None:
    archive = write_full_archive(tmp_path / "full.tar.zst", {"python/PYTHON.json": b"{}"})
    with pytest.raises(InputError, match="no licence texts"):
        pack_texts(archive, tmp_path / "texts.tar")
    assert not (tmp_path / "texts.tar").exists()


@pytest.mark.parametrize("content", [b"", b"no zstd", b"\x28\xb5\x2f\xfd"])
def test_what_is_no_archive_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    archive = tmp_path / "full.tar.zst"
    archive.write_bytes(content)
    with pytest.raises(InputError, match=r"full\.tar\.zst"):
        pack_texts(archive, tmp_path / "texts.tar")


def test_a_cut_archive_is_an_error(tmp_path: Path) -> None:
    archive = write_full_archive(tmp_path / "full.tar.zst", FILES)
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(InputError, match="is damaged"):
        pack_texts(archive, tmp_path / "texts.tar")
