"""The task bundles of the registry lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import capsule_build.runtime
from capsule_build.lock import check_lock, revoke, revoke_task, update_lock
from capsule_build.release.outputs import Outputs
from capsule_build.resources import registry_lock
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import Registry, RegistryError, RevokedError, Task, load_registry
from capsule_build.sandbox.guests import guest_of
from tests.locks import dist, lock
from tests.releases import TAG, lay
from tests.task_bundles import collected, lay_task
from tests.unit.test_registry import lock as capsules_lock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["dist", "lock"]

BASE = "https://example.org/tasks"
SCHEMA = Path(capsule_build.runtime.__file__).with_name("registry.schema.json")


def document() -> dict[str, Any]:
    """A lock with capsules and a task."""
    task = {
        "filename": "hello.wasm",
        "guest": {"language": "python", "sha256": "ab" * 32},
        "platform": "wasm32",
        "policy_sha256": "cd" * 32,
        "revoked": None,
        "sha256": "ef" * 32,
        "size": 123,
        "urls": [f"{BASE}/hello.wasm"],
        "version": "1.0.0",
    }
    return {**capsules_lock(), "tasks": {"hello": task}}


def read(value: object) -> Registry:
    return Registry.from_bytes(json.dumps(value).encode())


def test_a_lock_with_tasks_comes_back_as_it_is() -> None:
    registry = read(document())
    assert registry.task("hello").variant.version == "1.0.0"
    assert json.loads(registry.to_bytes()) == document()
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document())


def test_a_lock_without_tasks_has_the_bytes_that_it_had() -> None:
    assert read(capsules_lock()) == read({**capsules_lock(), "tasks": {}})
    assert b"tasks" not in read({**capsules_lock(), "tasks": {}}).to_bytes()
    shipped = registry_lock()
    assert load_registry(shipped).to_bytes() == shipped.read_bytes()


WRONG: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("tasks", lambda d: d.update(tasks=[])),
    ("is not a task's name", lambda d: d["tasks"].update({"../x": d["tasks"].pop("hello")})),
    ("more", lambda d: d["tasks"]["hello"].update(more=1)),
    ("lacks 'guest'", lambda d: d["tasks"]["hello"].pop("guest")),
    ("lacks 'revoked'", lambda d: d["tasks"]["hello"].pop("revoked")),
    ("platform", lambda d: d["tasks"]["hello"].update(platform="linux-x86_64-musl")),
    ("SHA-256", lambda d: d["tasks"]["hello"].update(sha256="AB" * 32)),
    ("SHA-256", lambda d: d["tasks"]["hello"].update(policy_sha256="")),
    ("SHA-256", lambda d: d["tasks"]["hello"]["guest"].update(sha256="x")),
    ("no guest for", lambda d: d["tasks"]["hello"]["guest"].update(language="perl")),
    ("more", lambda d: d["tasks"]["hello"]["guest"].update(more=1)),
    ("whole number", lambda d: d["tasks"]["hello"].update(size="123")),
    ("0 bytes", lambda d: d["tasks"]["hello"].update(size=0)),
    ("URL", lambda d: d["tasks"]["hello"].update(urls=["ftp://x/y"])),
    ("twice", lambda d: d["tasks"]["hello"].update(urls=[BASE, BASE])),
    ("one line", lambda d: d["tasks"]["hello"].update(revoked="")),
    ("one line", lambda d: d["tasks"]["hello"].update(version=" ")),
    ("plain file name", lambda d: d["tasks"]["hello"].update(filename="hello.tar.gz")),
]


@pytest.mark.parametrize(("names", "change"), WRONG)
def test_what_is_wrong_is_named_by_the_code_and_refused_by_the_schema(
    names: str, change: Callable[[dict[str, Any]], object]
) -> None:
    changed = document()
    change(changed)
    with pytest.raises(RegistryError, match=names):
        read(changed)
    assert not jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).is_valid(changed)


@pytest.mark.parametrize(
    ("names", "change"),
    [
        ("not 'hello.wasm'", lambda d: d["tasks"]["hello"].update(filename="other.wasm")),
        (
            "as has the task",
            lambda d: d["tasks"].update(HELLO={**d["tasks"]["hello"], "filename": "HELLO.wasm"}),
        ),
    ],
)
def test_rules_between_fields_are_the_codes(names: str, change: Callable[[dict[str, Any]], object]) -> None:
    changed = document()
    change(changed)
    with pytest.raises(RegistryError, match=names):
        read(changed)


def test_bundles_of_a_folder_get_into_the_lock(dist: Path, lock: Path) -> None:
    bundle = lay_task(dist, version="1.0.0")
    lay(dist, "musl")
    update = update_lock(lock, dist, base_urls=[BASE])
    assert [str(change.platform) for change in update.changes] == ["linux-x86_64-musl", "wasm32"]
    registry = load_registry(lock)
    assert set(registry.capsules) == {TAG}
    task = registry.task("hello").variant
    assert task == Task(
        filename="hello.wasm",
        sha256=Outputs(bundle).digest.read_text().split()[0],
        size=bundle.stat().st_size,
        version="1.0.0",
        language="python",
        guest_sha256=guest_of("python").sha256,
        policy_sha256=task.policy_sha256,
        urls=(f"{BASE}/hello.wasm",),
    )
    data = lock.read_bytes()
    assert update_lock(lock, dist).changes == ()
    assert check_lock(lock, dist).changes == ()
    assert lock.read_bytes() == data


def test_tasks_stay_when_capsules_change_and_the_reverse(dist: Path, lock: Path) -> None:
    lay_task(dist)
    update_lock(lock, dist)
    for path in dist.iterdir():
        path.unlink()
    lay(dist, "musl")
    update_lock(lock, dist)
    revoke(lock, TAG, Platform("x86_64", "musl"), "a flaw")
    registry = load_registry(lock)
    assert set(registry.tasks) == {"hello"}
    assert set(registry.capsules) == {TAG}


def test_a_changed_digest_has_to_be_meant(dist: Path, lock: Path) -> None:
    lay_task(dist)
    update_lock(lock, dist, base_urls=[BASE])
    data = lock.read_bytes()
    lay_task(dist, collected("def main(): return 2\n"))
    with pytest.raises(CapsuleError, match=r"would change .*\n  hello wasm32: "):
        update_lock(lock, dist)
    with pytest.raises(CapsuleError, match="is not what the bundles"):
        check_lock(lock, dist)
    assert lock.read_bytes() == data
    update_lock(lock, dist, replace_digests=True)
    assert load_registry(lock).task("hello").variant.urls == ()


def test_an_address_of_another_file_is_noticed(dist: Path, lock: Path) -> None:
    lay_task(dist)
    update_lock(lock, dist)
    registry = load_registry(lock)
    wrong = replace(registry.tasks["hello"], urls=(f"{BASE}/other.wasm",))
    lock.write_bytes(replace(registry, tasks={"hello": wrong}).to_bytes())
    with pytest.raises(CapsuleError, match="hello wasm32: the address"):
        check_lock(lock, dist)


def test_what_is_revoked_is_refused_and_stays_so(dist: Path, lock: Path) -> None:
    lay_task(dist)
    update_lock(lock, dist)
    assert revoke_task(lock, "hello", " it leaks ").revoked == "it leaks"
    with pytest.raises(RevokedError, match="it leaks"):
        load_registry(lock).task("hello")
    update_lock(lock, dist)
    assert load_registry(lock).tasks["hello"].revoked == "it leaks"
    with pytest.raises(UsageError, match="There is no task 'other'"):
        revoke_task(lock, "other", "x")


def test_what_does_not_belong_together_is_refused(dist: Path, lock: Path) -> None:
    outputs = Outputs(lay_task(dist))
    whole = {path: path.read_bytes() for path in (outputs.bundle, outputs.provenance, outputs.digest)}

    def fails(kind: type[CapsuleError], reason: str) -> None:
        with pytest.raises(kind, match=reason):
            update_lock(lock, dist)
        assert not lock.exists()
        for path, data in whole.items():
            path.write_bytes(data)

    outputs.provenance.unlink()
    fails(ContractError, "has no provenance")
    outputs.bundle.write_bytes(whole[outputs.bundle] + b"\0")
    fails(SignatureError, "is about another file")
    outputs.digest.write_text("0\n")
    fails(ContractError, "doesn't say what hello.wasm is")
    outputs.provenance.write_bytes(whole[outputs.provenance].replace(b'"hello.wasm"', b'"other.wasm"'))
    fails(SignatureError, r"is named other\.wasm in its provenance")
