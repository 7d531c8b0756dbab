"""The host's side of the firmware's protocol (see protocol.c), over any byte channel."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from teeny_embed.deploy import firmware
from teeny_embed.deploy.runner import (
    Array,
    ClosingContext,
    entry_index,
    input_arrays,
    output_arrays,
    state_from_bytes,
    state_into_bytes,
)
from teeny_embed.deploy.status import OK
from teeny_embed.emit_c.interface import Interface
from teeny_embed.errors import DeviceError

# How long a device may take to answer before it is asked again who it is.
_GREETING_S = 0.2

# How long one attempt to read from a serial port lasts, and how much is written at a time.
_POLL_S = 0.05
_WRITE_BYTES = 256

# Bits of the Configurable Fault Status Register: Armv8-M Architecture Reference Manual, D1.2.10.
_FAULTS = {
    0: "instruction fetch refused", 1: "data access refused", 3: "unstacking refused", 4: "stacking refused",
    8: "instruction bus error", 9: "data bus error", 10: "late data bus error", 11: "unstacking bus error",
    12: "stacking bus error (stack overflow)", 16: "undefined instruction", 17: "invalid state",
    18: "invalid return", 19: "no coprocessor (FPU off?)", 20: "stack overflow", 24: "unaligned access",
    25: "division by zero",
}  # fmt: skip


class _NoAnswer(DeviceError):
    """The device did not answer in time."""


class Channel(Protocol):
    """Bytes to and from a device."""

    def read(self, byte_count: int, timeout_s: float) -> bytes:
        """Up to `byte_count` bytes; none after `timeout_s`. EOFError if the device is gone."""

    def write(self, data: bytes, timeout_s: float) -> int:
        """How many bytes were sent. EOFError if the device is gone."""

    def close(self) -> None:
        """May be called twice."""


class DeviceRunner(ClosingContext):
    """A model in the test firmware at the other end of a channel. `where` names it in errors.

    Raises DeviceError if it does not answer within `timeout_s` per command, faults, or runs another model.
    """

    def __init__(self, channel: Channel, interface: Interface, where: str, timeout_s: float) -> None:
        self.interface = interface
        self.where = where
        self.timeout_s = timeout_s
        self._channel = channel
        self._doing = ""
        self._deadline = 0.0
        self._broken = False
        self._check_identity()

    def reset(self) -> int:
        """See `Runner.reset`."""
        return self._ask("reset")[0]

    def call(self, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> tuple[int, dict[str, Array]]:
        """See `Runner.call`."""
        index = entry_index(self.interface, entry)
        declared = self.interface.entry_points[index]
        payload = b"".join(array.tobytes() for array in input_arrays(declared, inputs).values())
        status, answer = self._ask(f"call {index}", payload, doing=f"call {entry}")
        outputs = self._outputs(entry, output_arrays(declared), answer)
        for argument in declared.arguments if status != OK else ():
            if argument.name in outputs and argument.offset_bytes is not None:
                outputs[argument.name][...] = 0  # the arena holds anything
        return status, outputs

    def read_state(self) -> dict[str, Array]:
        """See `Runner.read_state`."""
        return state_from_bytes(self.interface, self._read_raw_state())

    def write_state(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """See `Runner.write_state`."""
        self._ask("write_state 0", state_into_bytes(self.interface, self._read_raw_state(), values))

    def stack_bytes(self) -> int:
        """The deepest use of the stack by the last call."""
        return self._ask("stack")[0]

    def close(self) -> None:
        """Closes the channel; the device keeps running."""
        self._channel.close()

    def quit(self) -> None:
        """Ends the firmware: an emulator exits, a board starts anew."""
        self._ask("quit")
        expected = f"bye {firmware.identity(self.interface)}"
        if (line := self._line()) != expected:
            raise self._error(f"the last line is {line!r}, expected {expected!r}")

    # ---- Requests and responses ----

    def _ask(self, command: str, payload: bytes = b"", doing: str | None = None) -> tuple[int, bytes]:
        """Sends one request and returns number and payload of the response."""
        self._begin(doing or command.split()[0])
        self._send(f"{command} {len(payload)}\n".encode() if payload else f"{command}\n".encode())
        self._send(payload)
        return self._response(self._line())

    def _begin(self, doing: str) -> None:
        if self._broken:
            raise DeviceError("the device failed before and cannot be used any more", where=self.where)
        self._doing = doing
        self._deadline = time.monotonic() + self.timeout_s

    def _response(self, line: str) -> tuple[int, bytes]:
        if line.startswith("fault "):
            raise self._fault(line)
        answer = re.fullmatch(r"ok (-?\d+) (\d+)", line)
        if answer is None:
            raise self._error(f"the device answered {line!r} to {self._doing!r}")
        return int(answer[1]), self._receive(int(answer[2]))

    def _check_identity(self) -> None:
        said = self._response(self._greet())[1].decode(errors="replace").strip()
        expected = firmware.identity(self.interface)
        if said != expected:
            raise self._error(f"the device runs {said!r}, expected {expected!r}")

    def _greet(self) -> str:
        """Asks who is there until the device listens; skips what it said before, such as its hello."""
        self._begin("info")
        last, attempt = self._deadline, 0
        while True:
            attempt += 1
            self._deadline = min(last, time.monotonic() + _GREETING_S)
            try:
                self._send(f"\ninfo {attempt}\n".encode())
                return self._line_starting_with(f"ok {attempt} ", "fault ", "error init")
            except _NoAnswer:
                if time.monotonic() >= last:
                    raise
                self._broken = False

    def _line_starting_with(self, *beginnings: str) -> str:
        while not (line := self._line()).startswith(beginnings):
            pass
        return line

    def _outputs(self, entry: str, outputs: dict[str, Array], raw: bytes) -> dict[str, Array]:
        if len(raw) != sum(array.nbytes for array in outputs.values()):
            raise self._error(f"{entry} sent {len(raw)} bytes of outputs")
        start = 0
        for array in outputs.values():
            array.reshape(-1).view("uint8")[:] = memoryview(raw)[start : start + array.nbytes]
            start += array.nbytes
        return outputs

    def _read_raw_state(self) -> bytes:
        raw = self._ask("read_state")[1]
        if len(raw) != self.interface.state_bytes:
            raise self._error(f"the state has {len(raw)} bytes, expected {self.interface.state_bytes}")
        return raw

    # ---- Bytes ----

    def _send(self, data: bytes) -> None:
        while data:
            data = data[self._transfer("write", data) :]

    def _receive(self, byte_count: int) -> bytes:
        received = bytearray()
        while len(received) < byte_count:
            received += self._transfer("read", byte_count - len(received))
        return bytes(received)

    def _line(self) -> str:
        """The next line that is not empty."""
        line = bytearray()
        while not line.endswith(b"\n") or not line.strip():
            line = line if line.strip() else bytearray()
            line += self._receive(1)
        return line.strip().decode(errors="replace")

    def _transfer(self, direction: str, what: Any) -> Any:
        left_s = self._deadline - time.monotonic()
        try:
            done = getattr(self._channel, direction)(what, max(left_s, 0.0))
        except EOFError:
            raise self._error(f"the device ended during {self._doing!r}") from None
        if not done and left_s <= 0.0:
            self._broken = True
            what = f"no answer to {self._doing!r} within {self.timeout_s:g} s"
            raise _NoAnswer(what, self.where, self._diagnosis())
        return done

    # ---- Errors ----

    def _error(self, what: str) -> DeviceError:
        """After any error it is unknown which bytes are still under way."""
        self._broken = True
        return DeviceError(what, where=self.where, hint=self._diagnosis())

    def _diagnosis(self) -> str | None:
        """What else is known about the device's end."""
        return None

    def _fault(self, line: str) -> DeviceError:
        registers = dict(pair.split("=") for pair in line.split()[1:] if "=" in pair)
        bits = int(registers.get("cfsr", "0"), 16)
        reasons = [text for bit, text in _FAULTS.items() if bits >> bit & 1] or ["hard fault"]
        hint = f"arm-none-eabi-addr2line -fie firmware.elf {registers['pc']}" if "pc" in registers else None
        self._broken = True
        return DeviceError(f"fault during {self._doing!r}: {', '.join(reasons)}\n  {line}", self.where, hint)


class SerialChannel:
    """A serial port by its pyserial URL: "/dev/ttyACM0", "socket://localhost:4000"."""

    def __init__(self, url: str, baud_rate: int) -> None:
        import serial

        try:  # SerialException is an OSError
            self._port = serial.serial_for_url(url, baudrate=baud_rate, timeout=_POLL_S)
        except (OSError, ValueError) as error:
            raise DeviceError(f"the port cannot be opened: {error}", where=url) from None

    def read(self, byte_count: int, timeout_s: float) -> bytes:
        """See `Channel.read`. Waits for a fixed short time: changing it would set up the port anew."""
        try:
            return bytes(self._port.read(byte_count))
        except OSError:
            raise EOFError from None

    def write(self, data: bytes, timeout_s: float) -> int:
        """See `Channel.write`."""
        try:
            return int(self._port.write(data[:_WRITE_BYTES]))
        except OSError:
            raise EOFError from None

    def close(self) -> None:
        """See `Channel.close`."""
        self._port.close()


class SerialBoard(DeviceRunner):
    """A board with the "uart" firmware at a serial port. Raises DeviceError."""

    def __init__(
        self, url: str, interface: Interface, timeout_s: float = 60.0, baud_rate: int = 115_200
    ) -> None:
        channel = SerialChannel(url, baud_rate)
        try:
            super().__init__(channel, interface, url, timeout_s)
        except BaseException:
            channel.close()
            raise
