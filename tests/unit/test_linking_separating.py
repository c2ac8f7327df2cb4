"""A guest's data, taken out of its WebAssembly."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import Config, Engine, Instance, Memory, Module, Store, wat2wasm
from wasmtime.component import Component

from capsule_build.sandbox.linking.separating import PAGE_BYTES, separate
from capsule_build.sandbox.wasmtime_abi import WasmError
from tests.damage import damaged

CONFIG = Config()
CONFIG.wasm_component_model = True
ENGINE = Engine(CONFIG)
TWO_PIECES = '(data (i32.const 8) "abc") (data (i32.const 9) "\\00Z")'


def component(*modules: str) -> bytes:
    return bytes(wat2wasm(f"(component {' '.join(f'(core module {module})' for module in modules)})"))


def test_data_becomes_an_image_and_the_rest_is_a_component() -> None:
    whole = component("(func)", f"(memory 2) {TWO_PIECES} (func)")
    code, image = separate(whole)
    assert image == (b"\0" * 8 + b"a\0Z").ljust(PAGE_BYTES, b"\0")
    assert code == component("(func)", "(memory 2) (func)")
    Component(ENGINE, code)


def test_what_lies_in_a_component_in_a_component_is_found() -> None:
    content = "x" * 300
    inner = f'(core module (memory 60000) (data (i32.const {3 << 16}) "{content}"))'
    code, image = separate(bytes(wat2wasm(f"(component (component {inner}))")))
    assert image == bytes(3 << 16) + (b"x" * 300).ljust(PAGE_BYTES, b"\0")
    assert code == bytes(wat2wasm("(component (component (core module (memory 60000))))"))


@pytest.mark.parametrize("module", ["(memory 1)", '(memory 1 2) (data "passive")', "(func)"])
def test_without_active_data_nothing_changes(module: str) -> None:
    whole = component("(func)", module if "passive" not in module else "(memory 1 2)")
    assert separate(whole) == (whole, b"")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (['(memory 1) (data (i32.const 0) "a")'] * 2, "several memories with data"),
        (['(memory 1) (data "passive")'], "isn't fixed"),
        (['(import "a" "b" (global i32)) (memory 1) (data (global.get 0) "a")'], "isn't fixed"),
        (['(memory 1) (data (i32.const 0) "a") (func (data.drop 0))'], "asks for data"),
        (['(memory 65535) (data (i32.const -65537) "a")'], "needs more than"),
    ],
)
def test_what_cannot_be_taken_out_is_refused(modules: list[str], message: str) -> None:
    with pytest.raises(WasmError, match=message):
        separate(component(*modules))


@given(st.data())
def test_a_guest_that_is_not_whole_or_changed_is_no_traceback(data: st.DataObject) -> None:
    with contextlib.suppress(WasmError):
        separate(damaged(data, component(f"(memory 2) {TWO_PIECES}")))


SEGMENTS = st.lists(st.tuples(st.integers(0, 2 * PAGE_BYTES - 400), st.binary(max_size=300)), max_size=8)


@given(SEGMENTS)
def test_the_image_is_what_wasmtime_fills_the_memory_with(segments: list[tuple[int, bytes]]) -> None:
    texts = []
    for offset, content in segments:
        escaped = "".join(f"\\{byte:02x}" for byte in content)
        texts.append(f'(data (i32.const {offset}) "{escaped}")')
    module = f'(memory (export "m") 2) {" ".join(texts)}'
    store = Store(ENGINE)
    memory = Instance(store, Module(ENGINE, f"(module {module})"), []).exports(store)["m"]
    assert isinstance(memory, Memory)
    filled = bytes(memory.read(store, 0, 2 * PAGE_BYTES))
    assert separate(component(module)).image.ljust(2 * PAGE_BYTES, b"\0") == filled
