"""Function bodies whose functions, globals, types and tables get other numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import wat2wasm

from capsule_build.sandbox.linking.binary import Reader, number, sections
from capsule_build.sandbox.linking.code import Numbers, renumbered
from capsule_build.sandbox.linking.errors import LinkError

INSTRUCTIONS = [
    "(call $f (i32.const 1234567))",
    "(return_call $g)",
    "(drop (global.get $a))",
    "(global.set $a (i32.const -1))",
    "(drop (global.get $b))",
    "(call_indirect $t (type $empty) (i32.const 0))",
    "(return_call_indirect $t (type $empty) (i32.const 0))",
    "(drop (ref.is_null (ref.func $g)))",
    "(drop (ref.is_null (ref.null extern)))",
    "(block)",
    "(drop (block (result f64) (f64.const 1e300)))",
    "(i64.const 5) (i32.const 6) (loop (type $two)) (drop) (drop)",
    "(if (i32.const 1) (then (call $g)) (else (nop)))",
    "(block $x (br_table 0 $x 0 (i32.const 500)))",
    "(block (br 0)) (block (br_if 0 (i32.const 0)))",
    "(drop (f32.const 0x1.101010p1))",
    "(drop (f64.const 0x1.1010101010101p1))",
    "(drop (i64.const 0x1010101010101010))",
    "(i32.store8 offset=4097 (i32.const 1) (i32.const 16))",
    "(drop (i64.load32_u offset=16 align=1 (i32.const 35)))",
    "(drop (memory.size)) (drop (memory.grow (i32.const 0)))",
    "(memory.copy (i32.const 1) (i32.const 2) (i32.const 3))",
    "(memory.fill (i32.const 1) (i32.const 2) (i32.const 3))",
    "(drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 0)))",
    "(drop (select (i32.const 1) (i32.const 2) (i32.const 0)))",
    "(drop (i32.trunc_sat_f32_s (f32.const 5)))",
    "(drop (i32.extend8_s (local.tee 0 (i32.const 300))))",
    "(drop (v128.const i8x16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16 16))",
    "(drop (v128.load offset=16 (i32.const 16))) (drop (v128.load64_zero (i32.const 16)))",
    "(drop (v128.load8_lane offset=16 15 (i32.const 16) (v128.const i64x2 0 0)))",
    "(drop (i8x16.extract_lane_s 15 (v128.const i64x2 0 0)))",
    "(v128.const i64x2 0 0) (v128.const i64x2 0 0) i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 16 drop",
    "(drop (i16x8.mul (v128.const i64x2 0 0) (v128.const i64x2 0 0)))",
    "(drop (f64x2.nearest (v128.const i64x2 0 0)))",
    "(drop (i32x4.trunc_sat_f64x2_s_zero (v128.const i64x2 0 0)))",
    "(drop (i64x2.relaxed_laneselect (v128.const i64x2 0 0) (v128.const i64x2 0 0) (v128.const i64x2 0 0)))",
    "(drop (f32.div (f32.const 1) (f32.sqrt (f32.const 2))))",
    "(unreachable)",
]  # fmt: skip
MANY = 130
"""Numbers of one byte become numbers of two."""

_NUMBERS = [number(index + MANY) for index in range(6)]
SHIFTED = Numbers(_NUMBERS, _NUMBERS, _NUMBERS, [index + MANY for index in range(6)])


def module(instructions: list[str], *, shifted: bool) -> bytes:
    """Return a module with a function of instructions; shifted: all that it names has another number."""
    more = MANY if shifted else 0
    types = " ".join(f"(type (func (param {'i32 ' * (index + 3)})))" for index in range(more))
    functions = "(func)" * more
    globals_ = "(global i64 (i64.const 0))" * more
    tables = "(table 1 funcref)" * more
    return bytes(
        wat2wasm(
            f"""(module {types}
            (type $empty (func)) (type $two (func (param i64 i32) (result i64 i32)))
            (memory 1) {tables} (table 1 funcref) (table $t 1 funcref) {globals_}
            (global $a (mut i32) (i32.const 0)) (global $b f32 (f32.const 0))
            {functions}
            (func $f (type $empty_i32)) (func $g (type $empty))
            (type $empty_i32 (func (param i32)))
            (elem declare func $g)
            (func (local i32 i64 v128) {" ".join(instructions)}))"""
        )
    )


def body_of(binary: bytes) -> bytes:
    (code,) = [content for kind, content in sections(binary) if kind == 10]
    reader = Reader(code)
    return [reader.name() for _ in reader.times()][-1]


@given(st.lists(st.sampled_from(INSTRUCTIONS), min_size=1, max_size=8))
def test_a_body_names_what_it_named(instructions: list[str]) -> None:
    before, after = (body_of(module(instructions, shifted=shifted)) for shifted in (False, True))
    assert renumbered(before, SHIFTED) == after


@pytest.mark.parametrize("one", INSTRUCTIONS)
def test_each_instruction(one: str) -> None:
    before, after = (body_of(module([one], shifted=shifted)) for shifted in (False, True))
    assert renumbered(before, SHIFTED) == after


def test_a_body_that_names_what_is_not_there_is_an_error() -> None:
    with pytest.raises(LinkError, match="names what isn't there"):
        renumbered(body_of(module(["(call $g)"], shifted=False)), Numbers([], [], [], []))
