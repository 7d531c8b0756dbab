"""Runs the test firmware on a board emulated by QEMU."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from teeny_embed.deploy import toolchain
from teeny_embed.deploy.device import Channel, DeviceRunner, SerialChannel
from teeny_embed.emit_c.interface import Interface
from teeny_embed.errors import DeviceError
from teeny_embed.target import Board

_POLL_S = 0.05
_EXIT_S = 10.0


class QemuProcess:
    """One emulator, running `elf`, in a temporary directory with the two pipes of the firmware.

    With `channel="uart"` the board's serial port is at `url`. Killed on `kill` and at garbage collection.
    """

    def __init__(
        self, elf: Path, board: Board, channel: str = "semihosting", extra_arguments: Sequence[str] = ()
    ) -> None:
        command = [
            toolchain.find("qemu-system-arm"), "-M", board.machine, "-kernel", str(elf.resolve()),
            "-nographic", "-monitor", "none", "-no-reboot", *extra_arguments,
        ]  # fmt: skip
        self._directory = tempfile.TemporaryDirectory(prefix="teeny_embed_")
        self.path = Path(self._directory.name)
        self.url: str | None = None
        if channel == "uart":
            self._start_with_uart(command)
        else:
            self._start_with_pipes(command)
        self._finalizer = weakref.finalize(self, _kill, self._process)

    def has_ended(self) -> bool:
        """Whether the emulator is no longer running."""
        return self._process.poll() is not None

    def wait(self, timeout_s: float) -> int | None:
        """The exit code, or None if the emulator is still running after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def printed(self) -> str:
        """What the emulator and the program's console have printed."""
        return (self.path / "log").read_text(errors="replace").strip() if self.path.exists() else ""

    def kill(self) -> None:
        """Ends the emulator and removes its directory. May be called twice."""
        self._finalizer()
        self._directory.cleanup()

    def _start_with_pipes(self, command: Sequence[str]) -> None:
        for name in ("request", "response"):
            os.mkfifo(self.path / name)
        semihosting = ("-semihosting-config", "enable=on,target=native")
        self._start([*command, "-serial", "none", *semihosting])

    def _start_with_uart(self, command: Sequence[str]) -> None:
        """The emulator inherits a listening socket: no port number can be taken in between."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"socket://127.0.0.1:{listener.getsockname()[1]}"
            chardev = f"socket,id=uart,fd={listener.fileno()},server=on,wait=on"
            self._start([*command, "-chardev", chardev, "-serial", "chardev:uart"], (listener.fileno(),))

    def _start(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        with (self.path / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self.path, pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class PipeChannel:
    """The two named pipes that the firmware opens through semihosting."""

    def __init__(self, process: QemuProcess) -> None:
        self._process = process
        # opened for reading and writing, so that neither waits for the firmware to open its end
        self._request = os.open(process.path / "request", os.O_RDWR | os.O_NONBLOCK)
        self._response = os.open(process.path / "response", os.O_RDWR | os.O_NONBLOCK)
        self._finalizer = weakref.finalize(self, _close, self._request, self._response)

    def read(self, byte_count: int, timeout_s: float) -> bytes:
        """See `Channel.read`."""
        ended = self._process.has_ended()  # asked first: what it wrote before its end is still read
        if select.select([self._response], [], [], min(timeout_s, 0.0 if ended else _POLL_S))[0]:
            return os.read(self._response, byte_count)
        if ended:
            raise EOFError
        return b""

    def write(self, data: bytes, timeout_s: float) -> int:
        """See `Channel.write`."""
        if self._process.has_ended():
            raise EOFError
        if select.select([], [self._request], [], min(timeout_s, _POLL_S))[1]:
            return os.write(self._request, data)
        return 0

    def close(self) -> None:
        """See `Channel.close`."""
        self._finalizer()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class QemuBoard(DeviceRunner):
    """A model on an emulated board. `elf` was built for the same board and channel.

    `timeout_s` is per command. `extra_arguments` go to QEMU, such as those of a plugin; `close` lets the
    program end by itself, so that a plugin writes its results. Raises DeviceError and ToolError.
    """

    def __init__(
        self,
        elf: Path,
        board: Board,
        interface: Interface,
        channel: str = "semihosting",
        timeout_s: float = 60.0,
        extra_arguments: Sequence[str] = (),
    ) -> None:
        self._process = QemuProcess(elf, board, channel, extra_arguments)
        try:
            url = self._process.url
            connection: Channel = SerialChannel(url, 115_200) if url else PipeChannel(self._process)
            self._channel = connection
            super().__init__(connection, interface, f"{board.name} (QEMU)", timeout_s)
        except BaseException:
            self.kill()
            raise

    def close(self) -> None:
        """Asks the firmware to end and kills the emulator if it does not."""
        try:
            if not self._broken and not self._process.has_ended():
                self.quit()
                self._process.wait(_EXIT_S)
        except DeviceError:
            pass  # it is killed anyway
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the emulator at once."""
        if hasattr(self, "_channel"):
            self._channel.close()
        self._process.kill()

    def _diagnosis(self) -> str | None:
        self._process.wait(0.2)  # a program that has just ended needs a moment to be seen as ended
        if not self._process.has_ended():
            return "the emulated program is still running, perhaps in an endless loop"
        code, printed = self._process.wait(0.0), self._process.printed()
        return f"the emulator ended with code {code} and printed {printed!r}"
