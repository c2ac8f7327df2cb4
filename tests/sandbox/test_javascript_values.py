"""`run_javascript` and `Session("javascript")`: what a piece of code gives, and how values are shown."""

from __future__ import annotations

import json

import pytest

import capsule
from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.process import run

from .sessions import go


def test_a_piece_of_code_gives_what_it_prints_and_its_last_value() -> None:
    async def use() -> None:
        assert await capsule.run_javascript('console.log("Hello"); const x = 5 + 3; x * 2;') == "Hello\n16"
        assert await capsule.run_javascript("let x = 1") == ""
        assert await capsule.run_javascript("process.stdout.write('a'); 'b'") == "a\n'b'"
        with pytest.raises(capsule.SessionError) as caught:
            await capsule.run_javascript("console.log('before')\nwhile (true);", compute="LOW")
        assert (caught.value.error_type, caught.value.printed) == ("fuel_exhausted", "before\n")
        with pytest.raises(UsageError, match="must be LOW"):
            await capsule.run_javascript("1", compute="SOME")

    go(use())


VALUES = (
    ("1 + 1 // a sum", "2"),
    ("null", "null"),
    ("undefined", ""),
    ("// nothing", ""),
    ("'a\\nb'", "'a\\nb'"),
    ("{ a: 1 }", "{ a: 1 }"),
    ("{ let a = 1; a }", ""),
    ("() => 1", "[Function (anonymous)]"),
    ("await 5", "5"),
    ("Promise.resolve([1])", "[ 1 ]"),
    ("new Promise(() => {})", "Promise { <pending> }"),
    ("async function main() { await null; console.log('in') } main()", "in"),
    ("setTimeout(() => console.log('later'), 5); 1", "later\n1"),
    ("new Error('shown')", "Error: shown\n    at <anonymous> (<run 1>:1)"),
    ("for await (const v of [1, 2]) console.log(v)", "1\n2"),
    ("this === globalThis", "true"),
)


@pytest.mark.parametrize(("code", "said"), VALUES)
def test_values_of_last_expressions(code: str, said: str) -> None:
    assert go(capsule.run_javascript(code)) == said


SHOWN = (
    "[1, 'a', null, undefined, true, 10n, -0, Symbol('s')]",
    "({ a: 1, 'b-c': 2, [Symbol('k')]: 3, 1: 4, [Symbol.toStringTag]: 'Tagged' })",
    "({ a: { b: { c: { d: 1 } }, e: [[[[1]]]], f: { g: { h: {} } } } })",
    "[[], {}, [, 1, , , 2], new Map(), Object.create(null), Object.assign([1, 2], { extra: 1 })]",
    "['it\\'s', 'both \\' and \"', 'new\\nline \\t \\u0001 \\\\']",
    "[new Map([[1, { a: 2 }], ['k', [1]]]), new Set([1, 'two'])]",
    "[new Uint8Array([1, 2]), new Float64Array(0), new ArrayBuffer(3), Buffer.from('hi')]",
    "[new Date(0), new Date(NaN), /a+/gi, new Number(1), new String('s'), new WeakMap()]",
    "[() => 1, function named() {}, async () => {}, class A {}, class B extends Map {}, function* g() {}]",
    "[Object.assign(() => 1, { x: 1 }), (function* g() {})()]",
    "[new (class Foo { constructor() { this.x = 1 } })(), new (class Empty {})()]",
    "({ get a() { return 1 }, set a(v) {}, get b() { throw 1 }, set c(v) {} })",
    "(() => { const o = { in: [] }; o.self = o; o.in.push(o.in); return o })()",
    "Array.from({ length: 105 }, () => 'a long item that fills a line of its own')",
    "new Set(Array.from({ length: 101 }, (_, i) => `an item that fills a line, number ${i}`))",
    "[{ id: 1, name: 'first one', tags: ['a', 'b'] }, { id: 2, name: 'second one', tags: ['c', 'd'] }]",
    "({ [Symbol.for('nodejs.util.inspect.custom')]: () => 'mine' })",
    "'x'.repeat(10005)",
    "Math",
)


def test_values_are_shown_as_node_shows_them() -> None:
    program = "const { inspect } = require('util'); const said = JSON.parse(process.argv[1]).map((code) => inspect(eval(code)));"
    asked = [
        "node",
        "--eval",
        f"{program} process.stdout.write(JSON.stringify(said))",
        "--",
        json.dumps(SHOWN),
    ]
    wanted = json.loads(run(asked).stdout)

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            for code, said in zip(SHOWN, wanted, strict=True):
                assert await session.run(code) == said

    go(use())
