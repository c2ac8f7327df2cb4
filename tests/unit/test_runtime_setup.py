"""The flow of a set-up, with a capsule whose tools are short shell scripts; containers: tests/integration."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime import ProgramMissingError, SetUp, SetUpError, UsageError, parse_harness, set_up
from capsule_build.runtime.commands import run_natively
from capsule_build.runtime.local import LocalEnvironment
from capsule_build.runtime.sealing import parse_report
from tests.bundles import file, folder
from tests.targets import SETUPS, TAG, Rerooted, host_libc, make_tmp, registry_of, small, stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capsule_build.runtime.process import Result

pytestmark = pytest.mark.slow
EXEC = """#!/bin/bash
# --setup-root ROOT -- COMMAND
root=$2
shift 3
mkdir -p "$root/bin" "$root/lib/node_modules/agent"
CAPSULE_SETUP_ROOT=$root PATH=$root/bin:${0%/*}:$PATH
export CAPSULE_SETUP_ROOT PATH
echo "${npm_config_ignore_scripts-unset} $*" >>"$root/log"
exec "$@"
"""
SEAL = """#!/bin/sh
case $* in *--dry-run*) dry=true ;; *) dry=false ;; esac
for root; do :; done
[ -f "$root/log" ] && [ $dry = false ] && echo seal >>"$root/log"
printf '{"schema_version": "agentcompass.seal-report.v1", "root": "%s", "dry_run": %s, ' "$root" $dry
printf '"scanned": 3, "already_sealed": 0, "scripts": {"count": 0, "paths": []}, '
printf '"interpreters": {"count": 1, "paths": ["%s/bin/fetched"]}, ' "$root"
printf '"rpaths": {"count": 0, "paths": []}, "skipped": [], "failures": []}\\n'
"""
NPM = """#!/bin/sh
case $1 in
  install)
    program=$CAPSULE_SETUP_ROOT/bin/$3
    printf '#!/bin/sh\\n%s\\n' "${4-exit 0}" >"$program"
    chmod 755 "$program"
    ;;
  rebuild) exit 0 ;;
esac
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Place:
    """A folder with a /tmp of its own, a capsule in a store, and what is asked of both."""

    def __init__(self, root: Path) -> None:
        self.root = make_tmp(root / "machine")
        self.environment = Quiet(self.root)
        bundle = small(host_libc())
        scripts = {"capsule-exec": EXEC, "seal-tree": SEAL, "npm": NPM}
        for name, text in scripts.items():
            bundle.replace(f"bin/{name}", file(f"bin/{name}", text.encode(), executable=True))
        bundle.add(folder("libexec"), file("libexec/bash", b'#!/bin/bash\nexec bash "$@"\n', executable=True))
        self.store, self.bundle = stored(root / "data", bundle.data())
        self.registry = registry_of(self.bundle)

    def set_up(self, **document: Any) -> SetUp:
        harness = parse_harness(
            {"setup_capsule_tag": TAG, "install_command": "npm install -g agent", **document}
        )
        return set_up(harness, self.environment, registry=self.registry, store=self.store)

    @property
    def log(self) -> list[str]:
        """What the launcher and the sealer were asked to do in the setup root."""
        (path,) = (self.root / SETUPS).glob("*/log")
        return path.read_text().splitlines()


class Quiet(Rerooted):
    """Without this machine's own variables, but for a test's; without its /usr/bin/env if that is wished."""

    variables: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    has_env = True
    has_shell = True

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        if argv[0] == "/bin/sh" and not self.has_shell:
            raise ProgramMissingError("rerooted: '/bin/sh' is not there.")
        given = {name: "" for name in os.environ if name not in self.variables}
        words = [word.replace("-x /usr/bin/env ", "-x /none ") if not self.has_env else word for word in argv]
        return super().run(
            words, **{**options, "env": {**given, **self.variables, **(options.get("env") or {})}}
        )


AGENT = {"entrypoint": "agent", "check_command": "agent --version"}


def test_a_harness_is_installed_sealed_tried_and_then_found(place: Place) -> None:
    done = place.set_up(**AGENT)
    assert done.is_new
    assert done.path == f"{done.setup_root}/bin/agent"
    assert done.sha256 is not None
    assert done.setup_root == f"/{SETUPS}/{done.sha256}"
    assert done.seal is not None
    assert place.log == ["false /bin/sh -c npm install -g agent", "seal"]

    again = place.set_up(**AGENT)
    assert (again.is_new, again.path, again.sha256, again.seal) == (False, done.path, done.sha256, None)
    assert place.set_up(**AGENT, install_strategy="preinstalled").path == done.path
    assert len(place.log) == 2

    place.set_up(**AGENT, install_strategy="install")
    assert len(place.log) == 4
    json.dumps(done.as_json())


def test_the_images_own_harness_is_taken_and_no_capsule_is_looked_for(place: Place) -> None:
    done = place.set_up(entrypoint="sh", check_command="sh -c true")
    assert (done.path, done.is_new, done.sha256, done.seal) == ("/usr/bin/sh", False, None, None)
    assert not (place.root / SETUPS).exists()


def test_what_is_there_but_does_not_work_is_installed_anew(place: Place) -> None:
    done = place.set_up(entrypoint="false", check_command="false", install_command="npm install -g false")
    assert done.path == f"{done.setup_root}/bin/false"
    harness = parse_harness({"install_strategy": "preinstalled", "check_command": "false"})
    with pytest.raises(SetUpError, match=r"'/bin/false': '/bin/false' ended with status 1\.$"):
        set_up(harness, place.environment)


def test_in_an_image_without_a_shell_the_usual_folders_count(place: Place) -> None:
    place.environment.has_shell = False
    harness = parse_harness({"install_strategy": "preinstalled", "check_command": "true"})
    assert set_up(harness, place.environment).path == "/usr/bin/true"
    harness = parse_harness({"install_strategy": "preinstalled", "check_command": "none"})
    with pytest.raises(SetUpError, match="'none' is not where it might be") as caught:
        set_up(harness, place.environment)
    assert "'/usr/local/bin/none' isn't there" in caught.value.message


def test_a_setup_that_was_begun_and_not_finished_is_not_taken_for_a_harness(place: Place) -> None:
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command="npm install -g agent; echo told >&2; exit 5")
    assert "failed with status 5: npm install -g agent; echo told >&2; exit 5\ntold" in caught.value.message
    assert (place.root / SETUPS / "x").parent.exists()
    # Its check would succeed: what is missing is the end of its set-up.
    assert place.set_up(**AGENT).is_new


def test_without_usr_bin_env_scripts_run_behind_sealing(place: Place) -> None:
    place.environment.has_env = False
    place.set_up(**AGENT)
    assert place.log == [
        *("true /bin/sh -c npm install -g agent", "seal"),
        *("false npm rebuild -g", "seal"),
    ]


@pytest.mark.parametrize(
    "wish",
    [
        {"install_command": "npm install -g agent '' --ignore-scripts"},
        {"install_env": {"NPM_CONFIG_IGNORE_SCRIPTS": "true"}},
    ],
)
def test_who_wants_no_scripts_gets_none(place: Place, wish: dict[str, Any]) -> None:
    place.environment.has_env = False
    place.set_up(**AGENT, **wish)
    assert [line for line in place.log if "rebuild" in line] == []


def test_a_script_that_fails_before_sealing_runs_behind_it(place: Place) -> None:
    fails = '{ echo "npm error command failed"; exit 1; }'
    command = f"npm install -g agent; [ $npm_config_ignore_scripts = true ] || {fails}"
    done = place.set_up(**AGENT, install_command=command)
    assert [line.partition(" ")[0] for line in place.log] == ["false", "true", "seal", "false", "seal"]
    assert any("npm rebuild" in note for note in done.notes)


def test_a_program_that_was_just_fetched_and_cannot_start_is_named(place: Place) -> None:
    with pytest.raises(SetUpError, match="can't start here before it is sealed") as caught:
        place.set_up(**AGENT, install_command="echo spawn fetched ENOENT >&2; exit 1")
    assert "/bin/fetched" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("npm error code ENOTFOUND", "Four ways need no registry"),
        ("Failed to establish a new connection: NewConnectionError", "Four ways need no registry"),
        ("error: dns error: failed to lookup", "Four ways need no registry"),
        ("ERROR: no version satisfies x (from versions: none)", "doesn't have it, or can't be reached"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "a path in the container: copy the file there first"),
        ("certificate verify failed: unable to get local issuer certificate", "PIP_CERT"),
    ],
)
def test_what_package_managers_say_is_understood(place: Place, said: str, hint: str) -> None:
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command=["sh", "-c", f"echo '{said}' >&2; exit 1"])
    assert said in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("with_capsule", [True, False])
def test_a_command_that_was_killed_is_told_as_such(place: Place, with_capsule: bool) -> None:
    changes: dict[str, Any] = {} if with_capsule else {"setup_capsule_tag": None}
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command=["sh", "-c", "kill -9 $$"], **changes)
    assert "killed (SIGKILL)" in str(caught.value.hint)


UNTRUSTED = "echo 'npm error code SELF_SIGNED_CERT_IN_CHAIN' >&2; exit 1"


@pytest.mark.parametrize("with_capsule", [True, False])
def test_a_file_of_certificates_that_the_environment_lacks_is_named(place: Place, with_capsule: bool) -> None:
    variables = {"NODE_EXTRA_CA_CERTS": "/none/of it.pem", "PIP_CERT": "/etc/passwd"}
    changes: dict[str, Any] = {} if with_capsule else {"setup_capsule_tag": None}
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command=UNTRUSTED, install_env=variables, **changes)
    hint = str(caught.value.hint)
    # One is named: to name one isn't the advice.
    assert "Name a file of certificates" not in hint
    assert "sets NODE_EXTRA_CA_CERTS='/none/of it.pem', and " in hint
    assert "a path in the container" in hint
    assert "PIP_CERT" not in hint


@pytest.mark.parametrize(
    ("outside", "own", "milliseconds"),
    [
        ({}, {}, "1000"),
        ({"NPM_CONFIG_FETCH_RETRY_MINTIMEOUT": "7"}, {}, "7"),
        ({}, {"npm_config_fetch_retry_mintimeout": "8"}, "8"),
    ],
)
def test_npm_waits_shortly_before_it_asks_again_unless_it_is_told_how_long(
    place: Place, outside: dict[str, str], own: dict[str, str], milliseconds: str
) -> None:
    place.environment.variables = {**Quiet.variables, **outside}
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command="env | grep -i mintimeout; exit 1", install_env=own)
    (said,) = (line for line in caught.value.message.splitlines() if line.lower().startswith("npm_config"))
    assert said.partition("=")[2] == milliseconds


@pytest.mark.slow
def test_a_variable_that_breaks_the_harness_is_found_by_trying(place: Place) -> None:
    place.environment.variables = {**Quiet.variables, "NODE_OPTIONS": "--bad", "PYTHONPATH": "/x"}
    command = ["npm", "install", "-g", "agent", '[ -z "$NODE_OPTIONS" ] || { echo bad option; exit 9; }']
    with pytest.raises(SetUpError) as caught:
        place.set_up(**AGENT, install_command=command)
    assert "status 9:\nbad option" in caught.value.message
    assert "because of NODE_OPTIONS='--bad'" in str(caught.value.hint)
    assert "PYTHONPATH" not in str(caught.value.hint)


def test_a_command_that_takes_too_long_ends_with_its_children(place: Place) -> None:
    begun = time.monotonic()
    seconds = f"{90_000_000 + os.getpid()}"
    command = f"echo waiting; sleep {seconds} & sleep {seconds}"
    with pytest.raises(SetUpError, match=r"didn't end within 1\.5 s[\s\S]*waiting"):
        place.set_up(**AGENT, install_command=command, install_timeout=1.5)
    assert time.monotonic() - begun < 30
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            left += [path] if seconds.encode() in path.read_bytes().split(b"\0") else []
    assert left == []


def test_npms_options_count_however_the_environment_spells_them(place: Place) -> None:
    place.environment.variables = {
        **Quiet.variables,
        "NPM_CONFIG_IGNORE_SCRIPTS": "true",
        "Npm_Config_Strict_Allow_Scripts": "true",
        "npm_config_registry": "kept",
        "npm_config_//host/:token": "kept",
    }
    command = [
        "sh",
        "-c",
        'tr "\\0" "\\n" </proc/$$/environ >"$CAPSULE_SETUP_ROOT/env"; npm install -g agent',
    ]
    place.set_up(**AGENT, install_command=command)
    (path,) = (place.root / SETUPS).glob("*/env")
    found = [line for line in path.read_text().splitlines() if line.lower().startswith("npm_config")]
    assert sorted(found) == [
        "npm_config_//host/:token=kept",
        "npm_config_dangerously_allow_all_scripts=true",
        "npm_config_fetch_retry_mintimeout=1000",
        "npm_config_ignore_scripts=false",
        "npm_config_registry=kept",
        "npm_config_strict_allow_scripts=false",
    ]


def test_what_the_command_did_not_install_is_missed(place: Place) -> None:
    with pytest.raises(SetUpError, match=r"'agent' is not there in '/tmp/.*', though installing succeeded"):
        place.set_up(**AGENT, install_command="true")


def test_a_capsule_without_the_tool_is_refused_before_anything(place: Place) -> None:
    with pytest.raises(UsageError, match="has no pip"):
        place.set_up(**AGENT, install_command="pip install agent")
    with pytest.raises(UsageError, match="needs a registry lock and a store"):
        set_up(parse_harness({**AGENT, "setup_capsule_tag": TAG, "install_command": "x"}), place.environment)
    assert not (place.root / SETUPS).exists()


def test_an_uploaded_tree_is_sealed_and_tried(place: Place, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/agent").write_text("#!/bin/sh\n")
    (tree / "bin/agent").chmod(0o755)
    document = {**AGENT, "setup_capsule_tag": TAG, "install_strategy": "upload", "upload": str(tree)}
    done = set_up(parse_harness(document), place.environment, registry=place.registry, store=place.store)
    assert done.is_new
    assert done.path.endswith("/bin/agent")
    assert done.seal is not None
    # By a path below the setup root, too.
    there = {
        **document,
        "install_strategy": "preinstalled",
        "entrypoint": "bin/agent",
        "check_command": "bin/agent",
    }
    del there["upload"]
    found = set_up(parse_harness(there), place.environment, registry=place.registry)
    assert (found.path, found.is_new) == (done.path, False)


@pytest.mark.parametrize("strategy", ["install_if_missing", "install"])
def test_two_setups_at_once_give_one(place: Place, strategy: str) -> None:
    done: list[SetUp] = []
    command = "sleep 0.3; npm install -g agent"
    threads = [
        threading.Thread(
            target=lambda: done.append(
                place.set_up(**AGENT, install_command=command, install_strategy=strategy)
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.is_new for one in done) == [False, False, True]
    assert len({one.path for one in done}) == 1
    assert place.log.count("seal") == 1


def test_without_a_tag_the_command_runs_natively(place: Place) -> None:
    place.environment.variables = {**Quiet.variables, "PATH": f"{place.root}/tmp/own:/usr/bin:/bin"}
    command = "mkdir -p /tmp/own; echo '#!/bin/sh' >/tmp/own/agent; chmod 755 /tmp/own/agent"
    harness = parse_harness({**AGENT, "install_command": command})
    done = set_up(harness, place.environment)
    assert (done.is_new, done.path, done.sha256) == (True, "/tmp/own/agent", None)
    assert not set_up(harness, place.environment).is_new
    assert [item.name for item in (place.root / "tmp").iterdir()] == ["own"]
    with pytest.raises(SetUpError, match="failed with status 3: exit 3"):
        set_up(parse_harness({"entrypoint": "none", "install_command": "exit 3"}), place.environment)
    with pytest.raises(SetUpError, match="'none' is not there in the image's PATH"):
        set_up(parse_harness({"entrypoint": "none", "install_command": "true"}), place.environment)


def test_a_program_that_is_not_there_is_an_outcome() -> None:
    outcome = run_natively(LocalEnvironment(), ["/none/at-all"], {}, 5)
    assert outcome.code == 127
    assert "not installed" in outcome.said


@pytest.mark.parametrize("printed", [b"", b"[]", b"{}", b'{"schema_version": "other.v1"}'])
def test_only_a_seal_report_is_taken_for_one(printed: bytes) -> None:
    with pytest.raises(Exception, match="isn't understood"):
        parse_report(printed)


@pytest.fixture(autouse=True)
def writable_again(tmp_path: Path) -> Iterator[None]:
    yield
    for name, _, _ in os.walk(tmp_path):
        os.chmod(name, 0o700)  # noqa: PTH101 (a walk's own names)
