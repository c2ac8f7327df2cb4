from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from capsule_build.cli import bundles as commands
from capsule_build.inspection import Abi, abi_of, area_of, highest, inspect_bundle
from capsule_build.runtime.elf import Elf
from capsule_build.runtime.errors import ContractError, UsageError
from capsule_build.runtime.rules import BundleError
from capsule_build.sbom.reading import read_components
from tests.bundles import SBOM, Bundle, file, folder, small_bundle
from tests.elves import ElfSpec, make_elf
from tests.memory import peak_of

if TYPE_CHECKING:
    from pathlib import Path

ROOT = "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-musl"
NODE = make_elf(
    ElfSpec(
        interpreter=f"{ROOT}/abi/glibc/ld-linux-x86-64.so.2",
        needed=("libstdc++.so.6", "libc.so.6"),
        rpath=f"{ROOT}/abi/glibc",
        versions={
            "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.9", "GLIBC_PRIVATE"),
            "libstdc++.so.6": ("GLIBCXX_3.4.21", "GLIBCXX_3.4.9", "CXXABI_1.3.9"),
        },
    )
)
PRIVATE_LIBRARY = make_elf(
    ElfSpec(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.41", "GLIBC_ABI_DT_RELR")})
)
ADDON = make_elf(ElfSpec(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.34",)}))


def with_elves() -> Bundle:
    """The small bundle with ELF files in it: a big dynamic one, an addon, a static one, a broken one."""
    return (
        small_bundle()
        .replace(
            "bin/capsule-exec",
            file("bin/capsule-exec", make_elf(ElfSpec(type=2, dynamic=False)), executable=True),
        )
        .add(
            file("abi/glibc/libstdc++.so.6", PRIVATE_LIBRARY),
            folder("runtime"),
            folder("runtime/node"),
            file("runtime/node/node", NODE + bytes(5 << 20), executable=True),
            file("runtime/node/addon.node", ADDON),
            file("runtime/node/broken.so", b"\x7fELF broken"),
            file("runtime/node/empty", b""),
            file("runtime/node/short", b"\x7fE"),
        )
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "node24.tar.gz"
    path.write_bytes(with_elves().data())
    return path


def test_elf_files_are_told_with_abi_and_versions(bundle: Path) -> None:
    found = {item.name: item for item in inspect_bundle(bundle).elves}
    assert {name: item.abi for name, item in found.items()} == {
        "abi/glibc/libstdc++.so.6": Abi.GLIBC,
        "bin/capsule-exec": Abi.STATIC,
        "runtime/node/addon.node": Abi.GLIBC,
        "runtime/node/node": Abi.GLIBC,
    }
    assert found["runtime/node/node"].requires == {"CXXABI": "1.3.9", "GLIBC": "2.28", "GLIBCXX": "3.4.21"}
    assert found["runtime/node/node"].size == len(NODE) + (5 << 20)
    assert found["bin/capsule-exec"].requires == {}


def test_the_highest_version_of_all_counts_but_for_what_private_libraries_need(bundle: Path) -> None:
    (library,) = [item for item in inspect_bundle(bundle).elves if item.name.startswith("abi/")]
    assert library.requires == {"GLIBC": "2.41"}
    assert inspect_bundle(bundle).requires == {"CXXABI": "1.3.9", "GLIBC": "2.34", "GLIBCXX": "3.4.21"}


def test_a_broken_elf_file_does_not_hide_the_rest(bundle: Path) -> None:
    inspection = inspect_bundle(bundle)
    assert list(inspection.unreadable) == ["runtime/node/broken.so"]
    assert "cut off" in inspection.unreadable["runtime/node/broken.so"]
    assert len(inspection.elves) == 4


def test_sizes_count_regular_files_by_folder(bundle: Path) -> None:
    inspection = inspect_bundle(bundle)
    areas = {area.name: (area.files, area.size) for area in inspection.areas}
    assert areas["runtime/node"] == (5, len(NODE) + (5 << 20) + len(ADDON) + len(b"\x7fELF broken") + 2)
    assert set(areas) == {".", "abi/glibc", "abi/musl", "bin", "runtime/node", "share"}
    assert sum(size for _, size in areas.values()) == inspection.info.unpacked_bytes


@pytest.mark.parametrize(
    ("name", "area"),
    [
        ("agentcompass-capsule.json", "."),
        ("bin/node", "bin"),
        ("libexec/bash", "libexec"),
        ("abi/glibc/libc.so.6", "abi/glibc"),
        ("abi/etc/ld-musl-x86_64.path", "abi/etc"),
        ("runtime/node/lib/a/b", "runtime/node"),
        ("share/licenses/node.txt", "share"),
    ],
)
def test_areas(name: str, area: str) -> None:
    assert area_of(name) == area


LIBRARY = Elf(bits=64, byte_order="little", machine="x86_64", type="shared object", is_dynamic=True)


@pytest.mark.parametrize(
    ("name", "elf", "abi"),
    [
        ("bin/x", replace(LIBRARY, interpreter=f"{ROOT}/abi/musl/ld-musl-x86_64.so.1"), Abi.MUSL),
        ("bin/x", replace(LIBRARY, interpreter="/lib/ld-musl-aarch64.so.1", needed=("libc.so.6",)), Abi.MUSL),
        ("bin/x", replace(LIBRARY, interpreter="/lib64/ld-linux-x86-64.so.2"), Abi.GLIBC),
        ("bin/x", replace(LIBRARY, type="executable"), Abi.STATIC),
        ("bin/x", replace(LIBRARY, is_pie=True), Abi.STATIC),
        ("x.node", replace(LIBRARY, needed=("libstdc++.so.6", "libc.musl-x86_64.so.1")), Abi.MUSL),
        ("x.node", replace(LIBRARY, needed=("libstdc++.so.6", "libc.so")), Abi.MUSL),
        ("x.node", replace(LIBRARY, needed=(f"{ROOT}/abi/musl/libstdc++.so.6",)), Abi.MUSL),
        ("x.node", replace(LIBRARY, needed=(f"{ROOT}/abi/glibc/libstdc++.so.6",)), Abi.GLIBC),
        ("x.node", replace(LIBRARY, needed=("libstdc++.so.6", "libpthread.so.0")), Abi.GLIBC),
        ("x.node", replace(LIBRARY, versions={"ld-linux-x86-64.so.2": ("GLIBC_2.3",)}), Abi.GLIBC),
        ("abi/glibc/ld-linux-x86-64.so.2", replace(LIBRARY, soname="ld-linux-x86-64.so.2"), Abi.GLIBC),
        ("abi/glibc/libc.so.6", replace(LIBRARY, soname="libc.so.6"), Abi.GLIBC),
        ("abi/musl/ld-musl-x86_64.so.1", LIBRARY, Abi.MUSL),
        ("abi/musl/libgcc_s.so.1", replace(LIBRARY, soname="libgcc_s.so.1"), Abi.MUSL),
        ("lib/data.so", LIBRARY, Abi.NONE),
        ("lib/x.o", replace(LIBRARY, type="relocatable", is_dynamic=False), Abi.NONE),
    ],
)
def test_the_abi_follows_from_what_the_kernel_and_the_loader_read(name: str, elf: Elf, abi: Abi) -> None:
    assert abi_of(name, elf) is abi


def test_versions_are_compared_as_numbers() -> None:
    assert highest(["GLIBC_2.9", "GLIBC_2.28", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_3.0", "odd"]) == {
        "GCC": "3.0",
        "GLIBC": "2.28",
    }
    assert highest(["LIBSELINUX_1.0", "ZLIB_1.2.0", "OPENSSL_3.0.0"]) == {
        "LIBSELINUX": "1.0",
        "OPENSSL": "3.0.0",
        "ZLIB": "1.2.0",
    }
    assert highest([]) == {}


def test_components_carry_versions_and_licences(bundle: Path) -> None:
    assert [(part.name, part.version, part.licenses) for part in inspect_bundle(bundle).components] == [
        ("musl", "1.2.5", ("MIT",)),
        ("node", "24.19.0", ("MIT",)),
    ]


def test_a_licence_is_an_expression_an_id_or_a_name() -> None:
    licenses = [
        {"expression": "MIT OR Apache-2.0"},
        {"license": {"id": "Zlib"}},
        {"license": {"name": "Own"}},
    ]
    sbom = {**SBOM, "components": [{"name": "x", "licenses": licenses}]}
    assert read_components(sbom)[0].licenses == ("MIT OR Apache-2.0", "Zlib", "Own")


@pytest.mark.parametrize(
    "sbom",
    [
        {},
        {**SBOM, "specVersion": "1.4"},
        {**SBOM, "bomFormat": "SPDX"},
        {**SBOM, "components": {}},
        {**SBOM, "components": ["node"]},
        {**SBOM, "components": [{"version": "1"}]},
        {**SBOM, "components": [{"name": "x", "version": 1}]},
        {**SBOM, "components": [{"name": "x", "licenses": "MIT"}]},
        {**SBOM, "components": [{"name": "x", "licenses": [{"license": {}}]}]},
        {**SBOM, "components": [{"name": "x", "licenses": ["MIT"]}]},
    ],
)
def test_an_sbom_that_is_not_cyclonedx_is_refused(sbom: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(small_bundle(sbom=sbom).data())
    with pytest.raises(ContractError, match="SBOM"):
        inspect_bundle(path)


@pytest.mark.slow
def test_a_bad_bundle_is_not_inspected(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(with_elves().add(file("bin/NODE")).data())
    with pytest.raises(BundleError, match="duplicate"):
        inspect_bundle(path)


def test_a_large_elf_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    large = file("bin/large", NODE + os.urandom(20 << 20), executable=True)
    path.write_bytes(small_bundle().add(large).data())
    assert peak_of(lambda: inspect_bundle(path)) < 12 << 20


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    commands.register(made)
    return made


def run(app: typer.Typer, *arguments: object, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env=env, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_check_prints_facts_for_people(app: typer.Typer, bundle: Path) -> None:
    output = run(app, "check", bundle)
    assert f"{bundle} keeps the bundle contract" in output
    for fact in ("node24 24.19.0", "linux-x86_64-musl", ROOT, "node, npm, npx, seal-tree"):
        assert fact in output


def test_check_prints_json_for_machines(app: typer.Typer, bundle: Path) -> None:
    document = json.loads(run(app, "check", bundle, "--json"))
    info = inspect_bundle(bundle).info
    assert document["schema_version"] == "capsule-build.check.v1"
    assert document["ok"] is True
    assert (document["sha256"], document["bytes"], document["members"]) == (
        info.sha256,
        info.size,
        info.members,
    )


def test_inspect_prints_tables_for_people(app: typer.Typer, bundle: Path) -> None:
    lines = run(app, "inspect", bundle).splitlines()
    assert any(re.search(r"node\W+24\.19\.0\W+MIT", line) for line in lines)
    assert any(re.search(r"runtime/node\W+5\W+5\.2 MB", line) for line in lines)
    assert any(
        re.search(r"runtime/node/node\W+glibc\W+x86_64\W+CXXABI 1.3.9, GLIBC 2.28, GLIBCXX 3.4.21", line)
        for line in lines
    )
    assert any("broken runtime/node/broken.so" in line for line in lines)
    assert "its programs ask for: CXXABI 1.3.9, GLIBC 2.34, GLIBCXX 3.4.21. The capsule has" in lines[-1]


def test_inspect_prints_json_for_machines(app: typer.Typer, bundle: Path) -> None:
    output = run(app, "inspect", bundle, "--json")
    document = json.loads(output)
    assert document["schema_version"] == "capsule-build.inspection.v1"
    assert document["requires"] == {"CXXABI": "1.3.9", "GLIBC": "2.34", "GLIBCXX": "3.4.21"}
    assert document["components"][1] == {
        "name": "node",
        "version": "24.19.0",
        "licenses": ["MIT"],
        "ref": "node",
    }
    node = next(item for item in document["elf"] if item["name"] == "runtime/node/node")
    assert node["rpath"] == f"{ROOT}/abi/glibc"
    assert (node["abi"], node["needed"]) == ("glibc", ["libstdc++.so.6", "libc.so.6"])
    assert output == run(app, "inspect", bundle, "--json")


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_nothing_but_a_terminal_gets_colours(command: str, app: typer.Typer, bundle: Path) -> None:
    assert "\x1b" not in run(app, command, bundle)


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_no_color_is_respected_on_a_terminal(
    command: str, app: typer.Typer, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    coloured = run(app, command, bundle)
    assert "\x1b[" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.search(run(app, command, bundle))


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_errors_are_left_to_main(command: str, app: typer.Typer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        run(app, command, tmp_path / "missing.tar.gz")
