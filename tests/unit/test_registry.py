from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime.errors import ContractError, InputError, UsageError
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import (
    Registry,
    RegistryError,
    RevokedError,
    check_tag,
    load_registry,
)

if TYPE_CHECKING:
    from pathlib import Path

MUSL = Platform("x86_64", "musl")
GLIBC = Platform("x86_64", "glibc")
TAG = "node24-v1"


def lock() -> dict[str, Any]:
    """A registry lock with one tag and two variants, the second one revoked."""
    root = "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64"
    return {
        "schema_version": "agentcompass.capsule-registry.v1",
        "capsules": {
            TAG: {
                "runtime": {"id": "node24", "version": "24.19.0"},
                "tools": ["node", "npm", "npx", "seal-tree"],
                "variants": {
                    "linux-x86_64-musl": {
                        "filename": "node24-v1-linux-x86_64-musl.tar.gz",
                        "sha256": "ab" * 32,
                        "size": 123,
                        "install_root": f"{root}-musl",
                        "urls": ["https://example.org/node24-v1-linux-x86_64-musl.tar.gz"],
                        "revoked": None,
                    },
                    "linux-x86_64-glibc": {
                        "filename": "node24-v1-linux-x86_64-glibc.tar.gz",
                        "sha256": "cd" * 32,
                        "size": 456,
                        "install_root": f"{root}-glibc",
                        "urls": [],
                        "revoked": "its npm had a flaw",
                    },
                },
            }
        },
    }


def read(document: object) -> Registry:
    return Registry.from_bytes(json.dumps(document).encode())


def put(path: str, value: object) -> dict[str, Any]:
    """The lock with one value changed; the path counts from the tag, or from the top with a slash first."""
    document = lock()
    place: Any = document if path.startswith("/") else document["capsules"][TAG]
    *folders, last = path.strip("/").split("/")
    for name in folders:
        place = place[name]
    place[last] = value
    return document


def test_a_tag_and_a_platform_give_a_variant() -> None:
    found = read(lock()).resolve(TAG, MUSL)
    assert found.variant.filename == "node24-v1-linux-x86_64-musl.tar.gz"
    assert found.variant.sha256 == "ab" * 32
    assert found.variant.size == 123
    assert found.variant.urls == ("https://example.org/node24-v1-linux-x86_64-musl.tar.gz",)
    assert found.capsule.tools == ("node", "npm", "npx", "seal-tree")
    assert (found.capsule.runtime_id, found.capsule.runtime_version) == ("node24", "24.19.0")
    assert (found.tag, found.platform) == (TAG, MUSL)


def test_a_revoked_variant_is_refused_with_its_reason() -> None:
    with pytest.raises(RevokedError, match="its npm had a flaw") as caught:
        read(lock()).resolve(TAG, GLIBC)
    assert isinstance(caught.value, InputError)


def test_an_unknown_tag_lists_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"no capsule 'node22-v1'(?s:.*)node24-v1"):
        read(lock()).resolve("node22-v1", MUSL)


def test_an_unknown_platform_lists_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"linux-aarch64-musl(?s:.*)linux-x86_64-glibc, linux-x86_64-musl"):
        read(lock()).resolve(TAG, Platform("aarch64", "musl"))


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(UsageError, match="none"):
        Registry({}).resolve(TAG, MUSL)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("https://example.org/node24-v1", "a URL"),
        ("oci://example.org/node24-v1", "a URL"),
        ("file:///tmp/x", "a URL"),
        ("/tmp/node24-v1", "a path"),
        ("./node24-v1", "a path"),
        ("../node24-v1", "a path"),
        ("~/node24-v1", "a path"),
        (".", "a path"),
        ("dist\\node24-v1", "a path"),
        ("node24-v1-linux-x86_64-musl.tar.gz", "a path"),
        ("registry.lock.json", "a path"),
        ("example.org/node24:v1", "an OCI reference"),
        ("node24:v1", "an OCI reference"),
        ("node24@sha256:" + "ab" * 32, "an OCI reference"),
        ("library/node24-v1", "a path or an OCI reference"),
        ("node24", "not a tag"),
        ("node24-v0", "not a tag"),
        ("python3.12-v1", "not a tag"),
        ("node24-v01", "not a tag"),
        ("Node24-v1", "not a tag"),
        ("node24-v1 ", "not a tag"),
        ("node24-v1\n", "not a tag"),
        ("", "not a tag"),
        ("-v1", "not a tag"),
    ],
)
def test_what_is_not_a_tag_is_refused_for_what_it_is(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(lock()).resolve(text, MUSL)
    assert re.search(f" is {what}[,.]", caught.value.message)
    assert caught.value.hint == f"Tags: {TAG} ('capsule tags' lists them)."
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("tag", ["node24-v1", "python312-v1", "python312-node24-v12"])
def test_tags_are_taken(tag: str) -> None:
    check_tag(tag)


def test_bytes_are_stable_and_sorted() -> None:
    document = lock()
    data = read(document).to_bytes()
    assert data == (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    assert Registry.from_bytes(data).to_bytes() == data
    shuffled = {key: document[key] for key in reversed(document)}
    shuffled["capsules"][TAG]["variants"] = dict(reversed(document["capsules"][TAG]["variants"].items()))
    shuffled["capsules"][TAG]["tools"].reverse()
    assert read(shuffled).to_bytes() == data


V = "variants/linux-x86_64-musl"


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("/schema_version", "agentcompass.capsule-registry.v2", "schema_version"),
        ("/capsules", [], "capsules"),
        ("/extras", {}, "extras"),
        ("runtime", "node24", "runtime"),
        ("runtime/id", "Node 24", "runtime.id"),
        ("runtime/version", "22.1.0", "runtime.version"),
        ("runtime/version", 24, "runtime.version"),
        ("tools", "node", "tools"),
        ("tools", ["node", 1], "tools"),
        ("tools", ["node", "npm", "npx"], "seal-tree"),
        ("tools", ["node", "node", "npm", "npx", "seal-tree"], "twice"),
        ("urls", [], "urls"),
        ("variants", [], "variants"),
        ("variants/linux-x86_64", {}, "linux-x86_64"),
        ("variants/linux-riscv64-musl", {}, "riscv64"),
        (V, [], "linux-x86_64-musl"),
        (f"{V}/mirror", "x", "mirror"),
        (f"{V}/filename", "../x.tar.gz", "../x.tar.gz"),
        (f"{V}/filename", "/x.tar.gz", "/x.tar.gz"),
        (f"{V}/filename", ".tar.gz", ".tar.gz"),
        (f"{V}/filename", "x.zip", "x.zip"),
        (f"{V}/filename", "a\n.tar.gz", "file name"),
        (f"{V}/filename", "n" * 300 + ".tar.gz", "file name"),
        (f"{V}/filename", "node24-v1-linux-x86_64-glibc.tar.gz", "file name"),
        (f"{V}/filename", "NODE24-v1-linux-x86_64-glibc.tar.gz", "file name"),
        (f"{V}/sha256", "ab" * 31, "SHA-256"),
        (f"{V}/sha256", "AB" * 32, "SHA-256"),
        (f"{V}/sha256", "ab" * 32 + "\n", "SHA-256"),
        (f"{V}/sha256", None, "sha256"),
        (f"{V}/size", 0, "0 bytes"),
        (f"{V}/size", -1, "-1 bytes"),
        (f"{V}/size", "123", "size"),
        (f"{V}/size", 1.5, "size"),
        (f"{V}/size", True, "size"),
        (f"{V}/install_root", "/tmp/x", "install root"),
        (f"{V}/install_root", "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-glibc", "install root"),
        (f"{V}/urls", "https://example.org/x", "urls"),
        (f"{V}/urls", ["ftp://example.org/x"], "ftp://"),
        (f"{V}/urls", ["file:///etc/passwd"], "file://"),
        (f"{V}/urls", ["https:///x"], "https:///x"),
        (f"{V}/urls", ["https://user:secret@example.org/x"], "user"),
        (f"{V}/urls", ["https://example.org/a b"], "URL"),
        (f"{V}/urls", ["https://example.org/x#y"], "URL"),
        (f"{V}/urls", ["https://example.org:99999/x"], "URL"),
        (f"{V}/urls", ["https://[::1/x"], "URL"),
        (f"{V}/urls", ["https://a/x", "https://a/x"], "twice"),
        (f"{V}/revoked", "", "reason"),
        (f"{V}/revoked", "a\nb", "reason"),
        (f"{V}/revoked", False, "revoked"),
    ],
)
def test_a_wrong_value_is_named(path: str, value: object, names: str) -> None:
    with pytest.raises(RegistryError) as caught:
        read(put(path, value))
    assert names in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("key", ["filename", "sha256", "size", "install_root", "urls", "revoked"])
def test_a_missing_value_is_named(key: str) -> None:
    document = lock()
    del document["capsules"][TAG]["variants"]["linux-x86_64-musl"][key]
    with pytest.raises(RegistryError, match=f"lacks '{key}'"):
        read(document)


def test_a_key_that_is_no_tag_is_refused() -> None:
    document = lock()
    document["capsules"]["node24"] = document["capsules"].pop(TAG)
    with pytest.raises(RegistryError, match="'node24' is not a tag"):
        read(document)


@pytest.mark.parametrize("name", ["x\ny", "\x1b[31m", "a" * 5000, "\u202e"])
def test_hostile_keys_are_shown_escaped(name: str) -> None:
    for path in (f"/capsules/{name}", f"variants/{name}", f"variants/linux-{name}-musl", name, f"{V}/{name}"):
        with pytest.raises(RegistryError) as caught:
            read(put(path, {}))
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 600


def test_two_tags_can_not_share_a_file_name() -> None:
    document = lock()
    document["capsules"]["node24-v2"] = copy.deepcopy(document["capsules"][TAG])
    with pytest.raises(RegistryError, match="as has node24-v1"):
        read(document)


def test_a_duplicate_key_is_refused() -> None:
    data = json.dumps(lock()).replace('"size": 123', '"size": 123, "size": 124').encode()
    with pytest.raises(RegistryError, match="'size' stands twice"):
        Registry.from_bytes(data)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "registry.lock.json"
    with pytest.raises(UsageError, match=r"registry\.lock\.json"):
        load_registry(path)
    path.write_bytes(b"{}")
    with pytest.raises(RegistryError, match=r"registry\.lock\.json.*schema_version"):
        load_registry(path)
    path.write_bytes(read(lock()).to_bytes())
    assert load_registry(path) == read(json.loads(path.read_bytes()))


@given(st.text(max_size=40))
def test_any_text_is_a_tag_or_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Registry({}).resolve(text, MUSL)
    assert caught.value.message.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_contract_error(data: bytes) -> None:
    with pytest.raises(ContractError):
        Registry.from_bytes(data)
