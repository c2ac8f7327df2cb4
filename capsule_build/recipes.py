"""Recipes: `recipes/<id>.toml`, read into a model. A runtime is data: adding one needs no Python.

The format's keys are documented in docs/recipes.md.
"""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .runtime.errors import ContractError, UsageError
from .runtime.platforms import LIBCS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SCHEMA_VERSION: Final = 1
_NOT_RECIPES: Final = frozenset({"components"})
_TAG: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*-v[1-9][0-9]*")
_EXACT_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_OPTION: Final = re.compile(r"--[a-z0-9]+(-[a-z0-9]+)*-version")
_SHELL: Final = "busybox-static"
PACKAGE_KINDS: Final = ("npm", "pypi")
"""What packages inside a component can be: those of a node_modules, those of a site-packages folder."""
_SMOKE_WORDS: Final = ("native", "root", "arch")


@dataclass(frozen=True)
class RuntimeChoice:
    """A component whose version a user can choose.

    Attributes:
        name: What users call it: in `--source`, in the SBOM, and in the recipe's own texts.
        component: Its name in components.toml, where several series of it can lie side by side.
        option: The command's option, such as `--node-version`.
        series: What an exact version must begin with (`24`, `3.12`); empty: any.
        in_version: Whether the capsule's version always names it.
        marker: A file below the root of somebody's own build of it (`--source`), by which that root is found.
        version_file: The file below that root that says its version ...
        version_pattern: ... where the groups of this pattern, joined by dots, are the version.
        texts: The component that has the licence texts of what upstream linked into it; empty: they come
            with it.
        linked: What upstream linked into it: the licence texts that the bundle should have.
        prefix_takes: What is taken of an installed prefix (globs below it); empty: only archives are.
        prefix_leaves: What of that is left.
    """

    name: str
    component: str
    option: str
    series: str
    in_version: bool
    marker: str
    version_file: str
    version_pattern: str
    texts: str
    linked: tuple[str, ...]
    prefix_takes: tuple[str, ...]
    prefix_leaves: tuple[str, ...]

    @property
    def form(self) -> str:
        """What a version of the series looks like: `24.x.y`."""
        fixed = self.series.split(".") if self.series else []
        return ".".join([*fixed, *"xyz"[: 3 - len(fixed)]])

    def check(self, version: str, *, option: str | None = None) -> str:
        """Return `version` if it is an exact one of the series.

        Args:
            version: What was asked for.
            option: The option that it was asked for with, where that isn't the recipe's own.

        Raises:
            UsageError: It isn't.
        """
        option = option or self.option
        if not _EXACT_VERSION.fullmatch(version):
            raise UsageError(
                f"{option} '{version}' is not an exact version.",
                hint=f"Give all three numbers, as in {self.form}: a capsule is made of exact inputs.",
            )
        if self.series and not version.startswith(f"{self.series}."):
            raise UsageError(
                f"{option} '{version}' is not a version of this recipe, which makes {self.form}.",
                hint="Another series needs a recipe of its own: see docs/recipes.md.",
            )
        return version


@dataclass(frozen=True)
class Packages:
    """Packages that come inside another component.

    Attributes:
        kind: What they are packages of: one of `PACKAGE_KINDS`.
        folder: Where they lie in the bundle.
        inside: The component that they come with.
        names: Those that must be among them, and that a smoke check can name.
    """

    kind: str
    folder: str
    inside: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Contained:
    """What upstream linked into a component, where a file of the finished tree says which version.

    Attributes:
        name: Its name.
        inside: The component.
        license: Its licence, an SPDX expression; the text is among those of the component.
        cpe: Its name in lists of vulnerabilities (CPE 2.3), in which `{version}` is replaced; may be empty.
        version_file: The file in the bundle ...
        version_pattern: ... where the groups of this pattern, joined by dots, are the version.
    """

    name: str
    inside: str
    license: str
    cpe: str
    version_file: str
    version_pattern: str


@dataclass(frozen=True)
class SmokeCheck:
    """A tool, its arguments, and what it must print.

    There `{component}` stands for a version, `{root}` for the install root, `{arch}` for the architecture.
    """

    tool: str
    arguments: tuple[str, ...]
    expect: str


@dataclass(frozen=True)
class Recipe:
    """What a capsule is made of; docs/recipes.md has the keys.

    `spdx` names the component with the SPDX licence list's texts (empty: none), `written` the files that the
    build writes itself, beside the capsule's own tools.
    """

    id: str
    tag: str
    title: str
    libcs: tuple[str, ...]
    template: str
    runtimes: tuple[RuntimeChoice, ...]
    shipped: tuple[str, ...]
    linked: tuple[str, ...]
    licences: tuple[str, ...]
    build: tuple[str, ...]
    spdx: str
    written: tuple[str, ...]
    tools: Mapping[str, str]
    packages: tuple[Packages, ...]
    contained: tuple[Contained, ...]
    smoke: tuple[SmokeCheck, ...]
    path: Path

    @property
    def component_names(self) -> frozenset[str]:
        """The components that it takes in."""
        runtimes = (name for choice in self.runtimes for name in (choice.component, choice.texts) if name)
        return frozenset((*runtimes, *self.shipped, *self.linked, *self.licences, *self.build, *self._lists))

    @property
    def _lists(self) -> tuple[str, ...]:
        return (self.spdx,) if self.spdx else ()


def load_recipe(path: Path) -> Recipe:
    """Read one recipe.

    Raises:
        ContractError: It isn't TOML, lacks a key, or has one that means nothing.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(f"The recipe {path} can't be read: {error}.") from error
    reader = _Table(path, "", data)
    if reader.take("schema_version", int) != SCHEMA_VERSION:
        raise ContractError(f"The recipe {path} has a schema_version that this capsule-build doesn't know.")
    components = reader.table("components")
    tools = reader.table("tools")
    recipe = Recipe(
        id=reader.take("id", str),
        tag=reader.take("tag", str),
        title=reader.take("title", str),
        libcs=reader.strings("libcs"),
        template=reader.take("template", str),
        runtimes=reader.each("runtime", _runtime),
        shipped=components.strings("shipped"),
        linked=components.strings("linked"),
        licences=components.strings("licences"),
        build=components.strings("build"),
        spdx=components.take("spdx", str, ""),
        written=components.strings("written", ()),
        tools=tools.all_strings(),
        packages=reader.each("packages", _packages),
        contained=reader.each("contained", _contained),
        smoke=reader.each("smoke", _smoke),
        path=path,
    )
    components.finish()
    reader.finish()
    _check(recipe)
    return recipe


def load_recipes(folder: Path) -> dict[str, Recipe]:
    """Read all recipes of a folder, by their ids.

    Raises:
        UsageError: The folder isn't there or holds no recipe.
        ContractError: One of them is malformed.
    """
    if not folder.is_dir():
        raise UsageError(f"The recipe folder {folder} isn't there.")
    recipes = {
        path.stem: load_recipe(path)
        for path in sorted(folder.glob("*.toml"))
        if path.stem not in _NOT_RECIPES
    }
    if not recipes:
        raise UsageError(f"The folder {folder} holds no recipe.", hint="A recipe is a file <id>.toml.")
    return recipes


def find_recipe(recipes: Mapping[str, Recipe], name: str) -> Recipe:
    """Return the recipe of that id.

    Raises:
        UsageError: There is none; the message suggests the nearest.
    """
    if name in recipes:
        return recipes[name]
    near = difflib.get_close_matches(name, recipes, n=1, cutoff=0.4)
    raise UsageError(
        f"There is no recipe '{name}'" + (f": did you mean '{near[0]}'?" if near else "."),
        hint=f"Recipes: {', '.join(recipes)}.",
    )


def check_libc(recipe: Recipe, libc: str) -> str:
    """Return `libc` if the recipe can be built for it.

    Raises:
        UsageError: It can't.
    """
    if libc not in recipe.libcs:
        raise UsageError(
            f"'{libc}' is not a C library that {recipe.id} is made for: {' or '.join(recipe.libcs)}."
        )
    return libc


def _runtime(table: _Table) -> RuntimeChoice:
    component = table.take("component", str)
    return RuntimeChoice(
        name=table.take("name", str, component),
        component=component,
        option=table.take("option", str),
        series=table.take("series", str, ""),
        in_version=table.take("in_version", bool, False),
        marker=table.take("marker", str),
        version_file=table.take("version_file", str),
        version_pattern=_pattern(table),
        texts=table.take("texts", str, ""),
        linked=table.strings("linked", ()),
        prefix_takes=table.strings("prefix_takes", ()),
        prefix_leaves=table.strings("prefix_leaves", ()),
    )


def _packages(table: _Table) -> Packages:
    plain = table.all_strings("kind", "folder", "inside")
    return Packages(**plain, names=table.strings("names", ()))


def _contained(table: _Table) -> Contained:
    plain = table.all_strings("name", "inside", "license", "version_file")
    return Contained(cpe=table.take("cpe", str, ""), version_pattern=_pattern(table), **plain)


def _pattern(table: _Table) -> str:
    pattern = table.take("version_pattern", str)
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise table.error("version_pattern", f"isn't a regular expression: {error}") from error
    if not groups:
        raise table.error("version_pattern", "has no group for the version")
    return pattern


def _smoke(table: _Table) -> SmokeCheck:
    return SmokeCheck(table.take("tool", str), table.strings("arguments"), table.take("expect", str))


def _check(recipe: Recipe) -> None:
    """Refuse what is well-formed but can't be meant."""

    def refuse(what: str) -> ContractError:
        return ContractError(f"The recipe {recipe.path} {what}.")

    if recipe.id != recipe.path.stem:
        raise refuse(f"has the id '{recipe.id}', which differs from its file's name")
    if not _TAG.fullmatch(recipe.tag):
        raise refuse(f"has the tag {recipe.tag!r}, which is not of the form <name>-v<number>")
    if not recipe.libcs or not set(recipe.libcs) <= set(LIBCS):
        raise refuse(f"names libcs other than {', '.join(LIBCS)}")
    if not any(choice.in_version for choice in recipe.runtimes):
        raise refuse("has no runtime that makes up its version")
    if _SHELL not in recipe.build:
        raise refuse(f"lacks '{_SHELL}' among what runs in the build: it is every build's shell")
    options = [choice.option for choice in recipe.runtimes]
    for option in options:
        if not _OPTION.fullmatch(option) or options.count(option) > 1:
            raise refuse(f"has the option '{option}', which is not one of its own such as --node-version")
    named = (choice.name for choice in recipe.runtimes), recipe.shipped, recipe.linked
    components = {*itertools.chain(*named)}
    for packages in recipe.packages:
        if packages.kind not in PACKAGE_KINDS:
            raise refuse(f"has packages of the kind '{packages.kind}' (known: {', '.join(PACKAGE_KINDS)})")
        if packages.inside not in components:
            raise refuse(f"has packages inside '{packages.inside}', which is no component of it")
    for contained in recipe.contained:
        if contained.inside not in components:
            raise refuse(f"says what '{contained.inside}' contains, which is no component of it")
    words = {*components, *(name for packages in recipe.packages for name in packages.names), *_SMOKE_WORDS}
    for check in recipe.smoke:
        if check.tool not in recipe.tools:
            raise refuse(f"has a smoke check of '{check.tool}', which isn't among its tools")
        try:
            unknown = {word for _, word, _, _ in Formatter().parse(check.expect) if word is not None} - words
        except ValueError as error:
            raise refuse(f"has a malformed 'expect' for '{check.tool}': {error}") from error
        if unknown:
            raise refuse(f"expects '{{{min(unknown)}}}' of '{check.tool}', which is no component's version")
    unchecked = set(recipe.tools) - {check.tool for check in recipe.smoke}
    if unchecked:
        raise refuse(f"has no smoke check of {', '.join(sorted(unchecked))}")


_MISSING: Final[Any] = object()
_Value = TypeVar("_Value")


class _Table:
    """A TOML table that is read key by key and has nothing left in the end."""

    def __init__(self, path: Path, name: str, data: dict[str, Any]) -> None:
        self._path = path
        self._name = name
        self._data = dict(data)

    def error(self, key: str, what: str) -> ContractError:
        where = f"{self._name}.{key}" if self._name else key
        return ContractError(
            f"The recipe {self._path}: '{where}' {what}.", hint="docs/recipes.md lists the keys."
        )

    def take(self, key: str, kind: type[_Value], default: _Value = _MISSING) -> _Value:
        value = self._data.pop(key, default)
        if value is _MISSING:
            raise self.error(key, "is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"should be a {kind.__name__}")
        return value

    def strings(self, key: str, default: Any = _MISSING) -> tuple[str, ...]:
        values = self.take(key, list, default if default is _MISSING else list(default))
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, "should hold strings")
        return tuple(values)

    def all_strings(self, *keys: str) -> dict[str, str]:
        return {key: self.take(key, str) for key in keys or tuple(self._data)}

    def table(self, key: str) -> _Table:
        return _Table(self._path, key, self.take(key, dict))

    def each(self, key: str, read: Callable[[_Table], _Value]) -> tuple[_Value, ...]:
        values = []
        for data in self.take(key, list, []):
            if not isinstance(data, dict):
                raise self.error(key, "should be an array of tables")
            table = _Table(self._path, key, data)
            values.append(read(table))
            table.finish()
        return tuple(values)

    def finish(self) -> None:
        for key in self._data:
            raise self.error(key, "means nothing here")
