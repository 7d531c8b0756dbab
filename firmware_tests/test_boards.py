"""The firmware on every emulated board: equal bits, faults that are reported, no hangs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from teeny_embed import target as targets
from teeny_embed.deploy import firmware, measure, toolchain
from teeny_embed.deploy.device import SerialBoard
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.qemu import QemuBoard, QemuProcess
from teeny_embed.deploy.runner import Runner
from teeny_embed.errors import DeviceError, ToolError

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.fixture
def start(tmp_path):
    """Builds a model's firmware, starts it, and closes it after the test."""
    boards: list[QemuBoard] = []

    def build_and_start(name, interface, directory, channel="semihosting", timeout_s=20.0, **options):
        target = targets.load(name)
        elf = toolchain.build_firmware(target, interface, directory, tmp_path / name, channel, **options)
        boards.append(QemuBoard(elf, toolchain.board_of(target), interface, channel, timeout_s))
        return boards[-1]

    yield build_and_start
    for board in boards:
        board.close()


def run_digits(runner: Runner, steps) -> list[bytes]:
    """Bytes of everything a training run computes."""
    results = [runner.reset()]
    results += [runner.call("train_step", inputs) for inputs in steps]
    results += [runner.call("infer", {"image": inputs["image"]}) for inputs in steps[:2]]
    flat = [np.int32(results[0]).tobytes()]
    for status, outputs in results[1:]:
        flat += [np.int32(status).tobytes(), *(value.tobytes() for value in outputs.values())]
    return flat + [value.tobytes() for value in runner.read_state().values()]


@pytest.fixture(scope="session")
def host_results(digits, digits_directory, training_steps):
    with HostLibrary(digits, digits_directory) as library:
        return run_digits(library, training_steps)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cortex-m0", {}), ("cortex-m3", {}), ("cortex-m4f", {}), ("cortex-m7", {}), ("cortex-m33", {}),
        ("cortex-m55", {}), ("microbit", {"optimize": "-Os"}), ("netduinoplus2", {}),
        ("cortex-m4f", {"compiler": "clang"}), ("cortex-m55", {"compiler": "clang"}),
        ("cortex-m4f", {"measure": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)  # fmt: skip
def test_training_gives_the_hosts_bits(
    start, digits, digits_directory, training_steps, host_results, name, options
):
    board = start(name, digits, digits_directory, **options)
    assert run_digits(board, training_steps) == host_results


@pytest.mark.parametrize("name", ["mps2-an385", "mps2-an505", "mps3-an547", "microbit", "netduinoplus2"])
def test_training_over_a_uart_gives_the_hosts_bits(
    start, digits, digits_directory, training_steps, name
):
    steps = training_steps[:3]  # a UART is emulated byte by byte
    board = start(name, digits, digits_directory, "uart")
    with HostLibrary(digits, digits_directory) as library:
        assert run_digits(board, steps) == run_digits(library, steps)


def test_a_serial_board_is_the_same_over_any_port(mischief, mischief_directory, tmp_path):
    target = targets.load("stm32vldiscovery")
    elf = toolchain.build_firmware(target, mischief, mischief_directory, tmp_path, "uart")
    process = QemuProcess(elf, toolchain.board_of(target), "uart")
    try:
        for _ in range(2):  # the firmware survives that its host goes and comes again
            with SerialBoard(process.url, mischief, timeout_s=10.0) as board:
                assert board.reset() == 0
                assert board.read_state() == {}
                assert board.call("read_arena", {}) == (7, {"byte": np.array([0xA5], np.uint8)})
        with SerialBoard(process.url, mischief, timeout_s=10.0) as board:
            board.quit()
        assert process.wait(5.0) == 0
    finally:
        process.kill()


def test_a_port_that_is_not_there_is_reported(mischief):
    with pytest.raises(DeviceError, match="cannot be opened"):
        SerialBoard("/dev/no_such_port", mischief)


def test_every_dtype_passes_unchanged(start, mischief, mischief_directory):
    board = start("cortex-m0", mischief, mischief_directory)
    values = {
        "bool": [True, False, True], "int8": [-128, 0, 127], "float64": [5e-324, -0.0, 0.1],
        "int16": [-32768, 1, 32767], "uint32": [0, 1, 2**32 - 1],
    }  # fmt: skip
    status, outputs = board.call("echo", {f"in_{name}": value for name, value in values.items()})
    assert status == 0
    for name, value in values.items():
        assert outputs[f"out_{name}"].tobytes() == np.array(value, name).tobytes()


def test_state_can_be_written(start, digits, digits_directory, training_steps, host_results):
    board = start("cortex-m3", digits, digits_directory)
    board.reset()
    board.write_state({"net/dense1.bias": np.arange(10, dtype=np.float32)})
    assert board.read_state()["net/dense1.bias"].tolist() == list(range(10))
    with HostLibrary(digits, digits_directory) as library:
        library.reset()
        library.write_state(board.read_state())
        inputs = {"image": training_steps[0]["image"]}
        want = library.call("infer", inputs)[1]["probability"]
    assert board.call("infer", inputs)[1]["probability"].tobytes() == want.tobytes()


def test_the_stack_of_a_call_is_measured(start, mischief, mischief_directory):
    board = start("cortex-m4f", mischief, mischief_directory, optimize="-Os")
    board.call("recurse", {"depth": 0})
    shallow = board.stack_bytes()
    board.call("recurse", {"depth": 10})
    frame = (board.stack_bytes() - shallow) / 10
    assert 256 <= frame <= 300
    assert 256 <= shallow <= 400


def test_a_measuring_build_counts_each_node(digits, digits_directory, training_steps, tmp_path):
    target = targets.load("cortex-m4f")
    elf = toolchain.build_firmware(target, digits, digits_directory, tmp_path, optimize="-Os", measure=True)
    counts = tmp_path / "counts"
    plugin = measure.plugin_arguments(elf, counts)
    with QemuBoard(elf, toolchain.board_of(target), digits, extra_arguments=plugin) as board:
        board.reset()
        board.call("train_step", training_steps[0])
        board.call("infer", {"image": training_steps[0]["image"]})
    totals = {mark: measure.instruction_total(count) for mark, count in measure.read_counts(counts).items()}
    firsts = firmware.first_marks(digits)
    assert firsts == {"infer": 1, "train_step": 5}
    assert sorted(totals) == list(range(12))
    # digits.h states 4,352; each of the four marks costs a few instructions around its call
    assert 4352 <= sum(totals[mark] for mark in range(1, 5)) <= 4352 + 40
    assert totals[1] > 10 * totals[4]


# ---- What goes wrong is said ----


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("semihosting", "cortex-m3"), ("semihosting", "cortex-m4f"), ("semihosting", "cortex-m7"),
        ("semihosting", "cortex-m33"), ("semihosting", "cortex-m55"), ("semihosting", "microbit"),
        ("uart", "cortex-m55"), ("uart", "microbit"),
    ],
)  # fmt: skip
def test_an_unaligned_access_is_reported(start, mischief, mischief_directory, name, channel):
    board = start(name, mischief, mischief_directory, channel)
    assert board.call("load_word", {"at": 4})[1]["word"] == np.uint32(0xA5A5A5A5).astype(np.int32)
    expected = "hard fault" if name == "microbit" else "unaligned access"
    with pytest.raises(DeviceError, match=f"fault during 'call load_word': {expected}") as raised:
        board.call("load_word", {"at": 2})
    assert "pc=0x" in raised.value.what
    with pytest.raises(DeviceError, match="failed before"):
        board.reset()


@pytest.mark.parametrize("name", ["cortex-m33", "netduinoplus2", "microbit"])
def test_a_stack_overflow_is_reported(start, mischief, mischief_directory, name):
    board = start(name, mischief, mischief_directory, optimize="-Os")
    with pytest.raises(DeviceError, match="fault during 'call recurse'"):
        board.call("recurse", {"depth": 10_000})


@pytest.mark.parametrize("channel", ["semihosting", "uart"])
def test_a_hang_is_reported_with_the_command(start, mischief, mischief_directory, channel):
    board = start("cortex-m3", mischief, mischief_directory, channel)
    board.timeout_s = 0.5
    with pytest.raises(DeviceError, match=r"no answer to 'call hang' within 0\.5 s") as raised:
        board.call("hang", {})
    assert "still running" in str(raised.value)
    assert "mps2-an385" in str(raised.value)


def test_an_emulator_that_dies_is_reported(start, mischief, mischief_directory):
    board = start("cortex-m3", mischief, mischief_directory)
    board._process._process.kill()
    with pytest.raises(DeviceError, match="the device ended during 'reset'") as raised:
        board.reset()
    assert "code -9" in str(raised.value)


@pytest.mark.parametrize(
    ("command", "payload", "message"),
    [
        ("nonsense", b"", "unknown command"),
        ("nonsense 0", b"reset\nreset\n", "unknown command"),
        ("call x", b"", "malformed line"),
        ("call 1 2 3", b"", "malformed line"),
        ("call 1 -4", b"", "malformed line"),
        ("call 99", b"", "no such entry point"),
        ("call 0", b"12345", "wrong payload size"),
        ("reset 0", b"1", "wrong payload size"),
        ("c" * 200, b"", "line too long"),
        ("c" * 40, b"", "line too long"),
        ("c" * 39, b"", "unknown command"),
    ],
)
def test_a_malformed_command_is_answered_and_the_next_one_works(
    malformed_board, command, payload, message
):
    with pytest.raises(DeviceError, match=message):
        malformed_board._ask(command, payload)
    malformed_board._broken = False
    assert malformed_board.reset() == 0


@pytest.fixture(scope="module")
def malformed_board(mischief, mischief_directory, tmp_path_factory):
    target = targets.load("cortex-m3")
    elf = toolchain.build_firmware(target, mischief, mischief_directory, tmp_path_factory.mktemp("malformed"))
    with QemuBoard(elf, toolchain.board_of(target), mischief, timeout_s=10.0) as board:
        yield board


def test_another_models_firmware_is_refused(digits, mischief, mischief_directory, tmp_path):
    target = targets.load("cortex-m3")
    elf = toolchain.build_firmware(target, mischief, mischief_directory, tmp_path)
    with pytest.raises(DeviceError, match=r"runs 'mischief [0-9a-f]{16}'.*expected 'digits"):
        QemuBoard(elf, toolchain.board_of(target), digits, timeout_s=10.0)


def test_a_closed_board_has_ended_with_code_0(start, mischief, mischief_directory):
    board = start("cortex-m3", mischief, mischief_directory)
    board.quit()
    assert board._process.wait(5.0) == 0


def test_a_model_that_does_not_fit_is_refused(digits, digits_directory, tmp_path):
    with pytest.raises(ToolError, match="does not fit") as raised:
        toolchain.build_firmware(targets.load("stm32vldiscovery"), digits, digits_directory, tmp_path)
    assert "overflowed by" in str(raised.value)


def test_equal_input_gives_an_equal_image(mischief, mischief_directory, tmp_path):
    target = targets.load("cortex-m3")
    images = []
    for name in ("one", "other"):
        directory = Path(tmp_path / name / "sources")
        directory.mkdir(parents=True)
        for file in mischief_directory.iterdir():
            (directory / file.name).write_bytes(file.read_bytes())
        elf = toolchain.build_firmware(target, mischief, directory, tmp_path / name / "out")
        images.append(elf.read_bytes())
    assert images[0] == images[1]
