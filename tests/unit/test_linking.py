"""Core modules that share a memory, linked to one: what comes out does what went in does."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import Config, Engine, Store, wat2wasm
from wasmtime.component import Component, Linker

from capsule_build.sandbox.linking.components import CoreModule, read_component
from capsule_build.sandbox.linking.errors import LinkError
from capsule_build.sandbox.linking.linker import link
from capsule_build.sandbox.linking.modules import read_module
from capsule_build.sandbox.wasmtime_abi import WasmError
from tests.damage import damaged

CONFIG = Config()
CONFIG.wasm_component_model = True
ENGINE = Engine(CONFIG)
TEXT = Path(__file__).parents[1].joinpath("data/libraries.wat").read_text()
WHOLE = bytes(wat2wasm(TEXT))


def outcomes(binary: bytes) -> tuple[list[Any], list[str]]:
    """Return what a component's functions return, in turn, and what they give the host."""
    said: list[str] = []
    linker = Linker(ENGINE)
    with linker.root() as root:
        root.add_func("log", lambda _store, text: said.append(text))
    store = Store(ENGINE)
    instance = linker.instantiate(store, Component(ENGINE, binary))
    found = []
    for name, number in (("sum", 5), ("run", 0), ("sum", 6), ("run", 1)):
        function = instance.get_func(store, name)
        assert function is not None
        found.append(function(store, number))
        function.post_return(store)
    return found, said


def modules_of(binary: bytes) -> int:
    return sum(isinstance(part, CoreModule) for part in read_component(binary).parts)


def test_what_is_linked_does_the_same() -> None:
    linked = link(WHOLE)
    assert outcomes(WHOLE) == outcomes(linked)
    found, said = outcomes(linked)
    # 984 of the stack, 5 * 42 by way of the table, 2 of the other library's function there.
    assert found == [984 + 210 + 2, -3 + 11 + ord("d"), 968 + 252 + 2, -1 + 11 + ord("d")]
    assert said == ["data of main"] * 2
    # The shim, the fixups, what has nothing to do with the memory, and the one.
    assert (modules_of(WHOLE), modules_of(linked)) == (6, 4)


def test_tables_are_filled_from_constants_by_functions_of_the_module_itself() -> None:
    # Only then does Wasmtime fill a table as it is used, and not before.
    (one,) = [module for module in map(read_module, read_component(link(WHOLE)).modules) if module.memories]
    assert [elements.offset for elements in one.elements] == [[(0x41, 3)], [(0x41, 10)]]
    imported = len(one.imported(0))
    assert all(function >= imported for elements in one.elements for function in elements.functions)


UNUSED = "(func $unused (param i32))"
BY_WHAT_FOLLOWS = [
    ("(drop (table.get 0 (i32.const 0)))", "", "an instruction 25"),
    ("(data.drop 0)", '(data "")', "asks for data"),
    ("", '(data (i32.const 1) "x")', "several modules with data"),
    ("", "(elem func $times)", "elements of the kind 1"),
    ("", "(table 1 externref)", "a table of something else"),
    ("", "(memory 1)", "memor"),
    ("", "(tag)", "a section 13"),
    ("", "(start $begin) (func $begin)", "a section 8"),
    ("", "(global (mut i32) (i32.const 0)) (elem (global.get $later) func)", "a constant that isn't known"),
    ("", "(type (struct))", "a type of something else"),
    ("", "(global funcref (ref.func $times))", "an operation 0xd2 in a constant"),
]


@pytest.mark.parametrize(("inside", "behind", "message"), BY_WHAT_FOLLOWS)
def test_what_is_not_known_is_not_linked(inside: str, behind: str, message: str) -> None:
    changed = TEXT.replace(UNUSED, f"(func $unused (param i32) {inside}) {behind}")
    try:
        whole = bytes(wat2wasm(changed))
    except Exception as error:
        pytest.fail(f"{error}")
    with pytest.raises(LinkError, match=message):
        link(whole)


def test_two_memories_in_two_modules_are_not_linked() -> None:
    more = "(core module $more (memory 1)) (core instance (instantiate $more))"
    with pytest.raises(LinkError, match="2 instances with a memory"):
        link(bytes(wat2wasm(f"{TEXT.rstrip().removesuffix(')')} {more})")))


def test_two_instances_of_a_module_are_not_linked() -> None:
    again = """(core instance (instantiate $main (with "wasi" (instance $wasi))))"""
    with pytest.raises(LinkError, match="2 instances with a memory"):
        link(bytes(wat2wasm(f"{TEXT.rstrip().removesuffix(')')} {again})")))


def test_without_a_memory_nothing_is_linked() -> None:
    with pytest.raises(LinkError, match="0 instances with a memory"):
        link(bytes(wat2wasm("(component (core module $m) (core instance (instantiate $m)))")))


@given(st.data())
def test_a_component_that_is_not_whole_or_changed_is_no_traceback(data: st.DataObject) -> None:
    with contextlib.suppress(WasmError):
        link(damaged(data, WHOLE))
