from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime.errors import ContractError
from capsule_build.runtime.manifest import Manifest, ManifestError
from capsule_build.runtime.platforms import Platform
from tests.bundles import manifest

DESIGNED = b"""{
  "schema_version": "agentcompass.capsule.v1",
  "runtime": {
    "id": "node24",
    "version": "24.19.0"
  },
  "platform": {
    "os": "linux",
    "architecture": "x86_64",
    "libc": "musl"
  },
  "install_root": "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-musl",
  "launcher": "bin/capsule-exec",
  "tools": {
    "node": "bin/node",
    "npm": "bin/npm",
    "npx": "bin/npx",
    "seal-tree": "bin/seal-tree"
  }
}
"""


def read(document: object) -> Manifest:
    return Manifest.from_bytes(json.dumps(document).encode())


def runtime(runtime_id: str, version: str, *tools: str) -> dict[str, object]:
    """A manifest of another runtime, its install root to match."""
    return manifest(
        runtime={"id": runtime_id, "version": version},
        install_root=f"/tmp/agentcompass-capsules/{runtime_id}-{version}-linux-x86_64-musl",
        tools={tool: f"bin/{tool}" for tool in tools},
    )


NODE = ("node", "npm", "npx", "seal-tree")
PYTHON = ("python", "python3", "pip", "seal-tree")
BOTH = (*NODE, *PYTHON, "uv", "uvx")


def test_the_spelling_is_the_one_of_the_specification() -> None:
    assert Manifest.from_bytes(DESIGNED).to_bytes() == DESIGNED


def test_tools_are_sorted_whatever_their_order_was() -> None:
    read_back = read(manifest(tools={name: f"bin/{name}" for name in reversed(NODE)}))
    assert read_back.to_bytes() == DESIGNED


def test_what_is_written_reads_the_same() -> None:
    first = read(runtime("python3.12-node24", "3.12.10-24.19.0", *BOTH))
    assert Manifest.from_bytes(first.to_bytes()) == first
    assert first.platform == Platform("x86_64", "musl")


@pytest.mark.parametrize(
    ("runtime_id", "version", "tools"),
    [
        ("node24", "24.0.0", NODE),
        ("node26", "26.1.0", NODE),
        ("python3.12", "3.12.10", PYTHON),
        ("python3.13", "3.13.0", PYTHON),
        ("python3.12-node24", "3.12.10-24.19.0", BOTH),
        ("python3.12-node24", "3.12.10-24.19.0-uv0.11.1", BOTH),
        ("deno", "2.1.0", ("deno", "seal-tree")),
        ("node24-yarn", "24.19.0-4.1.0", (*NODE, "yarn")),
    ],
)
def test_runtimes_that_can_be(runtime_id: str, version: str, tools: tuple[str, ...]) -> None:
    assert set(read(runtime(runtime_id, version, *tools)).tools) == set(tools)


@pytest.mark.parametrize(
    ("runtime_id", "version", "tools", "names"),
    [
        ("node24", "22.1.0", NODE, "runtime.version"),
        ("node24", "24.19", NODE, "runtime.version"),
        ("node24", "24.19.0-uv0.11.1", NODE, "runtime.version"),
        ("node24", "v24.19.0", NODE, "runtime.version"),
        ("node24", "", NODE, "runtime.version"),
        ("node24", "24.19.0/..", NODE, "runtime.version"),
        ("python3.12", "3.13.1", PYTHON, "runtime.version"),
        ("python3.12", "3x12.1", PYTHON, "runtime.version"),
        ("python3.12-node24", "24.19.0-3.12.10", BOTH, "runtime.version"),
        ("python3.12-node24", "3.12.10", BOTH, "runtime.version"),
        ("Node24", "24.19.0", NODE, "runtime.id"),
        ("../node24", "24.19.0", NODE, "runtime.id"),
        ("", "24.19.0", NODE, "runtime.id"),
        ("n" * 65, "24.19.0", NODE, "runtime.id"),
        ("node24", "24.19.0", NODE[1:], "node is missing"),
        ("node24", "24.19.0", NODE[:3], "seal-tree"),
        ("node24", "24.19.0", (*NODE, "claude"), "claude is too much"),
        ("python3.12", "3.12.10", (*PYTHON, "uv"), "uv is too much"),
        ("python3.12-node24", "3.12.10-24.19.0", BOTH[:-1], "uvx is missing"),
        ("deno", "2.1.0", ("deno",), "seal-tree"),
        ("deno", "2.1.0", ("de/no", "seal-tree"), "de/no"),
        ("deno", "2.1.0", ("", "seal-tree"), "tools"),
    ],
)
def test_runtimes_that_can_not_be(runtime_id: str, version: str, tools: tuple[str, ...], names: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(runtime(runtime_id, version, *tools))
    assert names in str(caught.value)
    assert caught.value.exit_code == 5


PATHS = (
    "/bin/x",
    "",
    ".",
    "..",
    "../x",
    "bin/../../x",
    "bin//x",
    "bin/",
    "bin\\x",
    "bin/\n",
    "bin/\0",
    "b" * 2000,
)


@pytest.mark.parametrize("path", PATHS)
def test_paths_stay_below_the_install_root(path: str) -> None:
    with pytest.raises(ManifestError, match="launcher"):
        read(manifest(launcher=path))
    tools = {name: f"bin/{name}" for name in NODE} | {"npm": path}
    with pytest.raises(ManifestError, match=r"tools\.npm"):
        read(manifest(tools=tools))


@pytest.mark.parametrize(
    "field", ["schema_version", "runtime", "platform", "install_root", "launcher", "tools"]
)
def test_a_missing_field_is_named(field: str) -> None:
    document = manifest()
    del document[field]
    with pytest.raises(ManifestError, match=f"lacks '{field}'"):
        read(document)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"harness": "claude-code"}, "harness"),
        ({"entry_point": "bin/claude"}, "entry_point"),
        ({"schema_version": "agentcompass.capsule.v2"}, "schema_version"),
        ({"schema_version": 1}, "schema_version"),
        ({"runtime": {"id": "node24"}}, "runtime.version"),
        ({"runtime": {"id": "node24", "version": "24.19.0", "harness": "x"}}, "runtime.harness"),
        ({"runtime": "node24"}, "runtime"),
        ({"runtime": {"id": "node24", "version": 24}}, "runtime.version"),
        ({"platform": {"os": "linux", "architecture": "x86_64"}}, "platform.libc"),
        ({"platform": {"os": "windows", "architecture": "x86_64", "libc": "musl"}}, "windows"),
        ({"platform": {"os": "linux", "architecture": "amd64", "libc": "musl"}}, "amd64"),
        ({"platform": {"os": "linux", "architecture": "x86_64", "libc": "bionic"}}, "bionic"),
        ({"platform": {"os": "linux", "architecture": ["x86_64"], "libc": "musl"}}, "platform.architecture"),
        ({"platform": "linux-x86_64-musl"}, "platform"),
        ({"install_root": "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-glibc"}, "install_root"),
        ({"install_root": "/opt/node24"}, "install_root"),
        ({"install_root": None}, "install_root"),
        ({"launcher": 1}, "launcher"),
        ({"launcher": True}, "launcher"),
        ({"tools": ["node"]}, "tools"),
        ({"tools": {"node": None}}, "tools.node"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], names: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read(manifest(**changes))
    assert names in str(caught.value)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (b'"x"', "not an object"),
        (DESIGNED + b"x", "not JSON"),
        (
            DESIGNED.replace(b'"npm": "bin/npm"', b'"npm": "bin/npm", "npm": "bin/other"'),
            "'npm' stands twice",
        ),
        (DESIGNED.replace(b'"launcher"', b'"launcher": "bin/x", "launcher"'), "'launcher' stands twice"),
        (DESIGNED.replace(b'"bin/capsule-exec"', b"NaN"), "NaN"),
        (DESIGNED.replace(b'"bin/capsule-exec"', b"-Infinity"), "Infinity"),
        (DESIGNED.replace(b"bin/capsule-exec", b"bin/\xff"), "UTF-8"),
        (DESIGNED.replace(b"bin/capsule-exec", b"bin/\\ud800"), "UTF-8"),
        (b"\xef\xbb\xbf" + DESIGNED, "not JSON"),
        (DESIGNED.decode().encode("utf-16"), "UTF-8"),
        (DESIGNED.replace(b'"bin/capsule-exec"', b"9" * 5000), "too many digits"),
        (b"[" * 100_000, "too deeply"),
    ],
)
def test_json_that_two_readers_could_read_differently_is_refused(data: bytes, names: str) -> None:
    with pytest.raises(ManifestError) as caught:
        Manifest.from_bytes(data)
    assert names in str(caught.value)


def test_what_can_not_be_read_can_not_be_made_either() -> None:
    good = Manifest.from_bytes(DESIGNED)
    good.check()
    with pytest.raises(ManifestError, match="install_root"):
        replace(good, runtime_version="24.18.0").check()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_contract_error(data: bytes) -> None:
    with pytest.raises(ContractError):
        Manifest.from_bytes(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(manifest())), value=json_values)
def test_any_value_of_a_field_is_refused_or_right(field: str, value: object) -> None:
    document = manifest(**{field: value})
    try:
        result = read(document)
    except ManifestError:
        return
    assert json.loads(result.to_bytes()) == document


@given(st.text())
def test_hostile_text_is_shown_escaped(text: str) -> None:
    for changes in (
        {text: 1},
        {"launcher": f"/{text}"},
        {"install_root": f"/{text}"},
        {"platform": {"os": "linux", "architecture": f"{text}!", "libc": "musl"}},
        {"tools": {f"{text}/": "bin/x"}},
        {"runtime": {"id": f"{text}!", "version": "1"}},
    ):
        with pytest.raises(ManifestError) as caught:
            read({**manifest(), **changes})
        assert caught.value.message.isprintable()
