"""The modules of the linked instances, made one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .binary import MODULE_PREAMBLE, number, section, sized, vector
from .code import Numbers, renumbered
from .components import Alias, CoreItem, Gathered
from .errors import LinkError
from .modules import FUNCTION, GLOBAL, MEMORY, TABLE, Module, Operation, encoded, evaluated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .plan import Plan

IMPORTED_FROM: Final = b"others"
"""The name that the one module imports from; the names there are numbers."""

_NOTHING: Final = b"\0"
_ACTIVE_WITH_TABLE: Final = 2
_FUNCTIONS: Final = b"\0"


@dataclass(frozen=True)
class Own:
    """What is one of a linked instance's own: the instance, its kind, and which of them."""

    instance: int
    kind: int
    index: int


Target = Own | CoreItem
"""What an export comes to: one of an instance's own, or a core item from elsewhere."""


@dataclass
class Merged:
    """The one module.

    Attributes:
        imports: What it imports: core functions of the component.
    """

    plan: Plan
    imports: list[CoreItem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._targets: dict[tuple[int, bytes, bytes], Target] = {}
        self._types: dict[bytes, int] = {}
        self._types_of_imports: list[int] = []
        self._first: dict[tuple[int, int], int] = {}
        self._numbers: dict[tuple[int, int], list[int]] = {}
        self._constants: dict[int, Operation] = {}
        self._exports: dict[bytes, tuple[int, int]] = {}
        self._find_imports()
        self._count()

    def export(self, alias: Alias, kind: int) -> bytes:
        """Have it export what a linked instance exported, and return the name for that.

        Raises:
            LinkError: It is none of its own.
        """
        name = b"%d.%s" % (alias.instance, alias.name)
        target = self._exported(alias)
        if not isinstance(target, Own) or target.kind != kind:
            raise LinkError("an export that is none of a linked instance")
        self._exports[name] = kind, self._number(target)
        return name

    def encoded(self) -> bytes:
        """Return it, when all of its exports are known."""
        modules = [(instance, self.plan.of_linked(instance)[0]) for instance in self.plan.linked]
        # First, since types and constants are found on the way.
        globals_ = [one for instance, module in modules for one in self._globals(instance, module)]
        elements = [one for instance, module in modules for one in self._elements(instance, module)]
        functions = [
            number(self._type(module.types[one])) for _, module in modules for one in module.functions
        ]
        bodies = [sized(one) for instance, module in modules for one in self._bodies(instance, module)]
        imports = [
            sized(IMPORTED_FROM) + sized(b"%d" % index) + bytes((FUNCTION,)) + number(kind)
            for index, kind in enumerate(self._types_of_imports)
        ]
        exports = [
            sized(name) + bytes((kind,)) + number(index) for name, (kind, index) in self._exports.items()
        ]
        content: list[tuple[int, Iterable[bytes]]] = [
            (1, self._types),
            (2, imports),
            (3, functions),
            (4, (one for _, module in modules for one in module.tables)),
            (5, (one for _, module in modules for one in module.memories)),
            (6, globals_),
            (7, exports),
            (9, elements),
            (10, bodies),
        ]
        data = section(11, self._data(module for _, module in modules))
        return MODULE_PREAMBLE + b"".join(section(kind, vector(items)) for kind, items in content) + data

    def _find_imports(self) -> None:
        for instance in self.plan.linked:
            module, _ = self.plan.of_linked(instance)
            for one in module.imports:
                target = self._imported(instance, one.module, one.name)
                if isinstance(target, Own):
                    if target.kind != one.kind:
                        raise LinkError("an import of another kind")
                elif target.kind != FUNCTION or one.kind != FUNCTION:
                    raise LinkError("an import from elsewhere that is no function")
                elif target not in self.imports:
                    self.imports.append(target)
                    self._types_of_imports.append(self._type(module.types[one.type]))

    def _count(self) -> None:
        totals = {FUNCTION: len(self.imports), TABLE: 0, MEMORY: 0, GLOBAL: 0}
        for instance in self.plan.linked:
            module, _ = self.plan.of_linked(instance)
            for kind, total in totals.items():
                self._first[instance, kind] = total
                totals[kind] = total + module.own(kind)
        for instance in self.plan.linked:
            module, _ = self.plan.of_linked(instance)
            for kind in totals:
                first = self._first[instance, kind]
                got = [
                    self._number(self._imported(instance, one.module, one.name))
                    for one in module.imported(kind)
                ]
                self._numbers[instance, kind] = [*got, *range(first, first + module.own(kind))]

    def _imported(self, instance: int, of: bytes, name: bytes) -> Target:
        key = instance, of, name
        if key not in self._targets:
            _, made = self.plan.of_linked(instance)
            if of not in made.arguments:
                raise LinkError("an import from an instance that isn't there")
            self._targets[key] = self._exported(Alias(made.arguments[of], name))
        return self._targets[key]

    def _exported(self, alias: Alias) -> Target:
        if alias.instance in self.plan.linked:
            module, _ = self.plan.of_linked(alias.instance)
            if alias.name not in module.exports:
                raise LinkError("an export that isn't there")
            kind, index = module.exports[alias.name]
            got = module.imported(kind)
            if index >= len(got):
                return Own(alias.instance, kind, index - len(got))
            return self._imported(alias.instance, got[index].module, got[index].name)
        made = self.plan.component.instances[alias.instance]
        if not isinstance(made, Gathered) or alias.name not in made.exports:
            raise LinkError("an import from an instance that isn't linked")
        item = made.exports[alias.name]
        definition = self.plan.component.what_is(item)
        if isinstance(definition, Alias):
            of = self.plan.component.instances[definition.instance]
            if definition.instance in self.plan.linked or isinstance(of, Gathered):
                return self._exported(definition)
        return item

    def _number(self, target: Target) -> int:
        if isinstance(target, Own):
            return self._first[target.instance, target.kind] + target.index
        return self.imports.index(target)

    def _type(self, kind: bytes) -> int:
        return self._types.setdefault(kind, len(self._types))

    def _globals(self, instance: int, module: Module) -> Iterable[bytes]:
        for index, (kind, expression) in enumerate(module.globals):
            constant = evaluated(expression, lambda other: self._constant(instance, other))
            if kind.endswith(b"\0"):
                # It is never set, so what it begins with may be written where it is read.
                self._constants[self._first[instance, GLOBAL] + index] = constant
            yield kind + encoded(constant)

    def _constant(self, instance: int, index: int) -> Operation:
        try:
            return self._constants[self._numbers[instance, GLOBAL][index]]
        except LookupError:
            raise LinkError("a constant that isn't known") from None

    def _elements(self, instance: int, module: Module) -> Iterable[bytes]:
        functions, tables = self._numbers[instance, FUNCTION], self._numbers[instance, TABLE]
        for one in module.elements:
            offset = encoded(evaluated(one.offset, lambda other: self._constant(instance, other)))
            try:
                head = number(_ACTIVE_WITH_TABLE) + number(tables[one.table]) + offset + _FUNCTIONS
                yield head + vector(number(functions[function]) for function in one.functions)
            except IndexError:
                raise LinkError("elements that aren't there") from None

    def _bodies(self, instance: int, module: Module) -> Iterable[bytes]:
        functions, globals_, tables = (
            [number(one) for one in self._numbers[instance, kind]] for kind in (FUNCTION, GLOBAL, TABLE)
        )
        numbers = Numbers(functions, globals_, tables, [self._type(kind) for kind in module.types])
        return (renumbered(body, numbers) for body in module.bodies)

    def _data(self, modules: Iterable[Module]) -> bytes:
        found = [module.data for module in modules if module.data != _NOTHING]
        if len(found) > 1:
            raise LinkError("several modules with data")
        return found[0] if found else _NOTHING
