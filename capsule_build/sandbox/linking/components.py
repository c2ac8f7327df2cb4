"""A component, taken apart as far as its core modules and instances go; the rest of it is kept as it is.

Format: `Binary.md` of the component model. A component's parts refer to each other by numbers, which each
kind of part has of its own, in the order of the parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .binary import Reader, number, section, sections
from .errors import LinkError
from .modules import FUNCTION, GLOBAL, MEMORY, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE_MODULE, CORE_INSTANCE, ALIAS, CANONICAL = 1, 2, 6, 8
INSTANCE_SORT = 0x12
OF_CORE_INSTANCE = 1
INSTANTIATE, GATHER = 0, 1

_CORE_SORT = 0
_ALIAS_OF_INSTANCE, _ALIAS_OUTER = 0, 2
_LIFT, _LOWER = 0, 1
_OF_RESOURCES = (2, 3, 4)  # new, drop, rep
_PLAIN_OPTIONS = (0, 1, 2, 6)  # encodings of text; async
_OF_MEMORY, _OF_FUNCTIONS = 3, (4, 5, 7)  # realloc, post-return, callback


@dataclass(frozen=True)
class Part:
    """A section of one part that has nothing to do with the core: `content` is the whole of it."""

    content: bytes


@dataclass(frozen=True)
class CoreModule:
    """A core module, by its number."""

    module: int


@dataclass(frozen=True)
class CoreInstance:
    """An instance of a core module, by its number."""

    instance: int


@dataclass(frozen=True)
class CoreItem:
    """A core function, table, memory or global that is defined here: by its kind and number."""

    kind: int
    index: int


@dataclass(frozen=True)
class Lift:
    """A function of the component, made of a core function."""

    canonical: Canonical


@dataclass(frozen=True)
class Instantiated:
    """What an instance is: a module, and the instances by the names that it imports from."""

    module: int
    arguments: dict[bytes, int]


@dataclass(frozen=True)
class Gathered:
    """What an instance is: core items by the names that it exports them by."""

    exports: dict[bytes, CoreItem]


@dataclass(frozen=True)
class Alias:
    """What a core item is: an instance's export."""

    instance: int
    name: bytes


@dataclass(frozen=True)
class Canonical:
    """What a core function is: made of the component's function, or of a resource. For `Lift`: the reverse.

    Attributes:
        head: What comes before.
        function: The core function, of `Lift`.
        options: Each code, and the core item that it names.
        tail: What comes after.
    """

    head: bytes
    function: CoreItem | None
    options: list[tuple[int, CoreItem | None]] | None
    tail: bytes

    def items(self) -> Iterator[CoreItem]:
        """Yield the core items that it names."""
        if self.function is not None:
            yield self.function
        yield from (item for _, item in self.options or () if item is not None)


@dataclass
class Component:
    """A component.

    Attributes:
        parts: All of it, in its order.
        modules: Core modules.
        instances: What each core instance is.
        items: What each core item is, by kind.
    """

    parts: list[Part | CoreModule | CoreInstance | CoreItem | Lift] = field(default_factory=list)
    modules: list[bytes] = field(default_factory=list)
    instances: list[Instantiated | Gathered] = field(default_factory=list)
    items: dict[int, list[Alias | Canonical]] = field(
        default_factory=lambda: {kind: [] for kind in (FUNCTION, TABLE, MEMORY, GLOBAL)}
    )

    def define(self, kind: int, definition: Alias | Canonical) -> None:
        """Add a core item."""
        if kind not in self.items:
            raise LinkError(f"a core item of the kind {kind}")
        self.items[kind].append(definition)
        self.parts.append(CoreItem(kind, len(self.items[kind]) - 1))

    def what_is(self, item: CoreItem) -> Alias | Canonical:
        """Return what a core item is.

        Raises:
            LinkError: There is none.
        """
        try:
            return self.items[item.kind][item.index]
        except LookupError:
            raise LinkError(f"a core item {item.index} of the kind {item.kind}") from None


def read_component(binary: bytes) -> Component:
    """Take a component apart.

    Raises:
        LinkError: It has something that isn't known here.
        WasmError: It isn't whole.
    """
    component = Component()
    for kind, content in sections(binary):
        reader = Reader(content)
        if kind == CORE_MODULE:
            component.modules.append(content)
            component.parts.append(CoreModule(len(component.modules) - 1))
        elif kind == CORE_INSTANCE:
            for _ in reader.times():
                component.instances.append(_instance(reader))
                component.parts.append(CoreInstance(len(component.instances) - 1))
        elif kind == ALIAS:
            for _ in reader.times():
                _alias(component, reader)
        elif kind == CANONICAL:
            for _ in reader.times():
                _canonical(component, reader)
        else:
            component.parts.append(Part(section(kind, content)))
    return component


def _instance(reader: Reader) -> Instantiated | Gathered:
    kind = reader.byte()
    if kind == GATHER:
        return Gathered({reader.name(): CoreItem(reader.byte(), reader.number()) for _ in reader.times()})
    if kind != INSTANTIATE:
        raise LinkError(f"a core instance of the kind {kind}")
    module = reader.number()
    arguments = {}
    for _ in reader.times():
        name = reader.name()
        if reader.byte() != INSTANCE_SORT:
            raise LinkError("an argument that isn't an instance")
        arguments[name] = reader.number()
    return Instantiated(module, arguments)


def _alias(component: Component, reader: Reader) -> None:
    start = reader.at
    sort = reader.byte()
    core = reader.byte() if sort == _CORE_SORT else None
    target = reader.byte()
    if core is not None and target == OF_CORE_INSTANCE:
        component.define(core, Alias(reader.number(), reader.name()))
        return
    if core is not None or target not in (_ALIAS_OF_INSTANCE, _ALIAS_OUTER):
        raise LinkError("an alias of a core item of elsewhere")
    reader.number()
    if target == _ALIAS_OF_INSTANCE:
        reader.name()
    else:
        reader.number()
    component.parts.append(Part(section(ALIAS, number(1) + reader.data[start : reader.at])))


def _canonical(component: Component, reader: Reader) -> None:
    start = reader.at
    kind = reader.byte()
    if kind in _OF_RESOURCES:
        reader.number()
        component.define(FUNCTION, Canonical(reader.data[start : reader.at], None, None, b""))
        return
    if kind not in (_LIFT, _LOWER) or reader.byte() != 0:
        raise LinkError(f"a canonical function of the kind {kind}")
    function = reader.number()
    if kind == _LOWER:
        head = reader.data[start : reader.at]
        component.define(FUNCTION, Canonical(head, None, _options(reader), b""))
        return
    head, options = reader.data[start : start + 2], _options(reader)
    lift = Canonical(head, CoreItem(FUNCTION, function), options, number(reader.number()))
    component.parts.append(Lift(lift))


def _options(reader: Reader) -> list[tuple[int, CoreItem | None]]:
    options: list[tuple[int, CoreItem | None]] = []
    for _ in reader.times():
        code = reader.byte()
        if code == _OF_MEMORY:
            options.append((code, CoreItem(MEMORY, reader.number())))
        elif code in _OF_FUNCTIONS:
            options.append((code, CoreItem(FUNCTION, reader.number())))
        elif code in _PLAIN_OPTIONS:
            options.append((code, None))
        else:
            raise LinkError(f"an option {code} of a canonical function")
    return options
