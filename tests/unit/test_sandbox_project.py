"""`capsule.toml`, `.env`, folders and mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule_build.sandbox.grants import Mount, close_folders, open_folders, read_mount
from capsule_build.sandbox.options import ConfigError, Folder
from capsule_build.sandbox.project import Project, load_project, variables


def write(folder: Path, text: str) -> str:
    (folder / "capsule.toml").write_text(text)
    return str(folder)


def test_a_project_has_defaults_and_an_entry_point(tmp_path: Path) -> None:
    text = (
        '[workflow]\nname = "W"\nversion = "1"\nentrypoint = "src/main.py"\n[tasks]\ndefault_ram = "64MB"\n'
        "[trace]\nenabled = true\n"
    )
    assert load_project(write(tmp_path, text)) == Project("src/main.py", {"ram": "64MB"}, "1", trace=True)


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert load_project(str(tmp_path)) == Project(None, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tasks]\ndefault_cpu = 1\n", "no key 'default_cpu'"),
        ("[tasks]\nram = '1MB'\n", "no key 'ram'"),
        ("[other]\n", "no key 'other'"),
        ("[workflow]\nentry = 'x'\n", "no key 'entry'"),
        ("[workflow]\nentrypoint = 5\n", "must be a text"),
        ("[tasks]\ndefault_ram = 'lots'\n", "must be a size"),
        ("tasks = 5\n", "must be a table"),
        ("[trace]\nfile = 'x'\n", "no key 'file'"),
        ("not toml", "is not TOML"),
        ("[trust]\n# public_key = 'key.pub.pem'\n", "nothing is asked for"),
        ("a = " + "[" * 20000, "nested too deeply"),
        ("#" * (1 + (1 << 20)), "has more than 1048576 bytes"),
    ],
)
def test_an_unknown_key_or_a_wrong_value_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_project(write(tmp_path, text))


@pytest.mark.parametrize("name", ["capsule.toml", ".env"])
def test_what_is_there_and_is_no_file_is_neither_passed_over_nor_waited_for(
    tmp_path: Path, name: str
) -> None:
    """Who asks for signatures by a link must not lose that with what it leads to."""
    path = tmp_path / name

    def read() -> None:
        load_project(str(tmp_path))
        variables(("CAPSULE_T_NONE",), str(tmp_path))

    for target in ("nowhere", name, "/dev/zero", None):
        if target is None:
            os.mkfifo(path)
        else:
            path.symlink_to(target)
        with pytest.raises(ConfigError, match=f"{name} can't be read"):
            read()
        path.unlink()
    read()
    for folder in ("a\0b", "\ud800"):
        with pytest.raises(ConfigError, match="can't be the name of a file"):
            load_project(folder)


def test_only_listed_variables_are_read_and_the_processs_own_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_T_A", "mine")
    monkeypatch.setenv("CAPSULE_T_SECRET", "no")
    lines = (
        "# x\nCAPSULE_T_A=theirs\nexport CAPSULE_T_B='b # c'\nCAPSULE_T_C = d # e\nCAPSULE_T_D=f\nnonsense\n"
    )
    (tmp_path / ".env").write_text(lines)
    names = ("CAPSULE_T_A", "CAPSULE_T_B", "CAPSULE_T_C", "CAPSULE_T_NONE")
    assert variables(names, str(tmp_path)) == {
        "CAPSULE_T_A": "mine",
        "CAPSULE_T_B": "b # c",
        "CAPSULE_T_C": "d",
    }


def test_a_folder_is_opened_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    opened = open_folders([Folder("./a/b", False)], [], working=str(tmp_path))
    assert [(folder.guest, folder.writable) for folder in opened] == [("/a/b", False)]
    assert os.path.samestat(os.fstat(opened[0].handle), (tmp_path / "a" / "b").stat())
    close_folders(opened)


def test_a_symlink_inside_is_followed_and_one_to_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work" / "real").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "work" / "inner").symlink_to("real")
    (tmp_path / "work" / "outer").symlink_to("../outside")
    close_folders(open_folders([Folder("inner", True)], [], working=str(tmp_path / "work")))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ConfigError, match="leads out of the working folder"):
        open_folders([Folder("inner", True), Folder("outer", True)], [], working=str(tmp_path / "work"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_that_is_missing_or_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no folder 'nope'"):
        open_folders([Folder("nope", True)], [], working=str(tmp_path))
    with pytest.raises(ConfigError, match="'file' is not a folder"):
        open_folders([Folder("file", True)], [], working=str(tmp_path))


def test_what_is_wrong_with_a_folder_names_who_asked_for_it_and_what_to_make(tmp_path: Path) -> None:
    made = f"Make it: mkdir -p {tmp_path.resolve()}/nope$"
    with pytest.raises(ConfigError, match=rf"(?s)^a.py, x: there is no folder './nope'\..*{made}"):
        open_folders([Folder("./nope", True)], [], working=str(tmp_path), where="a.py, x")
    with pytest.raises(
        ConfigError, match=rf"(?s)^The folders to mount: there is no folder './nope'\..*{made}"
    ):
        open_folders([], [Mount("./nope", "/nope", True)], working=str(tmp_path))


@pytest.mark.parametrize(
    "text", ["data::/d:r", "/tmp::/x:zz", "data:readonly", "data:", "data::/d:", "data:r0"]
)
def test_a_mistyped_mode_of_a_mount_grants_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match=r"behind the colon stands ro or rw"):
        read_mount(text)


def test_a_mount_as_other_programs_have_it_is_told_how_it_is_written_here() -> None:
    with pytest.raises(ConfigError) as caught:
        read_mount("data:/x")
    assert caught.value.hint == "A path for the task stands behind two colons: data::/x"
    for other in ("data:x", "data::/x:zz", ":/x"):
        with pytest.raises(ConfigError) as caught:
            read_mount(other)
        assert caught.value.hint is None


def test_mounts_have_a_host_a_guest_and_a_mode() -> None:
    assert read_mount("/a/b") == Mount("/a/b", "/b", True)
    assert read_mount("/a/b::/c/d:ro") == Mount("/a/b", "/c/d", False)
    assert read_mount("x:rw") == Mount("x", "/x", True)
    assert read_mount("x:read-only") == Mount("x", "/x", False)
    assert read_mount("a:b::/x:read-write") == Mount("a:b", "/x", True)
    assert read_mount("/a:b:ro") == Mount("/a:b", "/a:b", False)
    assert read_mount("/a\udcff::/x") == Mount("/a\udcff", "/x", True)
    for wrong in ("", "::/x", "/", "/a::/../x", "/a::/", "\ud800::/x", "/a\udcff", "/a::/\udcff", "a\0::/x"):
        with pytest.raises(ConfigError, match="must be HOST"):
            read_mount(wrong)
