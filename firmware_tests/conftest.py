"""What the firmware tests share: tools, two hand-written models, and a place to build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.tools import need
from teeny_embed.deploy.runner import Array
from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface, StateField

_HERE = Path(__file__).resolve().parent


def _state_fields() -> tuple[StateField, ...]:
    """Two dense layers, and a momentum for each of their parameters."""
    shapes = {
        "dense0.weight": (16, 64), "dense0.bias": (16,), "dense1.weight": (10, 16), "dense1.bias": (10,),
    }  # fmt: skip
    fields = [StateField("steps", "uint32", (), 4)]
    start = 16
    for suffix in ("", ".momentum"):
        for name, shape in shapes.items():
            fields.append(StateField(f"net/{name}{suffix}", "float32", shape, start))
            start += 4 * int(np.prod(shape))
    return tuple(fields)


_IMAGE = Argument("image", "float32", (1, 64), "in")

DIGITS = Interface(
    name="digits",
    entry_points=(
        EntryPoint(
            "infer",
            (_IMAGE, Argument("probability", "float32", (1, 10), "out")),
            ("digits_dense0_act0", "digits_dense1", "digits_softmax"),
        ),
        EntryPoint(
            "train_step",
            (
                _IMAGE,
                Argument("label", "int32", (), "in"),
                Argument("learning_rate", "float32", (), "in"),
                Argument("loss", "float32", (), "out"),
            ),
            tuple(f"digits_node{i}" for i in range(6)),
        ),
    ),
    state=_state_fields(),
    state_bytes=9696,
    arena_bytes=176,
    sources=("digits.c", "digits_params.c"),
)

_AT = Argument("at", "int32", (), "in")
_DEPTH = Argument("depth", "int32", (), "in")

MISCHIEF = Interface(
    name="mischief",
    entry_points=(
        EntryPoint("load_word", (_AT, Argument("word", "int32", (), "out")), ("n",)),
        EntryPoint("read_arena", (Argument("byte", "uint8", (1,), "out"),), ()),
        EntryPoint("write_arena", (_AT,), ()),
        EntryPoint("recurse", (_DEPTH, Argument("sum", "int32", (), "out")), ()),
        EntryPoint("hang", (), ()),
        EntryPoint(
            "echo",
            tuple(
                Argument(f"{direction}_{dtype}", dtype, (3,), direction)
                for dtype in ("bool", "int8", "float64", "int16", "uint32")
                for direction in ("in", "out")
            ),
            (),
        ),
    ),
    state=(),
    state_bytes=0,
    arena_bytes=16,
    sources=("mischief.c",),
)


@pytest.fixture(scope="session")
def digits_directory(shared: Path) -> Path:
    """The hand-written model `digits`, which is not part of this repository."""
    need("gcc")
    return shared / "style" / "generated_example"


@pytest.fixture(scope="session")
def mischief_directory() -> Path:
    """A model without state that faults, hangs and overflows when asked to."""
    need("gcc")
    return _HERE / "mischief"


@pytest.fixture
def emulator() -> None:
    """Skips visibly where firmware cannot be built and run."""
    need("arm-none-eabi-gcc", "qemu-system-arm")


@pytest.fixture(scope="session")
def digits() -> Interface:
    return DIGITS


@pytest.fixture(scope="session")
def mischief() -> Interface:
    return MISCHIEF


@pytest.fixture(scope="session")
def training_steps() -> list[dict[str, Array]]:
    """Inputs of 20 training steps; some pixels are subnormal."""
    rng = np.random.default_rng(1)
    images = (rng.integers(0, 17, (20, 1, 64)) / 16).astype(np.float32)
    images[3] *= np.float32(1e-39)
    return [
        {"image": image, "label": np.int32(rng.integers(0, 10)), "learning_rate": np.float32(0.05)}
        for image in images
    ]
