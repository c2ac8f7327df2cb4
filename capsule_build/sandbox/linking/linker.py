"""From a component to one whose linked instances are one instance of one module.

The one instance is made as soon as all is there that it imports; what needs it comes behind it, in its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .binary import PREAMBLE_BYTES, number, section, sized, vector
from .components import (
    ALIAS,
    CANONICAL,
    CORE_INSTANCE,
    CORE_MODULE,
    GATHER,
    INSTANCE_SORT,
    INSTANTIATE,
    OF_CORE_INSTANCE,
    Alias,
    Canonical,
    Component,
    CoreInstance,
    CoreItem,
    CoreModule,
    Gathered,
    Instantiated,
    Lift,
    Part,
    read_component,
)
from .errors import LinkError
from .merging import IMPORTED_FROM, Merged
from .plan import Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    AnyPart = Part | CoreModule | CoreInstance | CoreItem | Lift


def link(binary: bytes) -> bytes:
    """Link the core modules of a component that share a memory.

    Raises:
        LinkError: It has something that this program doesn't link: it is to be used as it is.
        WasmError: It isn't whole.
    """
    try:
        plan = make_plan(read_component(binary))
        return binary[:PREAMBLE_BYTES] + b"".join(_Writer(plan).written())
    except (LookupError, RecursionError) as error:
        # Numbers of what isn't there: Wasmtime says of such a component what is wrong with it.
        raise LinkError(f"a component that isn't right: {error!r}") from None


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._component: Component = plan.component
        self._merged = Merged(plan)
        self._kept = _needed(plan, self._merged.imports)
        linked = {plan.of_linked(instance)[1].module for instance in plan.linked}
        stay = [module for module in range(len(plan.component.modules)) if module not in linked]
        self._modules = {module: index for index, module in enumerate(stay)}
        self._items: dict[CoreItem, int] = {}
        self._counts: dict[int, int] = {}
        self._instances: dict[int, int] = {}
        self._made = 0
        self._one: int | None = None

    def written(self) -> list[bytes]:
        """Return the sections."""
        sections: list[bytes] = []
        waiting: list[AnyPart] = []
        for part in self._component.parts:
            if self._one is None and self._waits(part):
                waiting.append(part)
            else:
                sections += self._part(part)
            if self._one is None and all(one in self._items for one in self._merged.imports):
                sections += self._linked()
                sections += [written for one in waiting for written in self._part(one)]
        # Modules need nothing, and so come first. The one has the exports that what was written takes.
        modules = [self._component.modules[module] for module in self._modules]
        return [section(CORE_MODULE, one) for one in [*modules, self._merged.encoded()]] + sections

    def _waits(self, part: AnyPart) -> bool:
        if isinstance(part, CoreInstance):
            return self._plan.comes_after(part.instance)
        return isinstance(part, Lift) or (isinstance(part, CoreItem) and self._plan.comes_after(part))

    def _linked(self) -> Iterator[bytes]:
        exports = {b"%d" % index: item for index, item in enumerate(self._merged.imports)}
        yield self._gathered(exports)
        argument = sized(IMPORTED_FROM) + bytes((INSTANCE_SORT,)) + number(self._made)
        self._made += 1
        yield _single(CORE_INSTANCE, bytes((INSTANTIATE,)) + number(len(self._modules)) + vector([argument]))
        self._one = self._made
        self._made += 1

    def _part(self, part: AnyPart) -> Iterator[bytes]:
        if isinstance(part, Part):
            yield part.content
        elif isinstance(part, Lift):
            yield _single(CANONICAL, self._canonical(part.canonical))
        elif isinstance(part, CoreItem) and part in self._kept:
            definition = self._component.what_is(part)
            if isinstance(definition, Canonical):
                yield _single(CANONICAL, self._canonical(definition))
            else:
                yield self._alias(definition, part.kind)
            index = self._items[part] = self._counts.get(part.kind, 0)
            self._counts[part.kind] = index + 1
        elif isinstance(part, CoreInstance) and part.instance in self._kept:
            yield from self._instance(part.instance)

    def _instance(self, instance: int) -> Iterator[bytes]:
        if instance in self._plan.linked:
            return
        made = self._component.instances[instance]
        if isinstance(made, Gathered):
            yield self._gathered(made.exports)
        else:
            yield self._instantiated(made)
        self._instances[instance] = self._made
        self._made += 1

    def _gathered(self, exports: dict[bytes, CoreItem]) -> bytes:
        written = (
            sized(name) + bytes((item.kind,)) + number(self._items[item]) for name, item in exports.items()
        )
        return _single(CORE_INSTANCE, bytes((GATHER,)) + vector(written))

    def _instantiated(self, made: Instantiated) -> bytes:
        arguments = (
            sized(name) + bytes((INSTANCE_SORT,)) + number(self._instances[instance])
            for name, instance in made.arguments.items()
        )
        module = number(self._modules[made.module])
        return _single(CORE_INSTANCE, bytes((INSTANTIATE,)) + module + vector(arguments))

    def _alias(self, alias: Alias, kind: int) -> bytes:
        instance, name = self._instances.get(alias.instance), alias.name
        if alias.instance in self._plan.linked:
            instance, name = self._one, self._merged.export(alias, kind)
        return _single(ALIAS, bytes((0, kind, OF_CORE_INSTANCE)) + number(instance or 0) + sized(name))

    def _canonical(self, canonical: Canonical) -> bytes:
        written = canonical.head
        if canonical.function is not None:
            written += number(self._items[canonical.function])
        if canonical.options is not None:
            written += vector(
                bytes((code,)) + (b"" if item is None else number(self._items[item]))
                for code, item in canonical.options
            )
        return written + canonical.tail


def _needed(plan: Plan, imports: Iterable[CoreItem]) -> set[CoreItem | int]:
    """Return the items and instances that stay: those that something outside of the linked ones needs."""
    waiting: list[CoreItem | int] = list(imports)
    for part in plan.component.parts:
        if isinstance(part, Lift):
            waiting += part.canonical.items()
    for instance, made in enumerate(plan.component.instances):
        if isinstance(made, Instantiated) and instance not in plan.linked:
            waiting.append(instance)
    needed: set[CoreItem | int] = set()
    while waiting:
        place = waiting.pop()
        if place not in needed:
            needed.add(place)
            waiting += plan.needed_by(place)
    return needed


def _single(kind: int, item: bytes) -> bytes:
    return section(kind, number(1) + item)
