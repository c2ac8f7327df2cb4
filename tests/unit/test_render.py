"""What the engine is given: a Dockerfile that both engines understand, and nothing to download.

After a change of the templates that is meant, `CAPSULE_UPDATE_GOLDEN=1 pytest tests/unit/test_render.py`
writes the golden files anew; their difference is then part of the review.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.engine.protocol import LABEL
from capsule_build.fetch import Silence
from capsule_build.inputs import ReadyInput, acquire
from capsule_build.plan import BuildOptions, BuildPlan, make_plan
from capsule_build.recipes import load_recipes
from capsule_build.render import Context, dockerfile, render
from capsule_build.resources import recipes_dir, templates_dir
from capsule_build.runtime.errors import ContractError
from capsule_build.runtime.platforms import ARCHITECTURES, LIBCS
from tests import fakes, tiny_recipe

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
UPDATE = "CAPSULE_UPDATE_GOLDEN"
OWN = [
    *(("node24", libc, architecture) for libc in LIBCS for architecture in ARCHITECTURES),
    *(
        (recipe.id, libc, "x86_64")
        for recipe in load_recipes(recipes_dir()).values()
        for libc in recipe.libcs
        if recipe.id != "node24"
    ),
]


def plan_of(recipe: str, libc: str, architecture: str = "x86_64") -> BuildPlan:
    options = BuildOptions(libc=libc, architecture=architecture, build_architecture="x86_64")
    pins = load_definitions(recipes_dir()).pins
    return make_plan(load_recipes(recipes_dir())[recipe], options, pins, dist=Path("dist"))


def text_of(plan: BuildPlan, templates: Path | None = None) -> str:
    """The plan's Dockerfile, with names of inputs that no new pin changes."""
    names = {item.key: f"{item.key.replace('/', '-')}.whl" for item in plan.inputs}
    return dockerfile(plan, names, templates=templates or templates_dir())


def instructions(text: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions with their arguments, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.mark.parametrize("libc", ["glibc", "musl"])
def test_the_dockerfile_of_node24_is_the_golden_one(libc: str) -> None:
    plan = plan_of("node24", libc)
    text = text_of(plan).replace(plan.manifest.runtime_version, "24.0.0")
    golden = GOLDEN / f"node24-{libc}.Dockerfile"
    if os.environ.get(UPDATE):
        golden.write_text(text)
    assert text == golden.read_text(), f"If that is meant: {UPDATE}=1 pytest {Path(__file__).name}"


@pytest.mark.parametrize(("recipe", "libc", "architecture"), OWN)
def test_both_engines_understand_it(recipe: str, libc: str, architecture: str) -> None:
    plan = plan_of(recipe, libc, architecture)
    text = text_of(plan)
    stages = {"scratch"}
    assert "<<" not in text, "older builders know no heredoc"
    for name, arguments in instructions(text):
        assert name in {"FROM", "LABEL", "COPY", "RUN"}
        if name == "FROM":
            image, _, stage = arguments.partition(" AS ")
            assert image in stages, "no image is taken from anywhere"
            stages.add(stage)
        elif name == "RUN":
            words = json.loads(arguments)
            assert all(isinstance(word, str) for word in words)
            assert words[0].startswith("/"), "an image may have no PATH"
        elif name == "COPY":
            assert not arguments.startswith(("--chown", "--chmod", "--link")), "needs a newer builder"
    assert instructions(text)[0] == ("FROM", "scratch AS shell")


@pytest.mark.parametrize(("recipe", "libc", "architecture"), OWN)
def test_nothing_is_downloaded(recipe: str, libc: str, architecture: str) -> None:
    text = text_of(plan_of(recipe, libc, architecture))
    files = [path for path in sorted((templates_dir() / "scripts").iterdir()) if path.is_file()]
    scripts = "".join(path.read_text() for path in files)
    assert not re.search(r"https?://|ftp://", text)
    assert not re.search(r"\bADD\b", text)
    code = "\n".join(line for line in scripts.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"https?://|\b(wget|curl|apt|apk|pip3? install|npm install)\b", code)


@pytest.mark.parametrize(("recipe", "libc", "architecture"), OWN)
def test_the_capsule_lies_at_its_install_root_and_nowhere_else(
    recipe: str, libc: str, architecture: str
) -> None:
    plan = plan_of(recipe, libc, architecture)
    steps = instructions(text_of(plan))
    last = max(number for number, (name, _) in enumerate(steps) if name == "FROM")
    assert steps[last] == ("FROM", "scratch AS capsule")
    final = steps[last + 1 :]
    assert final
    for name, arguments in final:
        assert name == "COPY"
        assert arguments.endswith(f" /capsule/ {plan.manifest.install_root}/")


@pytest.mark.parametrize(("recipe", "libc", "architecture"), OWN)
def test_every_script_that_is_run_is_there(recipe: str, libc: str, architecture: str) -> None:
    for name, arguments in instructions(text_of(plan_of(recipe, libc, architecture))):
        if name == "RUN":
            for word in json.loads(arguments):
                if word.startswith("/scripts/"):
                    assert (templates_dir() / word[1:]).is_file()


@pytest.mark.parametrize(("recipe", "libc", "architecture"), OWN)
def test_every_input_is_used_and_nothing_else(recipe: str, libc: str, architecture: str) -> None:
    plan = plan_of(recipe, libc, architecture)
    used = set(re.findall(r"inputs/(\S+?\.whl)", text_of(plan)))
    # The licence list is read when the tree is finished.
    keys = {item.key for item in plan.inputs} - {"build/busybox-static", plan.recipe.spdx}
    assert used == {f"{key.replace('/', '-')}.whl" for key in keys}


def test_stages_that_build_are_found_again_by_a_label() -> None:
    steps = instructions(text_of(plan_of("node24", "glibc")))
    assert steps[1] == ("LABEL", f"{LABEL}=build")


def tiny_dockerfile(folder: Path, template: str) -> str:
    world = fakes.World(folder)
    (world.recipes / "templates" / "tiny.Dockerfile.j2").write_text(template)
    plan = world.plan()
    names = {item.key: f"{item.name}.whl" for item in plan.inputs}
    return dockerfile(plan, names, templates=world.recipes / "templates")


def test_a_users_own_template_is_rendered(tmp_path: Path) -> None:
    root = "/tmp/agentcompass-capsules/tiny-1.2.3-linux-x86_64-glibc"
    assert tiny_dockerfile(tmp_path, tiny_recipe.TEMPLATE).splitlines() == [
        "# tiny for linux-x86_64-glibc",
        "FROM scratch",
        f"LABEL {LABEL}=build",
        "COPY inputs/tool.whl inputs/helper.whl inputs/texts.whl /inputs/",
        f'RUN ["/bin/sh", "/scripts/step.sh", "{root}", "x86_64", "tool.whl"]',
    ]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("FROM {{ imag }}", r"tiny\.Dockerfile\.j2, line 1 can't be rendered: 'imag' is undefined"),
        ("FROM scratch\n\nFROM {{ imag }}", r"tiny\.Dockerfile\.j2, line 3 can't be rendered: 'imag' is"),
        ("COPY {{ inputs['nope'] }} /", "has no attribute 'nope'"),
        ("COPY {{ inputs['nope'] | basename }} /", "StrictUndefined"),
        ("{{ manifest.nope }}", "has no attribute 'nope'"),
        ("FROM scratch\n{% if %}", "line 2"),
        ("FROM scratch\n{% endblock %}", "line 2"),
        ("{{ 1 | nope }}", "No filter named 'nope'"),
        ("{% include 'missing.j2' %}", "missing.j2"),
        ("{% include '../tiny.toml' %}", "tiny.toml"),
        ("{{ root + 1 }}", "can only concatenate str"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_template_that_can_not_be_rendered_says_why(tmp_path: Path, template: str, message: str) -> None:
    with pytest.raises(ContractError, match=message) as raised:
        tiny_dockerfile(tmp_path, template)
    assert "tiny.Dockerfile.j2" in raised.value.message
    assert raised.value.hint == f"Templates are read from {tmp_path / 'recipes' / 'templates'}."


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    plan = fakes.World(tmp_path).plan()
    with pytest.raises(ContractError, match=r"tiny\.Dockerfile\.j2"):
        dockerfile(plan, {}, templates=tmp_path)


def test_a_template_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    (world.recipes / "templates" / "tiny.Dockerfile.j2").write_bytes(b"# fr\xfch\n")
    with pytest.raises(ContractError, match=r"tiny\.Dockerfile\.j2"):
        dockerfile(world.plan(), {}, templates=world.recipes / "templates")


def acquired(world: fakes.World, plan: BuildPlan, name: str = "context") -> tuple[ReadyInput, ...]:
    scratch = world.folder / f"{name}-sources"
    scratch.mkdir()
    return acquire(plan, world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch)


def rendered(world: fakes.World, name: str = "context") -> Context:
    (world.folder / name).mkdir()
    plan = world.plan()
    inputs = acquired(world, plan, name)
    return render(plan, inputs, world.folder / name, templates=world.shop.templates)


def input_files(context: Context) -> list[Path]:
    found = [path for path in (context.folder / "inputs").rglob("*") if path.is_file()]
    assert found
    return found


def test_two_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    own = tmp_path / "own.bin"
    own.write_bytes(b"another file under a name that is taken")
    plan = world.plan()
    ready = list(acquired(world, plan))
    taken = ready[0]
    ready[1] = replace(ready[1], path=own, file=taken.file, sha256="0" * 64)
    folder = tmp_path / "context"
    folder.mkdir()
    context = render(plan, ready, folder, templates=world.shop.templates)
    contents = {path.read_bytes() for path in input_files(context) if path.name == taken.file}
    assert contents == {taken.path.read_bytes(), own.read_bytes()}


def test_a_context_holds_all_that_its_dockerfile_names(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    context = rendered(world)
    assert (context.folder / "Dockerfile").read_text() == context.dockerfile
    assert (context.folder / "bootstrap" / "busybox").read_bytes() == tiny_recipe.SHELL
    assert (context.folder / "scripts" / "step.sh").read_text() == "set -eu\n"
    assert {path.name for path in input_files(context)} == {
        pin.file for name, (pin, _) in tiny_recipe.inputs().items() if name != "tool-musl"
    }
    for name in re.findall(r"inputs/\S+", context.dockerfile):
        assert (context.folder / name).is_file()
    assert (context.folder / "native" / "version.h").is_file()
    assert b"Apache License" in (context.folder / "native" / "LICENSE").read_bytes()


def test_inputs_are_linked_and_not_copied(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    context = rendered(world)
    for path in input_files(context):
        assert path.stat().st_nlink == 2


def test_where_no_link_can_be_made_inputs_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_file_system(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_file_system)
    world = fakes.World(tmp_path)
    context = rendered(world)
    for path in input_files(context):
        assert path.stat().st_nlink == 1
        assert path.stat().st_size > 0


def test_a_context_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    listings = []
    for name, umask in (("one", 0o022), ("two", 0o077)):
        before = os.umask(umask)
        try:
            folder = rendered(world, name).folder
        finally:
            os.umask(before)
        listings.append(
            {
                path.relative_to(folder).as_posix(): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
                for path in folder.rglob("*")
                if path.is_file()
            }
        )
    assert listings[0] == listings[1]
    assert listings[0]["bootstrap/busybox"][1] == 0o755
