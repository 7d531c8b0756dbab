"""Names of users never collide with each other's, or with those of the emitter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from support.runs import assert_equal_bits
from teeny_embed import nn
from teeny_embed.api import Build, Program, build
from teeny_embed.autograd.training import train_step
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.graph.node import Variable
from teeny_embed.graph.tensor import Tensor, assign, call, constant, input, read, trace

STRICT = ("-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror")


def compiled(program: Program, folder: Path) -> Build:
    built = build(program, "host", folder)
    with HostLibrary(built.interface, built.directory, flags=STRICT) as library:
        assert library.reset() == 0
    return built


def test_an_argument_of_two_sizes_has_two_counts(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    batch, label = input("image", (8, 64)), input("label", (8,), "int32")
    step = train_step(net, nn.cross_entropy, nn.SGD(), batch, label)
    compiled(Program("net", infer=trace(net, input("image", (1, 64))), train_step=step), tmp_path)
    header = (tmp_path / "net.h").read_text()
    counts = dict(re.findall(r"#define (\w+_COUNT) (\d+)u", header))
    assert counts["NET_INFER_IMAGE_COUNT"] == "64"
    assert counts["NET_TRAIN_STEP_IMAGE_COUNT"] == "512"
    assert counts["NET_LABEL_COUNT"] == "8"
    assert re.search(r"net_infer\(.*image\[NET_INFER_IMAGE_COUNT\]", header)


def test_a_constant_and_the_step_that_copies_it_have_two_names(tmp_path: Path) -> None:
    kept = Variable("kept", np.zeros((4, 4), np.float32), "state")

    def clear(x: Tensor) -> Tensor:
        assign(kept, constant(np.arange(16, dtype=np.float32).reshape(4, 4)))
        return read(kept) + x

    compiled(Program("net", clear=trace(clear, input("x", (4, 4)))), tmp_path)


def test_layers_may_be_called_like_functions_of_the_emitter(tmp_path: Path) -> None:
    names = ("exp", "bits", "state", "word", "reset", "infer", "arena_t", "is_finite", "int8_divide", "load8")
    net = nn.Sequential(**{name: nn.Linear(4, 4) for name in names}, sigmoid=nn.Sigmoid())
    image, label = input("image", (1, 4)), input("label", (), "int32")
    step = train_step(net, nn.cross_entropy, nn.SGD(), image, label)
    compiled(Program("net", infer=trace(net, image), train_step=step), tmp_path)


def test_inputs_may_be_called_like_words_of_c_and_of_the_emitter(tmp_path: Path) -> None:
    words = ("while", "new", "s", "ctx", "t", "sum0", "d0", "r0", "w", "sum", "lane")
    inputs = [*(input(name, (3,)) for name in words), input("i", (3,), "int32")]

    def add_up(*xs: Tensor) -> Tensor:
        return sum((x.sum() for x in xs[:-1]), call("take", xs[0], xs[-1]).sum())

    graph = trace(lambda *xs: (add_up(*xs), xs[0]), *inputs, names=("s", "s/1"))
    built = compiled(Program("net", f=graph), tmp_path)
    arguments = built.interface.entry_points[0].arguments
    assert len({a.name for a in arguments}) == len(arguments) == len(inputs) + 2
    feed = {a.name: np.ones(3, a.dtype) for a in arguments if a.direction == "in"}
    with (
        HostLibrary(built.interface, built.directory) as library,
        ReferenceRunner(built.interface, built.program.entry_points) as reference,
    ):
        found, expected = (runner.call("f", feed) for runner in (library, reference))
        assert found[0] == expected[0] == 0
        assert_equal_bits(found[1], expected[1], "f")
