"""Task bundles where they are made and run: the real commands, in the real sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import capsule
from capsule_build.lock import revoke_task, update_lock
from capsule_build.release.outputs import Outputs
from capsule_build.runtime.process import run
from capsule_build.runtime.registry import Registry
from capsule_build.sandbox.artifact import pack, read_artifact
from capsule_build.sandbox.guests import Guest
from capsule_build.sbom import check_sbom
from tests.servers import body, serve
from tests.signing_keys import public
from tests.sigstore_instance import IDENTITY, ISSUER, running
from tests.task_bundles import new_key

from .tasks import CAPSULE, HEAD, Bench, last_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.runtime.process import Result

FILE = f"{HEAD}import helper\n@task(name='main')\ndef main(who='x'):\n    return helper.VALUE + who\n"


@pytest.fixture(scope="module", autouse=True)
def _local_builder() -> Iterator[None]:
    """In a workflow the builder is that, and not the local one that a key is trusted with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        yield


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A working folder with `hello.py`, packed and signed with a key."""
    made = Bench(tmp_path_factory.mktemp("shelf"))
    key, _ = new_key(made.folder / "keys")
    made.write("hello.py", FILE)
    made.write("helper.py", "VALUE = 'hello '\n")
    result = made.command("build", "hello.py", "--export", "--key", key)
    assert result.code == 0, result.error_text
    return made


@pytest.fixture
def signed(shelf: Bench, bench: Bench) -> Outputs:
    """A copy of it."""
    shutil.copytree(shelf.folder, bench.folder, dirs_exist_ok=True)
    return Outputs(bench.folder / "hello.wasm")


def executed(bench: Bench, *words: str | Path) -> Result:
    key = public(bench.folder / "keys" / "key.pem")
    return bench.command("exec", "hello.wasm", "you", "--public-key", key, *words)


def refused(result: Result, reason: str, code: int = 6) -> None:
    assert result.code == code, result.error_text
    assert result.stdout == b""
    assert reason in result.error_text
    assert "Traceback" not in result.error_text


def test_a_signed_bundle_runs_and_says_what_it_is(bench: Bench, signed: Outputs) -> None:
    assert all(path.is_file() for path in signed.released)
    check_sbom(signed.sbom.read_bytes())
    result = executed(bench)
    assert last_line(result)["result"] == "hello you"
    # It says nothing else, and needs none of it without a signature being asked for.
    assert result.stderr == b""
    for path in signed.released[1:]:
        path.unlink()
    assert last_line(bench.command("exec", "hello.wasm"))["result"] == "hello x"


def test_each_reason_to_refuse_is_told(bench: Bench, signed: Outputs) -> None:
    whole = {path: path.read_bytes() for path in signed.released}

    def again() -> None:
        for path, data in whole.items():
            path.write_bytes(data)

    changed = bytearray(whole[signed.bundle])
    changed[len(changed) // 2] ^= 1
    signed.bundle.write_bytes(changed)
    refused(executed(bench), "or the file was changed")
    again()
    signed.signature.unlink()
    refused(executed(bench), "isn't there")
    again()
    _, other = new_key(bench.folder / "keys", "other")
    refused(bench.command("exec", "hello.wasm", "--public-key", other.public_key), "is of another key")
    refused(executed(bench, f"--public-key={other.public_key}"), "--public-key was given twice", 2)
    refused(executed(bench, "--builder", "https://ci.example.org/x"), "names the builder")
    refused(executed(bench, "--identity", "me@example.org"), "one of the two", 2)
    refused(bench.command("exec", "hello.wasm", "--identity", "me@example.org"), "--issuer, both", 2)
    refused(bench.command("exec", "hello.wasm", "--public-key", "nope.pem"), "can't be read", 2)
    envelope = last_line(bench.command("exec", "hello.wasm", "--public-key", other.public_key, "--json"))
    assert envelope["error"]["error_type"] == "config_error"
    assert "is of another key" in envelope["error"]["message"]
    # What is asked for can't be taken away by where the words stand; behind `--` they are the task's.
    assert (
        last_line(bench.command("exec", "hello.wasm", "--", "--public-key"))["result"] == "hello --public-key"
    )
    assert last_line(executed(bench))["result"] == "hello you"


def test_an_identity_is_asked_for(bench: Bench) -> None:
    bench.write("hello.py", "def main(): return 5\n")
    with running() as instance:
        root = instance.write_trusted_root(bench.folder / "root.json")
        config = instance.write_trust_config(bench.folder / "config.json")
        token = bench.folder / "token"
        token.write_text(instance.provider.token())
        result = bench.command(
            *("build", "hello.py", "--export", "--identity-token", token, "--trust-config", config, "--json")
        )
        assert json.loads(result.stdout)["signer"] == f"{IDENTITY} ({ISSUER})", result.error_text
    # Verified when none of the services is there any more.
    asked = ("exec", "hello.wasm", "--issuer", ISSUER, "--trust-root", root, "--identity")
    assert last_line(bench.command(*asked, IDENTITY))["result"] == 5
    refused(bench.command(*asked, "somebody@example.org"), "Certificate's SANs do not match")
    refused(bench.command("exec", "hello.wasm", "--identity", IDENTITY, "--issuer", ISSUER), "doesn't hold")


def test_what_is_verified_is_what_is_run(
    bench: Bench, signed: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is exchanged as soon as it has been verified: the name isn't opened again."""
    from capsule_build.release import task_verification

    verify = task_verification.verify_task

    def exchange(path: Path, data: bytes, policy: object) -> object:
        verified = verify(path, data, policy)  # type: ignore[arg-type]
        path.write_bytes(b"something else")
        return verified

    monkeypatch.setattr(task_verification, "verify_task", exchange)
    envelope = bench.run("hello.wasm", packed=True, trust={"public_key": "keys/key.pub.pem"})
    assert envelope["result"] == "hello x"
    assert signed.bundle.read_bytes() == b"something else"


def test_nothing_is_decoded_before_its_signature_holds(bench: Bench, signed: Outputs) -> None:
    signed.bundle.write_bytes(b"\0asm, but not a task")
    assert "or the file was changed" in bench.refused("hello.wasm", trust={"public_key": "keys/key.pub.pem"})


def test_a_folder_can_ask_for_signatures_always(bench: Bench, signed: Outputs) -> None:
    bench.write("capsule.toml", '[trust]\npublic_key = "keys/key.pub.pem"\n')
    assert last_line(bench.command("exec", "hello.wasm"))["result"] == "hello x"
    assert last_line(bench.command("run", "hello.wasm"))["result"] == "hello x"
    # A source has no signature.
    source = bench.command("run", "hello.py")
    refused(source, "isn't signed")
    refused(source, "'capsule build hello.py --export --key KEY.pem' makes one.")
    # Another signer's word doesn't take its place, nor does it take away what others ask for.
    _, other = new_key(bench.folder / "keys", "other")
    refused(bench.command("exec", "hello.wasm", "--public-key", other.public_key), "is of another key")
    # It is built there all the same.
    bench.write("helper.py", "VALUE = 'changed '\n")
    assert bench.command("build", "hello.py", "--export").code == 0
    assert not signed.signature.exists()
    unsigned = bench.command("exec", "hello.wasm")
    refused(unsigned, "The signature hello.wasm.sigstore.json isn't there.")
    made = "'capsule-build sign hello.wasm --key KEY.pem' makes it."
    refused(unsigned, f"[trust] of capsule.toml asks for it; {made}")
    bench.write("capsule.toml", "")
    refused(executed(bench), f"The request asks for it; {made}")
    # An identity is asked for: a key's signature is none of it.
    bench.write("capsule.toml", f"[trust]\nidentity = '{IDENTITY}'\nissuer = '{ISSUER}'\n")
    refused(bench.command("run", "hello.py"), "'capsule build hello.py --export --sign' makes one.")


def test_words_of_trust_are_read_strictly(bench: Bench) -> None:
    bench.write("hello.py", "def main(): return 5\n")
    for text, reason in (
        ("key = 'x'", "there is no key 'key'"),
        ("public_key = 5", "public_key must be a text"),
        ("public_key = ''", "public_key must be a text"),
        ("same_guest = 'yes'", "same_guest must be true or false"),
        ("identity = 'me@example.org'", "--issuer, both"),
        ("builder = 'urn:x'", "Whose signature must it be"),
        ("public_key = 'x'\nissuer = 'y'", "one of the two"),
    ):
        bench.write("capsule.toml", f"[trust]\n{text}\n")
        refused(bench.command("run", "hello.py"), reason, 2)


def test_a_worker_and_a_program_ask_for_signatures(bench: Bench, signed: Outputs) -> None:
    trust = {"public_key": "keys/key.pub.pem"}
    lines = [
        {"id": 1, "file": "hello.wasm", "trust": trust},
        {"id": 2, "file": "hello.py", "trust": trust},
        {"id": 3, "file": "hello.wasm", "trust": {"nope": "x"}},
        {"id": 4, "file": "hello.wasm", "trust": "x"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    said = run([str(CAPSULE), "worker"], cwd=bench.folder, stdin=text.encode()).stdout.splitlines()
    answers = {answer["id"]: answer for answer in map(json.loads, said)}
    assert answers[1]["output"]["result"] == "hello x"
    assert "isn't signed" in answers[2]["output"]["error"]["message"]
    assert "there is no key 'nope'" in answers[3]["output"]["error"]["message"]
    assert "trust must be an object" in answers[4]["error"]

    signed.provenance.write_bytes(b"{}")
    for worker in (False, True):
        envelope = asyncio.run(
            capsule.run(file="hello.wasm", cwd=str(bench.folder), trust=trust, worker=worker)
        )
        assert "isn't the provenance" in envelope["error"]["message"]


def test_another_guest_is_told_or_refused(bench: Bench, signed: Outputs) -> None:
    path = signed.bundle
    file = read_artifact(path.read_bytes(), "hello.wasm").file
    own = {"helper.py": b"VALUE = 'hello '\n"}
    path.write_bytes(pack(file, own, {}, guest=Guest("python", "ab" * 32)))
    result = bench.command("exec", "hello.wasm")
    assert last_line(result)["result"] == "hello x"
    assert f"was packed for the python guest {'ab' * 32}" in result.error_text
    bench.write("capsule.toml", "[trust]\nsame_guest = true\n")
    refused(bench.command("exec", "hello.wasm"), "was packed for the python guest", 2)
    # Sources have no guest of their own, and nobody's signature is asked for.
    assert bench.command("run", "hello.py").code == 0


def test_javascript_has_its_packages_and_its_guest_in_it(bench: Bench) -> None:
    key, _ = new_key(bench.folder / "keys")
    bench.write(
        "node_modules/@me/left/package.json",
        '{"name": "@me/left", "version": "1.2.3", "license": "MIT", "main": "index.js"}',
    )
    bench.write("node_modules/@me/left/index.js", "export const left = 5;\n")
    bench.write("more.mjs", "export const more = 2;\n")
    bench.write(
        "hello.ts",
        'import { left } from "@me/left";\nimport { more } from "./more.mjs";\n'
        "export function main(): number { return left * more; }\n",
    )
    result = bench.command("build", "hello.ts", "--export", "--key", key)
    assert result.code == 0, result.error_text
    outputs = Outputs(bench.folder / "hello.wasm")
    check_sbom(outputs.sbom.read_bytes())
    document = json.loads(outputs.sbom.read_bytes())
    found = {component["name"]: component for component in document["components"]}
    assert found["@me/left"]["purl"] == "pkg:npm/%40me/left@1.2.3"
    assert found["@me/left"]["licenses"] == [{"expression": "MIT"}]
    own = [file["name"] for file in document["metadata"]["component"]["components"]]
    assert own == ["hello.ts", "more.mjs"]
    assert "capsule-build guest for javascript" in found
    provenance = json.loads(outputs.provenance.read_bytes())["predicate"]
    assert "esbuild" in provenance["runDetails"]["builder"]["version"]
    assert last_line(executed(bench))["result"] == 10


def test_a_folder_for_bundles_is_what_the_lock_is_made_of(bench: Bench) -> None:
    key, _ = new_key(bench.folder / "keys")
    (bench.folder / "dist").mkdir()
    bench.write("capsule.toml", '[workflow]\nversion = "1.2.3"\n')
    bench.write("hello.py", "def main(): return 5\n")
    assert bench.command("build", "hello.py", "--output", "dist").code == 0
    program = CAPSULE.with_name("capsule-build")

    def tool(*words: str) -> Result:
        return run([str(program), *words], cwd=bench.folder, check=False)

    assert tool("sign", "--dist", "dist", "--key", str(key)).code == 0
    verified = tool("verify", "--dist", "dist", "--public-key", str(public(key)), "--json")
    granted = json.loads(verified.stdout)["bundles"][0]["tasks"]["main"]
    assert (granted["fuel"], granted["folders"], granted["hosts"]) == (2_000_000_000, [], [])
    assert tool("lock", "--dist", "dist", "--lock", "my.lock.json").code == 0
    assert tool("lock", "--dist", "dist", "--lock", "my.lock.json", "--check").code == 0
    entry = json.loads((bench.folder / "my.lock.json").read_text())["tasks"]["hello"]
    assert (entry["version"], entry["platform"]) == ("1.2.3", "wasm32")
    revoked = tool("lock", "--lock", "my.lock.json", "--revoke", "hello", "wasm32", "--reason", "it leaks")
    assert "is revoked: it leaks" in revoked.text


def test_what_can_not_be_exported_so(bench: Bench) -> None:
    bench.write("my task.py", "def main(): return 5\n")
    refused(bench.command("build", "my task.py", "--export"), "can't be the name of a bundle", 2)
    assert bench.command("build", "my task.py").code == 0
    refused(bench.command("build", "my task.py", "--sign"), "must be exported", 2)
    refused(
        bench.command("build", "my task.py", "--output", "my task.py/x"), "can't be made: Not a directory", 2
    )
    bench.write("task.py", "def main(): return 5\n")
    assert bench.command("build", "task.py", "--output", "new/folder").code == 0
    assert (bench.folder / "new/folder/task.wasm").is_file()
    bench.write("capsule.toml", '[workflow]\nversion = "1\\n2"\n')
    refused(bench.command("build", "my task.py"), "version must be one short line", 2)


def test_a_file_whose_name_is_no_text_is_named(bench: Bench) -> None:
    bench.write("hello.py", "import odd\ndef main(): return 5\n")
    bench.write("odd/__init__.py", "")
    (Path(os.fsdecode(os.fsencode(bench.folder) + b"/odd/\xff.txt"))).write_text("x")
    refused(bench.command("build", "hello.py"), "its name is no UTF-8", 2)


def test_without_a_signature_asked_for_nothing_of_the_release_chain_is_loaded(
    bench: Bench, signed: Outputs
) -> None:
    assert signed.signature.is_file()
    program = (
        "import sys\n"
        "from capsule_build.cli.capsule.arguments import read_arguments\n"
        "from capsule_build.cli.capsule.execute import execute\n"
        "assert execute(read_arguments(['exec', 'hello.wasm'])) == 0\n"
        "print(sorted(name for name in sys.modules if name.startswith(\n"
        "    ('capsule_build.release', 'capsule_build.sbom', 'sigstore', 'cryptography', 'pydantic', 'typer'))))\n"
    )
    result = run([sys.executable, "-c", program], cwd=bench.folder)
    assert result.stdout.splitlines()[-1] == b"[]"


def test_a_task_is_run_by_its_name_in_the_lock(bench: Bench, signed: Outputs) -> None:
    data = signed.bundle.read_bytes()
    with serve() as site:
        site.answers["/hello.wasm"] = body(data)
        update_lock(bench.folder / "my.lock.json", bench.folder, base_urls=[site.url.rstrip("/")])
        words = ("exec", "hello", "you", "--lock", "my.lock.json", "--data-dir", "data")
        assert last_line(bench.command(*words))["result"] == "hello you"
        assert last_line(bench.command(*words))["result"] == "hello you"
        assert site.asked == ["/hello.wasm"]
    stored = bench.folder / "data" / "capsules" / "hello.wasm"
    named = {"CAPSULE_REGISTRY_LOCK": "my.lock.json", "CAPSULE_DATA_DIR": "data"}
    assert last_line(bench.command("exec", "hello", env=named))["result"] == "hello x"
    tags = json.loads(bench.command("tags", "--json", env=named).stdout)
    assert [(task["name"], task["stored"]) for task in tags["tasks"]] == [("hello", True)]
    stored.write_bytes(data + b"\0")
    refused(bench.command(*words), "is not the bundle of 'hello' for wasm32", 3)
    stored.unlink()
    put = bench.command("fetch", "hello", "--from", "hello.wasm", env=named)
    assert put.text.strip() == str(stored.relative_to(bench.folder))
    refused(bench.command("fetch", "hello", "--platform", "linux-x86_64-musl", env=named), "is a task", 2)
    # Who signed it is asked of what lies beside it, which a store doesn't fetch.
    key = bench.folder / "keys" / "key.pub.pem"
    refused(bench.command(*words, "--public-key", key), "hello.wasm.sigstore.json isn't there")
    revoke_task(bench.folder / "my.lock.json", "hello", "it leaks")
    refused(bench.command(*words), "has been revoked: it leaks", 3)


def test_a_name_that_the_lock_lacks_is_told(bench: Bench) -> None:
    (bench.folder / "my.lock.json").write_bytes(Registry({}).to_bytes())
    refused(bench.command("exec", "hello", "--lock", "my.lock.json"), "There is no task 'hello'", 2)
    refused(bench.command("exec", "hello", "--lock", "nope.json"), "can't be read", 2)
    refused(bench.command("exec", "hello.wasm", "--lock", "my.lock.json"), "are for a task by its name", 2)


def test_the_digest_is_that_of_the_bytes_that_are_run(bench: Bench, signed: Outputs) -> None:
    asked = "ab" * 32
    assert f"{asked} is asked for" in bench.refused("hello.wasm", sha256=asked)
    held = signed.digest.read_text().split()[0]
    assert bench.run("hello.wasm", sha256=held)["result"] == "hello x"


def test_what_is_packed_costs_what_its_source_costs(shelf: Bench) -> None:
    """It isn't compiled anew at each run."""
    ran = [
        json.loads(shelf.command(*words).stdout)
        for words in (("run", "--json", "hello.py"), ("exec", "--json", "hello.wasm"))
    ]
    fuel = [envelope["execution"]["fuel_consumed"] for envelope in ran]
    assert fuel[0] == pytest.approx(fuel[1], rel=0.02)
