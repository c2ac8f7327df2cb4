"""A core module, taken apart.

What its instances could tell from what they are linked with isn't known here, and refused: start functions,
several memories, tables and data beyond what linkers of C and Rust leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .binary import CUSTOM_SECTION, MODULE_PREAMBLE, Reader, sections, signed
from .errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTION, TABLE, MEMORY, GLOBAL = range(4)
VALUE_TYPES: Final = frozenset(b"\x7f\x7e\x7d\x7c\x7b\x70\x6f")
"""i32, i64, f32, f64, v128, funcref, externref: each is one byte."""

_FUNCTION_TYPE = 0x60
_FUNCREF = b"\x70"
_EMPTY = b"\0"
_ACTIVE, _ACTIVE_WITH_TABLE = 0, 2
_END = 0x0B
_I32_CONST, _I64_CONST, _F32_CONST, _F64_CONST = 0x41, 0x42, 0x43, 0x44
_GLOBAL_GET = 0x23
_ARITHMETIC: Final[dict[int, Callable[[int, int], int]]] = {
    0x6A: int.__add__,
    0x6B: int.__sub__,
    0x6C: int.__mul__,
}

Operation = tuple[int, "int | bytes"]
Expression = list[Operation]


@dataclass(frozen=True)
class Import:
    """What a module gets: whose, its name there, its kind, and a function's type."""

    module: bytes
    name: bytes
    kind: int
    type: int = 0


@dataclass(frozen=True)
class Elements:
    """Functions that a table has from an offset on."""

    table: int
    offset: Expression
    functions: list[int]


@dataclass
class Module:
    """A module. Types, tables, memories and bodies are as they are encoded.

    Attributes:
        types: Of functions.
        imports: What it gets.
        functions: The types of its own ones.
        tables: Its own.
        memories: Its own.
        globals: Its own: type and what each begins with.
        exports: Kind and index by name.
        elements: What its tables begin with.
        bodies: The code of its own functions.
        data: The section of its data.
    """

    types: list[bytes] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    tables: list[bytes] = field(default_factory=list)
    memories: list[bytes] = field(default_factory=list)
    globals: list[tuple[bytes, Expression]] = field(default_factory=list)
    exports: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    elements: list[Elements] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    data: bytes = _EMPTY

    def own(self, kind: int) -> int:
        """Return how many of a kind are its own."""
        return len((self.functions, self.tables, self.memories, self.globals)[kind])

    def imported(self, kind: int) -> list[Import]:
        """Return what it gets of a kind: these have the first indices."""
        return [one for one in self.imports if one.kind == kind]


def read_module(binary: bytes) -> Module:
    """Take a module apart.

    Raises:
        LinkError: It has something that isn't known here.
        WasmError: It isn't whole.
    """
    if binary[: len(MODULE_PREAMBLE)] != MODULE_PREAMBLE:
        raise LinkError("a module of another version")
    module = Module()
    for kind, content in sections(binary):
        if kind == CUSTOM_SECTION:
            continue
        if kind not in _READERS:
            raise LinkError(f"a section {kind} of a module")
        _READERS[kind](module, Reader(content))
    return module


def evaluated(expression: Expression, of_global: Callable[[int], Operation]) -> Operation:
    """Return the one constant that an expression is.

    Args:
        expression: The expression.
        of_global: Returns the constant that a global is.
    """
    stack: list[Operation] = []
    for code, operand in expression:
        if code == _GLOBAL_GET and isinstance(operand, int):
            stack.append(of_global(operand))
        elif code in _ARITHMETIC:
            (kind, second), (other, first) = stack.pop(), stack.pop()
            if not (kind == other == _I32_CONST and isinstance(first, int) and isinstance(second, int)):
                raise LinkError("a sum of what aren't two numbers of 32 bits")
            total = _ARITHMETIC[code](first, second)
            stack.append((_I32_CONST, (total + (1 << 31)) % (1 << 32) - (1 << 31)))
        else:
            stack.append((code, operand))
    return stack.pop()


def encoded(constant: Operation) -> bytes:
    """Return the expression that is one constant."""
    code, operand = constant
    return bytes((code,)) + (signed(operand) if isinstance(operand, int) else operand) + bytes((_END,))


def value_type(reader: Reader) -> bytes:
    """Return a type of values."""
    kind = reader.take(1)
    if kind[0] not in VALUE_TYPES:
        raise LinkError(f"a type of values {kind.hex()}")
    return kind


def _limits(reader: Reader) -> bytes:
    start = reader.at
    has_most = reader.byte()
    if has_most not in (0, 1):
        raise LinkError(f"limits of the kind {has_most}")
    for _ in range(1 + has_most):
        reader.number()
    return reader.data[start : reader.at]


def _table_type(reader: Reader) -> bytes:
    if reader.take(1) != _FUNCREF:
        raise LinkError("a table of something else than functions")
    return _FUNCREF + _limits(reader)


def _global_type(reader: Reader) -> bytes:
    return value_type(reader) + reader.take(1)


def _expression(reader: Reader) -> Expression:
    operations: Expression = []
    while (code := reader.byte()) != _END:
        if code in (_I32_CONST, _I64_CONST):
            operations.append((code, reader.signed()))
        elif code in (_F32_CONST, _F64_CONST):
            operations.append((code, reader.take(4 if code == _F32_CONST else 8)))
        elif code == _GLOBAL_GET:
            operations.append((code, reader.number()))
        elif code in _ARITHMETIC:
            operations.append((code, 0))
        else:
            raise LinkError(f"an operation {code:#x} in a constant")
    return operations


def _types(module: Module, reader: Reader) -> None:
    for _ in reader.times():
        start = reader.at
        if reader.byte() != _FUNCTION_TYPE:
            raise LinkError("a type of something else than functions")
        for _ in range(2):
            for _ in reader.times():
                value_type(reader)
        module.types.append(reader.data[start : reader.at])


def _imports(module: Module, reader: Reader) -> None:
    for _ in reader.times():
        of, name, kind = reader.name(), reader.name(), reader.byte()
        if kind == FUNCTION:
            module.imports.append(Import(of, name, kind, reader.number()))
            continue
        if kind not in _IMPORTED:
            raise LinkError(f"an import of the kind {kind}")
        _IMPORTED[kind](reader)
        module.imports.append(Import(of, name, kind))


def _functions(module: Module, reader: Reader) -> None:
    module.functions = [reader.number() for _ in reader.times()]


def _tables(module: Module, reader: Reader) -> None:
    module.tables = [_table_type(reader) for _ in reader.times()]


def _memories(module: Module, reader: Reader) -> None:
    module.memories = [_limits(reader) for _ in reader.times()]


def _globals(module: Module, reader: Reader) -> None:
    module.globals = [(_global_type(reader), _expression(reader)) for _ in reader.times()]


def _exports(module: Module, reader: Reader) -> None:
    for _ in reader.times():
        name = reader.name()
        module.exports[name] = reader.byte(), reader.number()


def _elements(module: Module, reader: Reader) -> None:
    for _ in reader.times():
        kind = reader.number()
        if kind not in (_ACTIVE, _ACTIVE_WITH_TABLE):
            raise LinkError(f"elements of the kind {kind}")
        table = reader.number() if kind == _ACTIVE_WITH_TABLE else 0
        offset = _expression(reader)
        if kind == _ACTIVE_WITH_TABLE and reader.byte() != 0:
            raise LinkError("elements that aren't functions")
        module.elements.append(Elements(table, offset, [reader.number() for _ in reader.times()]))


def _code(module: Module, reader: Reader) -> None:
    module.bodies = [reader.name() for _ in reader.times()]


def _data(module: Module, reader: Reader) -> None:
    module.data = reader.data


def _data_count(_module: Module, reader: Reader) -> None:
    if reader.data != _EMPTY:
        raise LinkError("code that asks for data")


_IMPORTED: Final[dict[int, Callable[[Reader], bytes]]] = {
    TABLE: _table_type,
    MEMORY: _limits,
    GLOBAL: _global_type,
}
_READERS: Final[dict[int, Callable[[Module, Reader], None]]] = {
    1: _types,
    2: _imports,
    3: _functions,
    4: _tables,
    5: _memories,
    6: _globals,
    7: _exports,
    9: _elements,
    10: _code,
    11: _data,
    12: _data_count,
}
