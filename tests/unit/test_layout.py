"""What the project promises of its own sources, read from them."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "capsule_build"
MODULES = {
    ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "_data" not in path.parts
}
RUNTIME = {name: path for name, path in MODULES.items() if name.startswith("capsule_build.runtime")}

# From the bottom up: a module may import those of its own layer and of the layers below it.
LAYERS = (
    {"runtime"},
    # What is read: definitions, and files of known formats.
    {
        "__init__",
        "resources",
        "recipes",
        "components",
        "pins",
        "debian_archive",
        "licence_texts",
        "package_urls",
        "engine",
    },
    # What is done, step by step.
    {
        "build",
        "builder",
        "collect",
        "comparison",
        "doctor",
        "fetch",
        "inputs",
        "inspection",
        "licence_report",
        "lock",
        "pack",
        "plan",
        "prefixes",
        "record",
        "release",
        "render",
        "sandbox",
        "sbom",
        "smoke",
        "sources",
    },
    {"cli"},
)
LAYER = {part: number for number, layer in enumerate(LAYERS) for part in layer}


def part_of(module: str) -> str:
    """The top-level part of the package that a module belongs to."""
    return [*module.split("."), "__init__"][1]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file, which several tests read and none may change."""
    return ast.parse(path.read_text(), str(path))


def trees() -> Iterator[tuple[str, Path, ast.Module]]:
    for name, path in MODULES.items():
        yield name, path, tree_of(path)


def imports(name: str, path: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """All modules that some nodes of a module import, by their absolute names."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in MODULES else base)
    return found


@functools.cache
def all_imports() -> dict[str, set[str]]:
    """What each module imports, also late and for types only."""
    return {name: imports(name, path, ast.walk(tree)) for name, path, tree in trees()}


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 30
    assert "capsule_build.plan" in all_imports()["capsule_build.cli.build"]
    assert "capsule_build.runtime.errors" in all_imports()["capsule_build.pins"]
    assert "capsule_build.cli.options" in all_imports()["capsule_build.cli.build"]


def test_every_module_has_a_layer() -> None:
    assert {part_of(name) for name in MODULES} - set(LAYER) == set()


def test_imports_go_one_way() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in all_imports().items()
        for other in others
        if other.startswith("capsule_build")
        and LAYER[part_of(other)] > LAYER[part_of(name)]
        # The package's own __init__ holds its version, which everything may name.
        and other != "capsule_build"
    ]
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    graph = {
        name: {other for other in others if other in MODULES and other != name}
        for name, others in runtime_imports().items()
    }
    while leaves := {name for name, others in graph.items() if not others & graph.keys()}:
        graph = {name: others for name, others in graph.items() if name not in leaves}
    assert graph == {}


def runtime_imports() -> dict[str, set[str]]:
    """What modules import when they run: not what only their types need."""

    def running(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for inner in ast.iter_child_nodes(node):
            if not (
                isinstance(inner, ast.If)
                and isinstance(inner.test, ast.Name)
                and inner.test.id == "TYPE_CHECKING"
            ):
                yield from running(inner)

    return {name: imports(name, path, running(tree)) for name, path, tree in trees()}


@pytest.mark.parametrize("name", sorted(RUNTIME))
def test_runtime_stands_on_the_standard_library_alone(name: str) -> None:
    others = all_imports()[name]
    foreign = {
        other
        for other in others
        if not other.startswith("capsule_build.runtime")
        and other.partition(".")[0] not in sys.stdlib_module_names
    }
    assert foreign == set()


@pytest.mark.parametrize("name", sorted(RUNTIME))
def test_runtime_names_its_own_modules_relatively(name: str) -> None:
    # Lifted out of the project it has another name.
    tree = tree_of(RUNTIME[name])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("capsule_build")
            assert node.level < 2
        elif isinstance(node, ast.Import):
            assert all(not alias.name.startswith("capsule_build") for alias in node.names)


@pytest.mark.parametrize("name", sorted(RUNTIME))
def test_runtime_is_python_3_10(name: str) -> None:
    ast.parse(RUNTIME[name].read_text(), feature_version=(3, 10))


def test_a_newer_grammar_would_be_noticed() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try: ...\nexcept* ValueError: ...", feature_version=(3, 10))


@pytest.mark.parametrize("name", sorted(RUNTIME))
def test_runtime_uses_no_name_that_python_3_10_lacks(name: str) -> None:
    newer = {
        "tomllib": None,
        "datetime": {"UTC"},
        "typing": {"Self", "LiteralString", "assert_never", "assert_type", "override", "Never", "Unpack"},
        "enum": {"StrEnum", "ReprEnum", "verify", "EnumCheck"},
        "contextlib": {"chdir"},
        "hashlib": {"file_digest"},
        "itertools": {"batched"},
    }
    tree = tree_of(RUNTIME[name])
    used: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module in newer:
            used[node.module].update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                used[alias.name].update(())
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used[node.value.id].add(node.attr)
    for module, names in newer.items():
        if names is None:
            assert module not in used
        else:
            assert used.get(module, set()) & names == set()


def test_one_module_starts_programs() -> None:
    assert [name for name, others in all_imports().items() if "subprocess" in others] == [
        "capsule_build.runtime.process"
    ]
    other_ways = re.compile(r"\bos\.(system|popen|exec\w+|spawn\w+|posix_spawn\w*|fork\w*)\b|\bpty\.")
    assert [name for name, path in MODULES.items() if other_ways.search(path.read_text())] == []


def test_each_engine_has_one_way_in() -> None:
    podman = {"capsule_build.engine.podman", "capsule_build.engine.podman_api"}
    for package, modules in (("docker", {"capsule_build.engine.docker"}), ("podman", podman)):
        users = {
            name
            for name, others in all_imports().items()
            for other in others
            if other == package or other.startswith(f"{package}.")
        }
        assert users, package
        assert users <= modules


def public(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes of a module, and public methods of its public classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, kinds) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, kinds) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for name, _, tree in trees():
        if not ast.get_docstring(tree):
            silent.append(name)
        for what, node in public(tree):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            # A field that is computed, and an overridden method, are told by what they belong to.
            if not ast.get_docstring(node) and not overrides(node):
                silent.append(f"{name}.{what}")
    assert silent == []


def overrides(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "override" for item in node.decorator_list)


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """The files of the repository, as git has them; outside of a clone, what a clone would have."""
    if not (TOP / ".git").exists():
        skipped = {".venv", ".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", "dist"}
        return [path for path in TOP.rglob("*") if path.is_file() and not skipped & set(path.parts)]
    listed = run(["git", "-C", str(TOP), "ls-files", "-z"]).stdout.decode().split("\0")
    return [TOP / name for name in listed if name and (TOP / name).is_file()]


# In pieces, since this file is tracked too.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
        ("ftp", "debian", "org"),
        ("snapshot", "debian", "org"),
        ("security", "debian", "org"),
        ("nodejs", "org/dist"),
    )
)


def test_no_file_names_a_registrys_host(tracked: list[Path]) -> None:
    assert len(tracked) > 80
    found = [
        f"{path.relative_to(TOP)}: {host}"
        for path in tracked
        for content in [path.read_bytes().lower()]
        for host in HOSTS
        if host.encode() in content
    ]
    assert found == []


def test_no_file_names_a_path_of_somebodys_machine(tracked: list[Path]) -> None:
    words = [f"/{'work'}/main", f"/{'work'}/shared", f"/{'root'}/.", f"/{'home'}/user", f"/{'tmp'}/x/"]
    found = [
        f"{path.relative_to(TOP)}: {word}"
        for path in tracked
        for content in [path.read_bytes()]
        for word in words
        if word.encode() in content
    ]
    assert found == []


def test_only_the_fetcher_of_releases_names_their_host(tracked: list[Path]) -> None:
    host = f"{'github'}.com"
    users = {
        path.relative_to(TOP).as_posix()
        for path in tracked
        if path.is_relative_to(PACKAGE) and host.encode() in path.read_bytes().replace(b"purl-spec", b"")
    }
    assert "capsule_build/fetch/github.py" in users
    assert users - {"capsule_build/fetch/github.py"} <= {
        # The address of a format's specification.
        "capsule_build/sbom/origins.py"
    }


def test_no_file_is_too_long_to_be_read(tracked: list[Path]) -> None:
    long = {
        path.relative_to(TOP).as_posix(): lines
        for path in tracked
        if path.suffix in {".py", ".sh", ".c", ".h", ".j2"}
        if (lines := path.read_bytes().count(b"\n")) > 420
    }
    assert long == {}


def test_a_recipe_is_data(tracked: list[Path]) -> None:
    """No module knows a runtime by its name, so that adding one needs no Python."""
    ids = [path.stem for path in (TOP / "recipes").glob("*.toml") if path.stem != "components"]
    assert "node24" in ids
    for name, path in MODULES.items():
        nodes = list(ast.walk(tree_of(path)))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        text = " ".join(
            repr(node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and id(node) not in documentation
        )
        for recipe in ids:
            assert f"'{recipe}'" not in text, f"{name} knows {recipe}"


def test_a_private_key_is_never_committed_by_chance() -> None:
    """The docs make key.pem in a checkout; the public one may be committed."""
    names = ["key.pem", "keys/release.pem", "key.pub.pem", "keys/release.pub.pem"]
    ignored = run(["git", "check-ignore", *names], cwd=TOP).text.split()
    assert ignored == names[:2]


def test_no_python_is_left_out_for_its_tarfile(tracked: list[Path]) -> None:
    """Filters of what is extracted came with Python 3.11.4; Debian 12 has 3.11.2."""
    found = [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for path in tracked
        if path.suffix == ".py"
        for text in [path.read_text()]
        # Most files can't have it, and needn't be parsed.
        if "extract" in text and "filter" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"extract", "extractall"}
        and any(keyword.arg == "filter" for keyword in node.keywords)
    ]
    assert found == []


def test_nothing_that_a_run_makes_is_tracked(tracked: list[Path]) -> None:
    made = {".pyc", ".part", ".orig", ".rej", ".log"}
    assert [path.name for path in tracked if path.suffix in made] == []
