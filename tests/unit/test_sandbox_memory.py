"""Linear memories: what an instance finds in one is what the guest begins with, whoever had it before."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wasmtime import wat2wasm

from capsule_build.sandbox import memory as memory_module
from capsule_build.sandbox import wasmtime_abi as abi
from capsule_build.sandbox.linking.separating import PAGE_BYTES, separate
from capsule_build.sandbox.memory import MAX_IDLE, MAX_KEPT_BYTES, Image, Memories, Memory
from capsule_build.sandbox.pagemap import MAX_REGIONS, PageMap, page_map
from capsule_build.sandbox.wasmtime_abi import WasmError, check, lib

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = 6
RESERVED, GUARD = 4 << 30, 32 << 20
CONTENT = bytes(range(1, 256)) * (4 * PAGE_BYTES // 255) + b"the end"
IMAGE_BYTES = -(-len(CONTENT) // PAGE_BYTES) * PAGE_BYTES
"""A little more than four pages: the last of the image, and of the memory, begin with zeros."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    path = tmp_path_factory.mktemp("memory") / "image"
    path.write_bytes(CONTENT.ljust(IMAGE_BYTES, b"\0"))
    handle = os.open(path, os.O_RDONLY)
    yield Image(handle, IMAGE_BYTES)
    os.close(handle)


@pytest.fixture
def memory(image: Image) -> Iterator[Memory]:
    made = Memory(PAGES * PAGE_BYTES, RESERVED, GUARD, image)
    yield made
    made.unmap()


def content(memory: Memory) -> bytes:
    return ctypes.string_at(memory.address, memory.size)


NEW = CONTENT.ljust(PAGES * PAGE_BYTES, b"\0")
WRITES = st.lists(st.tuples(st.integers(0, 9 * PAGE_BYTES - 5000), st.integers(1, 5000)), max_size=12)


def test_the_kernel_tells_what_was_written() -> None:
    # Where it doesn't, what follows here would test nothing.
    assert PageMap().written(0x1000, 0x2000) is not None


def test_it_begins_as_the_image_says_and_then_with_zeros(memory: Memory) -> None:
    assert content(memory) == NEW
    assert memory.size == PAGES * PAGE_BYTES


@given(rounds=st.lists(st.tuples(st.integers(PAGES, 9), WRITES), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_written_is_gone(
    memory: Memory, rounds: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    for pages, writes in rounds:
        memory.grow(pages * PAGE_BYTES)
        for offset, length in writes:
            ctypes.memset(memory.address + offset % (memory.size - 5000), 0xEE, length)
        assert memory.renew()
        assert memory.size == PAGES * PAGE_BYTES
        assert content(memory) == NEW
    memory.grow(9 * PAGE_BYTES)
    assert content(memory) == NEW.ljust(9 * PAGE_BYTES, b"\0")
    assert memory.renew()


def test_what_the_system_wrote_is_gone(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 9000)
    with (tmp_path / "file").open("rb") as stream:
        into = (ctypes.c_char * 9000).from_address(memory.address + 70_000)
        assert stream.readinto(into) == 9000
    assert content(memory) != NEW
    assert memory.renew()
    assert content(memory) == NEW


@pytest.mark.parametrize("becomes", ["closed", "another file's"])
def test_it_begins_as_the_image_says_whatever_becomes_of_the_descriptor(tmp_path: Path, becomes: str) -> None:
    (tmp_path / "image").write_bytes(CONTENT.ljust(IMAGE_BYTES, b"\0"))
    (tmp_path / "other").write_bytes(b"x" * IMAGE_BYTES)
    handle = os.open(tmp_path / "image", os.O_RDONLY)
    image = Image(handle, IMAGE_BYTES)
    os.close(handle)
    if becomes != "closed":
        other = os.open(tmp_path / "other", os.O_RDONLY)
        assert other == handle
    memory = Memory(PAGES * PAGE_BYTES, RESERVED, GUARD, image)
    assert content(memory) == NEW
    ctypes.memset(memory.address, 1, memory.size)
    assert memory.renew()
    assert content(memory) == NEW
    memory.unmap()
    if becomes != "closed":
        os.close(other)


def test_what_is_behind_its_size_cannot_be_accessed(memory: Memory) -> None:
    for address in (memory.address + memory.size, memory.address + RESERVED + GUARD - 1):
        assert not _readable(address)
    memory.grow(8 * PAGE_BYTES)
    assert _readable(memory.address + 8 * PAGE_BYTES - 1)
    assert memory.renew()
    assert not _readable(memory.address + PAGES * PAGE_BYTES)


def test_much_is_not_kept(memory: Memory) -> None:
    memory.grow(PAGES * PAGE_BYTES + MAX_KEPT_BYTES)
    ctypes.memset(memory.address + PAGES * PAGE_BYTES, 1, MAX_KEPT_BYTES)
    assert memory.renew()
    memory.grow(PAGES * PAGE_BYTES + MAX_KEPT_BYTES)
    ctypes.memset(memory.address, 1, memory.size)
    assert not memory.renew()


def test_many_pieces_are_not_kept(image: Image) -> None:
    pages = 2 * MAX_REGIONS + 2
    memory = Memory(pages * os.sysconf("SC_PAGE_SIZE"), RESERVED, GUARD, image)
    for page in range(0, pages, 2):
        ctypes.memset(memory.address + page * os.sysconf("SC_PAGE_SIZE"), 1, 1)
    assert not memory.renew()
    memory.unmap()


def test_where_the_kernel_does_not_tell_nothing_is_kept(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = PageMap()
    blind._handle = -1
    monkeypatch.setattr(memory_module, "page_map", lambda: blind)
    assert not memory.renew()


def test_a_forked_process_has_a_page_map_of_its_own(memory: Memory) -> None:
    assert page_map() is page_map()
    child = os.fork()
    if child == 0:
        ctypes.memset(memory.address + 5, 1, 100_000)
        as_new = memory.renew() and content(memory) == NEW
        os._exit(0 if as_new else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_more_than_is_reserved(image: Image) -> None:
    memory = Memory(PAGES * PAGE_BYTES, 8 * PAGE_BYTES, GUARD, image)
    with pytest.raises(WasmError, match="can't grow to"):
        memory.grow(9 * PAGE_BYTES)
    memory.unmap()


def test_more_than_there_is_is_an_error(image: Image) -> None:
    with pytest.raises(WasmError, match=r"The system gives no memory of .* Cannot allocate memory"):
        Memory(PAGES * PAGE_BYTES, 1 << 60, GUARD, image)


GUEST = """(component
  (core module $m
    (memory (export "memory") 2)
    (data (i32.const 70000) "abc")
    (func (export "poke") (param i32) (result i32)
      (i32.store8 (local.get 0) (i32.const 90))
      (i32.load8_u (i32.const 70000)))
    (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))
  (core module $other (memory (export "memory") 1))
  (core instance $i (instantiate $m))
  (core instance (instantiate $other))
  (func (export "poke") (param "at" u32) (result u32) (canon lift (core func $i "poke")))
  (func (export "grow") (param "by" u32) (result u32) (canon lift (core func $i "grow"))))"""
U32 = 6
"""The kind of a component value that is one."""


class Ground:
    """An engine whose memories are made here, and a guest with two of them."""

    def __init__(self, folder: Path) -> None:
        code, image = separate(bytes(wat2wasm(GUEST)))
        (folder / "image").write_bytes(image)
        config = lib.wasm_config_new()
        lib.wasmtime_config_wasm_component_model_set(config, True)
        self.memories = Memories(2 * PAGE_BYTES)
        self.memories.serve(config)
        self.engine = lib.wasm_engine_new_with_config(config)
        self.handle = os.open(folder / "image", os.O_RDONLY)
        self.memories.image = Image(self.handle, len(image))
        self.component = ctypes.c_void_p()
        check(lib.wasmtime_component_new(self.engine, code, len(code), ctypes.byref(self.component)))
        self.linker = lib.wasmtime_component_linker_new(self.engine)

    def instance(self) -> Running:
        return Running(self)


class Running:
    """An instance of it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._store = lib.wasmtime_store_new(ground.engine, 0, abi.NO_FINALIZER)
        self._context = lib.wasmtime_store_context(self._store)
        lib.wasmtime_store_limiter(self._store, 100 * PAGE_BYTES, 1000, 100, 100, 100)
        self._handle = abi.InstanceHandle()
        check(
            lib.wasmtime_component_linker_instantiate(
                ground.linker, self._context, ground.component, ctypes.byref(self._handle)
            )
        )
        found = ground.memories.taken()
        assert found is not None
        self.memory = found

    def call(self, name: bytes, number: int) -> int:
        export = lib.wasmtime_component_get_export_index(self._ground.component, None, name, len(name))
        function, argument, result = abi.FuncHandle(), abi.Val(kind=U32), abi.Val()
        argument.of.words[0] = number
        assert lib.wasmtime_component_instance_get_func(
            ctypes.byref(self._handle), self._context, export, ctypes.byref(function)
        )
        check(
            lib.wasmtime_component_func_call(
                ctypes.byref(function), self._context, ctypes.byref(argument), 1, ctypes.byref(result), 1
            )
        )
        return int(result.of.words[0] & 0xFFFFFFFF)

    def end(self) -> None:
        lib.wasmtime_store_delete(self._store)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


def test_the_next_instance_has_the_memory_of_the_last_as_new(ground: Ground) -> None:
    one = ground.instance()
    assert one.memory.size == 2 * PAGE_BYTES
    assert one.call(b"poke", 70001) == ord("a")
    assert one.call(b"poke", 70000) == 90
    assert one.call(b"grow", 3) == 2
    assert one.memory.size == 5 * PAGE_BYTES
    assert one.call(b"poke", 5 * PAGE_BYTES - 1) == 90
    address = one.memory.address
    one.end()
    two = ground.instance()
    assert two.memory.address == address
    assert two.memory.size == 2 * PAGE_BYTES
    assert ctypes.string_at(address, 2 * PAGE_BYTES) == (bytes(70000) + b"abc").ljust(2 * PAGE_BYTES, b"\0")
    two.end()
    assert ground.memories.taken() is None


@pytest.mark.parametrize("at", [2 * PAGE_BYTES, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_an_access_behind_its_size_is_a_trap(ground: Ground, at: int) -> None:
    one = ground.instance()
    with pytest.raises(WasmError, match="out of bounds"):
        one.call(b"poke", at)
    one.end()


def test_it_does_not_grow_beyond_the_instances_limit(ground: Ground) -> None:
    one = ground.instance()
    assert one.call(b"grow", 99) == 0xFFFF_FFFF
    assert one.call(b"grow", 98) == 2
    one.end()


def test_where_the_system_has_none_left_growing_fails(ground: Ground) -> None:
    one = ground.instance()
    one.memory.reserved = 4 * PAGE_BYTES
    assert one.call(b"grow", 3) == 0xFFFF_FFFF
    assert one.call(b"poke", 70000) == 90
    one.memory.reserved = RESERVED
    one.end()


def test_one_that_cannot_be_made_as_new_goes(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_address: int, _length: int, _protection: int) -> None:
        raise WasmError("The system gives no memory.")

    ground.memories._idle.clear()
    one = ground.instance()
    assert one.call(b"grow", 3) == 2
    with monkeypatch.context() as patch:
        patch.setattr(memory_module, "_protect", fails)
        one.end()
    assert ground.memories._idle[2 * PAGE_BYTES] == []
    assert not _readable(one.memory.address)


def test_of_one_that_was_written_to_much_only_some_use_is_made(memory: Memory) -> None:
    ctypes.memset(memory.address, 1, 100_000)
    assert all(memory.renew() for _ in range(100))
    memory.grow(PAGES * PAGE_BYTES + (8 << 20))
    ctypes.memset(memory.address + PAGES * PAGE_BYTES, 1, 8 << 20)
    assert not memory.renew()


def test_instances_beside_each_other_share_nothing(ground: Ground) -> None:
    several = [ground.instance() for _ in range(MAX_IDLE + 2)]
    assert len({one.memory.address for one in several}) == len(several)
    several[0].call(b"poke", 70000)
    assert [one.call(b"poke", 0) for one in several] == [90] + [ord("a")] * (MAX_IDLE + 1)
    for one in several:
        one.end()
    # The guest's own ones, and those of its other module.
    assert sorted(len(idle) for idle in ground.memories._idle.values()) == [MAX_IDLE, MAX_IDLE]


def test_threads_never_get_the_same(ground: Ground) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(60):
            one = ground.instance()
            if one.call(b"poke", 70001) != ord("a"):
                wrong.append("not as new")
            ctypes.memset(one.memory.address + 70000, number, 1)
            if one.call(b"poke", 1) != number:
                wrong.append("another's")
            one.end()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_without_an_image_for_its_data_no_instance_begins(ground: Ground) -> None:
    image, ground.memories.image = ground.memories.image, Image(ground.handle, 3 * PAGE_BYTES)
    ground.memories._idle.clear()
    try:
        with pytest.raises(WasmError, match="needs 196608 bytes of memory, and it has 131072"):
            ground.instance()
    finally:
        ground.memories.image = image


def _readable(address: int) -> bool:
    """Whether a byte can be read, as the system tells: it doesn't end the process that asks."""
    reading, writing = os.pipe()
    try:
        return int(_write(writing, address, 1)) == 1
    finally:
        os.close(reading)
        os.close(writing)


_write = ctypes.CDLL(None).write
_write.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)
