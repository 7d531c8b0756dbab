"""Saving and loading: the same bytes as Python's, and no state lost, wherever the power fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.compilers import CPP_WARNINGS, WARNINGS
from support.data import Array
from teeny_embed import nn
from teeny_embed.deploy.toolchain import build_host_library, run
from teeny_embed.emit_c.lint import lint
from teeny_embed.errors import DataError

SAVING = Path(__file__).parents[2] / "examples" / "saving"

OK, ERR_ARGUMENT, ERR_STATE, ERR_IO, ERR_FORMAT, ERR_CRC = 0, -1, -4, -7, -8, -9
READ = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint8), ctypes.c_uint32
)


class Slot(ctypes.Structure):
    _fields_ = [("read", READ), ("write", READ), ("user", ctypes.c_void_p)]


class Context(ctypes.Structure):
    _fields_ = [("state", ctypes.c_void_p), ("arena", ctypes.c_void_p)]


class Memory:
    """Bytes that keep their content, until the power fails after `budget` more are written."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.budget: int | None = None
        self.reads_left: int | None = None
        self.read, self.write = READ(self._read), READ(self._write)
        self.slot = Slot(self.read, self.write, None)

    def _read(self, user: Any, offset: int, target: Any, byte_count: int) -> int:
        if self.reads_left is not None:
            self.reads_left -= 1
            if self.reads_left < 0:
                return ERR_IO
        ctypes.memmove(target, bytes(self.content[offset : offset + byte_count]), byte_count)
        return OK

    def _write(self, user: Any, offset: int, source: Any, byte_count: int) -> int:
        written = byte_count if self.budget is None else min(byte_count, self.budget)
        self.content[offset : offset + written] = source[:written]
        if self.budget is not None:
            self.budget -= written
        return OK if written == byte_count else ERR_IO


class Device:
    """A small net that learns, with memory of its own."""

    def __init__(self, build: te.Build, folder: Path, *flags: str) -> None:
        self.build, interface = build, build.interface
        sources = [build.directory / name for name in (*interface.sources, "net_store.c")]
        path = folder / f"net{len(flags)}.so"
        flags = ("-O1", *WARNINGS, f"-I{build.directory}", *flags)
        build_host_library([*sources, SAVING / "slots.c"], path, "gcc", flags)
        self._library = ctypes.CDLL(str(path))
        self.state = self._aligned(interface.state_bytes)
        self.arena = self._aligned(interface.arena_bytes)
        self.context = Context()
        pointers = [block.ctypes.data_as(ctypes.c_void_p) for block in (self.state, self.arena)]
        sizes = [ctypes.c_size_t(block.size) for block in (self.state, self.arena)]
        assert self.call("init", pointers[0], sizes[0], pointers[1], sizes[1]) == OK
        assert self.call("reset") == OK

    @staticmethod
    def _aligned(byte_count: int) -> Array:
        block = np.zeros(byte_count + 16, np.uint8)
        first = -block.ctypes.data % 16
        return block[first : first + byte_count]

    def call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, f"net_{name}")(ctypes.byref(self.context), *arguments))

    def without_context(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, f"net_{name}")(*arguments))

    def slot_in(self, place: str, description: ctypes.Structure) -> Slot:
        """The slot that an adapter of examples/saving makes of a description."""
        function = self._library[f"slot_in_{place}"]
        function.restype = Slot
        return Slot.from_buffer_copy(function(ctypes.byref(description)))

    def learn(self) -> None:
        x, loss = np.float32([1, -2, 3]), ctypes.c_float()
        status = self.call(
            "step", x.ctypes.data_as(ctypes.c_void_p), 1, ctypes.c_float(0.1), ctypes.byref(loss)
        )
        assert status == OK

    @property
    def bytes_in_state(self) -> bytes:
        return self.state.tobytes()

    def tensors(self) -> dict[str, Array]:
        from teeny_embed.deploy.runner import state_from_bytes

        return state_from_bytes(self.build.interface, self.bytes_in_state)


def net_of(outputs: int) -> te.Program:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, outputs))
    x, label = te.input("x", (1, 3)), te.input("label", (), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(momentum=0.9), x, label)
    return te.Program("net", infer=te.trace(net, x), step=step)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> te.Build:
    return te.build(net_of(2), out=tmp_path_factory.mktemp("store") / "c")


@pytest.fixture
def device(build: te.Build, tmp_path: Path) -> Device:
    found = Device(build, tmp_path)
    found.learn()
    return found


def slot_bytes(build: te.Build) -> int:
    return len(build.pack({}, what="state"))


def saved(device: Device, sequence: int = 7) -> Memory:
    memory = Memory(bytes(slot_bytes(device.build)))
    assert device.call("save", sequence, memory.write, None) == OK
    return memory


# ---- One slot -----------------------------------------------------------------------------------------


def test_a_saved_state_is_what_python_packs(device: Device) -> None:
    device.learn()
    content = bytes(saved(device).content)
    assert int.from_bytes(content[12:16], "little") == 2  # training steps: Python's packs have taken none
    found = device.build.unpack(content, "state")
    for name, value in device.tensors().items():
        np.testing.assert_array_equal(found[name], value)
    again = device.build.pack(found, 7, "state")
    assert (again[:12], again[16:-4]) == (content[:12], content[16:-4])


def test_loading_gives_every_byte_back(device: Device) -> None:
    memory, before = saved(device), device.bytes_in_state
    device.learn()
    assert device.bytes_in_state != before
    assert device.call("load", memory.read, None) == OK
    assert device.bytes_in_state == before
    sequence = ctypes.c_uint32()
    assert device.without_context("check", memory.read, None, ctypes.byref(sequence)) == OK
    assert sequence.value == 7


def test_each_damaged_byte_is_noticed_and_the_state_stays(device: Device) -> None:
    memory = saved(device)
    before = device.bytes_in_state
    for position in range(len(memory.content)):
        memory.content[position] ^= 0x10
        assert device.call("load", memory.read, None) in (ERR_CRC, ERR_FORMAT)
        with pytest.raises(DataError):
            device.build.unpack(bytes(memory.content), "state")
        memory.content[position] ^= 0x10
    assert device.bytes_in_state == before
    assert device.call("load", memory.read, None) == OK


def test_another_model_is_refused(device: Device, tmp_path: Path) -> None:
    other = te.build(net_of(3), out=tmp_path / "other")
    content = other.pack({}, what="state").ljust(slot_bytes(device.build), b"\0")
    assert device.call("load", Memory(content).read, None) == ERR_FORMAT
    with pytest.raises(DataError, match="are another model's"):
        device.build.unpack(other.pack({}))


def test_a_state_whose_second_reading_fails_is_not_ready(device: Device) -> None:
    memory = saved(device)
    memory.reads_left = len(memory.content) // 64 + 1
    assert device.call("load", memory.read, None) == ERR_IO
    assert device.call("save", 1, memory.write, None) == ERR_STATE
    memory.reads_left = None
    assert device.call("load", memory.read, None) == OK
    device.learn()


def test_arguments_that_are_null_are_refused(device: Device) -> None:
    nothing, sequence = READ(), ctypes.c_uint32()
    assert device.call("save", 1, nothing, None) == ERR_ARGUMENT
    assert device.call("load", nothing, None) == ERR_ARGUMENT
    assert device.without_context("save", None, 1, saved(device).write, None) == ERR_ARGUMENT
    assert device.without_context("check", nothing, None, ctypes.byref(sequence)) == ERR_ARGUMENT
    assert device.call("save_slot", None) == device.call("load_slot", None) == ERR_ARGUMENT


# ---- Two slots ----------------------------------------------------------------------------------------


def slots(*memories: Memory) -> Any:
    return (Slot * 2)(*(m.slot for m in memories))


def garbage(build: te.Build) -> Iterator[bytes]:
    """What a slot may hold before its first use."""
    count = slot_bytes(build)
    yield bytes(count)
    yield b"\xff" * count
    yield np.random.default_rng(1).bytes(count)


def test_wherever_the_power_fails_one_slot_is_good(device: Device) -> None:
    for content in garbage(device.build):
        memories = Memory(content), Memory(content)
        assert device.call("load_slot", slots(*memories)) in (ERR_FORMAT, ERR_CRC)
        assert device.call("save_slot", slots(*memories)) == OK
        device.learn()
        assert device.call("save_slot", slots(*memories)) == OK
        old = device.bytes_in_state
        device.learn()
        new = device.bytes_in_state
        kept = [bytes(m.content) for m in memories]
        for budget in range(slot_bytes(device.build) + 1):
            for memory, content in zip(memories, kept, strict=True):
                memory.content[:] = content
                memory.budget = budget
            device.state[:] = np.frombuffer(new, np.uint8)
            status = device.call("save_slot", slots(*memories))
            assert device.call("load_slot", slots(*memories)) == OK
            assert (
                device.bytes_in_state == (new if status == OK else old)
                or budget >= slot_bytes(device.build) - 4
            )
            assert device.bytes_in_state in (old, new)
        assert status == OK and device.bytes_in_state == new


def test_the_newest_slot_counts_also_where_the_number_wraps(device: Device) -> None:
    memories = saved(device, 0xFFFFFFFF), Memory(bytes(slot_bytes(device.build)))
    device.learn()
    new = device.bytes_in_state
    assert device.call("save_slot", slots(*memories)) == OK
    assert bytes(memories[1].content[8:12]) == bytes(4)
    device.learn()
    assert device.call("load_slot", slots(*memories)) == OK and device.bytes_in_state == new


# ---- Parameters ---------------------------------------------------------------------------------------


def test_parameters_travel_alone(device: Device, build: te.Build) -> None:
    rng = np.random.default_rng(3)
    before = device.tensors()
    parameters = {f.name: f.shape for f in build.interface.state if f.kind == "parameter"}
    new = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in parameters.items()}
    memory = Memory(build.pack(new, 3))
    assert len(memory.content) < slot_bytes(build)
    assert device.call("load_parameters", memory.read, None) == OK
    for name, value in device.tensors().items():
        np.testing.assert_array_equal(value, new.get(name, before[name]))
    again = Memory(bytes(len(memory.content)))
    assert device.call("save_parameters", 3, again.write, None) == OK
    assert build.unpack(bytes(again.content)).keys() == new.keys()
    assert device.call("load", memory.read, None) == ERR_FORMAT


# ---- Adapters of examples/saving ----------------------------------------------------------------------

DRIVER = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32)
PROGRAM = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint8), ctypes.c_uint32
)


class Ram(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("byte_count", ctypes.c_uint32)]


class File(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p)]


class Flash(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_void_p),
        ("byte_count", ctypes.c_uint32),
        ("page_bytes", ctypes.c_uint32),
        ("erase", DRIVER),
        ("program", PROGRAM),
        ("driver", ctypes.c_void_p),
    ]


class Nor:
    """Erasing sets all bits of a page, programming only clears some. Power fails after `budget` bytes."""

    page_bytes = 128

    def __init__(self, byte_count: int) -> None:
        self.content = np.zeros(-(-byte_count // self.page_bytes) * self.page_bytes, np.uint8)
        self.budget: int | None = None
        self.description = Flash(
            self.content.ctypes.data, self.content.size, self.page_bytes, DRIVER(self._erase),
            PROGRAM(self._program), None,
        )  # fmt: skip

    def _spend(self, byte_count: int) -> int:
        if self.budget is None:
            return byte_count
        spent = min(byte_count, self.budget)
        self.budget -= spent
        return spent

    def _erase(self, driver: Any, offset: int) -> int:
        done = self._spend(self.page_bytes)
        self.content[offset : offset + done] = 0xFF
        return OK if done == self.page_bytes else ERR_IO

    def _program(self, driver: Any, offset: int, source: Any, byte_count: int) -> int:
        done = self._spend(byte_count)
        self.content[offset : offset + done] &= np.array(source[:byte_count], np.uint8)[:done]
        return OK if done == byte_count else ERR_IO


def test_ram_and_files_keep_a_state(device: Device, tmp_path: Path) -> None:
    memories = [np.zeros(slot_bytes(device.build), np.uint8) for _ in range(2)]
    rams = [Ram(memory.ctypes.data, memory.size) for memory in memories]
    files = [File(str(tmp_path / f"slot{i}").encode()) for i in range(2)]
    for place, descriptions in (("ram", rams), ("file", files)):
        pair = (Slot * 2)(*(device.slot_in(place, d) for d in descriptions))
        assert device.call("load_slot", pair) in (ERR_FORMAT, ERR_IO)
        for _ in range(3):
            device.learn()
            assert device.call("save_slot", pair) == OK
        before = device.bytes_in_state
        device.learn()
        assert device.call("load_slot", pair) == OK and device.bytes_in_state == before
    assert sorted(memory[8] for memory in memories) == [2, 3]  # the lowest byte of the sequence
    assert (tmp_path / "slot0").stat().st_size == slot_bytes(device.build)


def test_wherever_the_power_of_a_flash_fails_one_slot_is_good(device: Device) -> None:
    flashes = [Nor(slot_bytes(device.build)) for _ in range(2)]
    pair = (Slot * 2)(*(device.slot_in("flash", flash.description) for flash in flashes))
    assert device.call("save_slot", pair) == OK
    old = device.bytes_in_state
    device.learn()
    new = device.bytes_in_state
    kept = [flash.content.copy() for flash in flashes]
    for budget in range(0, 2 * flashes[0].content.size + 1):
        for flash, content in zip(flashes, kept, strict=True):
            flash.content[:] = content
            flash.budget = budget
        device.state[:] = np.frombuffer(new, np.uint8)
        status = device.call("save_slot", pair)
        assert device.call("load_slot", pair) == OK
        assert device.bytes_in_state in ((new,) if status == OK else (old, new))
    assert status == OK


def test_a_slot_that_is_too_small_is_refused(device: Device) -> None:
    memory = np.zeros(slot_bytes(device.build) - 1, np.uint8)
    ram = Ram(memory.ctypes.data, memory.size)
    slot = device.slot_in("ram", ram)
    assert device.call("save", 1, slot.write, ctypes.c_void_p(slot.user)) == ERR_IO


# ---- C ------------------------------------------------------------------------------------------------


def test_other_byte_orders_store_the_same(build: te.Build, tmp_path: Path) -> None:
    """The bytes of each element are turned round: as if this machine had its highest byte first."""
    plain, turned = Device(build, tmp_path), Device(build, tmp_path, "-DTE_BIG_ENDIAN=1")
    one, other = (saved(d).content for d in (plain, turned))
    payload = slice(32, 32 + sum(v.nbytes for v in plain.tensors().values()))
    swapped = np.frombuffer(bytes(one[payload]), np.uint32).byteswap().tobytes()
    assert other[payload] == swapped and other[:32] == one[:32]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_it_compiles_without_a_warning(build: te.Build, compiler: str, tmp_path: Path) -> None:
    flags = ("-mcpu=cortex-m0", "-mthumb") if compiler.startswith("arm") else ()
    source = build.directory / "net_store.c"
    for file in (source, SAVING / "slots.c"):
        options = [*flags, "-std=c99", *WARNINGS, f"-I{build.directory}"]
        run(compiler, [*options, "-c", file, "-o", tmp_path / "object.o"])
    if compiler == "gcc":
        run("g++", ["-x", "c++", "-std=c++11", *CPP_WARNINGS, "-fsyntax-only", source.with_suffix(".h")])


def test_lint_finds_nothing(build: te.Build) -> None:
    assert lint([build.directory / name for name in ("net.h", "net.c", "net_store.c")], "net") == []


def test_a_model_without_state_stores_nothing(tmp_path: Path) -> None:
    x = te.input("x", (3,))
    build = te.build(te.Program("net", infer=te.trace(lambda x: x + 1, x)), out=tmp_path)
    assert not (tmp_path / "net_store.c").exists()
    with pytest.raises(DataError, match="stores no"):
        build.pack({})
