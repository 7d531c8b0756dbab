"""A second of sound to a word, on an emulated Cortex-M4F: python spot.py MODELS SOUND.wav

MODELS holds TFLite Micro's audio_preprocessor_int8.tflite and micro_speech_int8.tflite; SOUND.wav is mono,
16 kHz, 16 bits. Both models become C modules, which keyword_spotting.c calls.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import teeny_embed as te
from teeny_embed import resources
from teeny_embed.deploy import firmware, toolchain

HERE = Path(__file__).parent
MODULES = {"features": "audio_preprocessor_int8.tflite", "classifier": "micro_speech_int8.tflite"}
SECONDS_AT_MOST = 120
SAMPLES = 16000


def build(models: Path, out: Path, target: str = "cortex-m4f") -> list[te.Build]:
    """The C modules of both models, in `out`."""
    return [
        te.build(te.Program(name, infer=te.load(models / file)), target=target, out=out)
        for name, file in MODULES.items()
    ]


def link(builds: list[te.Build], out: Path) -> Path:
    """The firmware for QEMU: modules, the two C files here, the start-up code of the test firmware."""
    target = builds[0].target
    templates = resources.directory("templates") / "firmware"
    firmware.render(builds[0].interface, toolchain.board_of(target), out / "board")
    own = [templates / f"{name}.c" for name in ("startup", "runtime", "text", "semihosting")]
    sources = [HERE / "main.c", HERE / "keyword_spotting.c", *own]
    sources += [out / name for b in builds for name in b.interface.sources]
    folders = [f"-I{path}" for path in (HERE, out, out / "board", templates)]
    flags = [
        "-std=c99",
        "-O2",
        "-ffreestanding",
        "-fno-tree-loop-distribute-patterns",
        "-mno-unaligned-access",
        *target.flags,
        *folders,
    ]
    linking = ["-nostdlib", f"-Wl,-T,{out / 'board' / 'link.ld'}", "-lgcc"]
    elf = out / "firmware.elf"
    subprocess.run([target.compiler, *flags, *sources, *linking, "-o", elf], check=True)
    return elf


def heard(elf: Path, machine: str, samples: bytes) -> str:
    """The word that the firmware finds in a second of samples."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "request").write_bytes(samples)
        semihosting = ["-semihosting-config", "enable=on,target=native"]
        command = ["qemu-system-arm", "-M", machine, "-kernel", elf, "-nographic", "-monitor", "none"]
        command += ["-serial", "none", *semihosting]
        subprocess.run(command, cwd=folder, check=True, timeout=SECONDS_AT_MOST)
        return (Path(folder) / "response").read_text()


def samples_of(sound: Path) -> bytes:
    """The first second, filled up with silence."""
    with wave.open(str(sound)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, SAMPLES):
            sys.exit(f"{sound}: expected mono, 16 bits, 16 kHz")
        return file.readframes(SAMPLES).ljust(2 * SAMPLES, b"\0")


def main(models: Path, sounds: list[Path], out: Path) -> list[str]:
    """The word in each sound."""
    builds = build(models, out)
    elf = link(builds, out)
    machine = toolchain.board_of(builds[0].target).machine
    return [heard(elf, machine, samples_of(sound)) for sound in sounds]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(*main(Path(sys.argv[1]), [Path(sys.argv[2])], Path(folder)))
