"""Convolutions and matrix products. ONNX's layouts are NCHW and OIHW, those of the graph NHWC and OHWI."""

from __future__ import annotations

from typing import Any

from teeny_embed.frontends.onnx.elementwise import quantized
from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter
from teeny_embed.graph.layout import channels_first, channels_last
from teeny_embed.graph.tensor import Tensor, call


def window(op: Operation, extents: tuple[int, ...], kernel: tuple[int, ...]) -> dict[str, Any]:
    """Stride, padding and dilation of a window over `extents`."""
    rank = len(extents)
    stride = tuple(op.attribute("strides", (1,) * rank))
    dilation = tuple(op.attribute("dilations", (1,) * rank))
    pads = tuple(op.attribute("pads", (0,) * (2 * rank)))
    if not len(stride) == len(dilation) == len(kernel) == rank or len(pads) != 2 * rank:
        raise op.error(f"attributes do not fit {rank} spatial axes")
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    mode = op.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((-(-e // s) - 1) * s + d * (k - 1) + 1 - e, 0)
            for e, k, s, d in zip(extents, kernel, stride, dilation, strict=True)
        ]
        lower = [t // 2 if mode == "SAME_UPPER" else -(-t // 2) for t in total]
        padding = tuple((low, t - low) for low, t in zip(lower, total, strict=True))
    elif mode == "VALID":
        padding = ((0, 0),) * rank
    elif mode != "NOTSET":
        raise op.error(f"auto_pad {mode!r} is unknown")
    return {"stride": stride, "padding": padding, "dilation": dilation}


@converter("Conv")
def convolution(op: Operation) -> Tensor:
    x, filters, bias = channels_last(op[0]), channels_last(op[1]), op.get(2)
    where = window(op, x.shape[1:-1], filters.shape[1:-1])
    y = call("conv", x, filters, groups=op.attribute("group", 1), **where)
    return channels_first(y if bias is None else y + bias)


@converter("ConvTranspose")
def transposed_convolution(op: Operation) -> Tensor:
    """Filters [I, O / groups, spatial...]: it is a convolution's gradient."""
    x, filters, bias = channels_last(op[0]), channels_last(op[1]), op.get(2)
    rank, kernel, groups = x.rank - 2, filters.shape[1:-1], op.attribute("group", 1)
    stride = tuple(op.attribute("strides", (1,) * rank))
    dilation = tuple(op.attribute("dilations", (1,) * rank))
    more = tuple(op.attribute("output_padding", (0,) * rank))
    pads = tuple(op.attribute("pads", (0,) * (2 * rank)))
    whole = [
        s * (e - 1) + m + d * (k - 1) + 1
        for e, k, s, d, m in zip(x.shape[1:-1], kernel, stride, dilation, more, strict=True)
    ]
    mode, shape = op.attribute("auto_pad", "NOTSET"), op.attribute("output_shape")
    if shape is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        shape = [e * s for e, s in zip(x.shape[1:-1], stride, strict=True)]
    if shape is not None:
        total = [max(w - e, 0) for w, e in zip(whole, shape[-rank:], strict=True)]
        before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        if mode != "SAME_UPPER":
            before = [t - t // 2 for t in total] if mode == "SAME_LOWER" else [t // 2 for t in total]
        pads = (*before, *(t - b for t, b in zip(total, before, strict=True)))
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    extents = tuple(w - b - a for w, (b, a) in zip(whole, padding, strict=True))
    y = call(
        "conv_input_grad", x, filters, extents=extents, stride=stride, padding=padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip
    return channels_first(y if bias is None else y + bias)


@converter("Gemm")
def gemm(op: Operation) -> Tensor:
    a, b, c = op[0], op[1], op.get(2)
    a = a.transpose(1, 0) if op.attribute("transA", 0) else a
    b = b if op.attribute("transB", 0) else b.transpose(1, 0)
    y = call("conv", a, b) if a.dtype == "float32" else a @ b.transpose(1, 0)
    alpha, beta = op.attribute("alpha", 1.0), op.attribute("beta", 1.0)
    y = y if alpha == 1 else y * alpha
    return y if c is None or beta == 0 else y + (c if beta == 1 else c * beta)


@converter("MatMul")
def matmul(op: Operation) -> Tensor:
    """A vector is a matrix of one row, or on the right of one column."""
    a, b = op[0], op[1]
    left = a.reshape((1, -1)) if a.rank == 1 else a
    right = b.reshape((-1, 1)) if b.rank == 1 else b
    y = left @ right
    gone = ({y.rank - 2} if a.rank == 1 else set()) | ({y.rank - 1} if b.rank == 1 else set())
    return y.reshape(tuple(e for axis, e in enumerate(y.shape) if axis not in gone))


# ---- Quantised ------------------------------------------------------------------------------------------


def _real(op: Operation, number: int) -> Tensor:
    """What an operand stands for, which its scale and zero point follow; filters have one per channel."""
    x, scale, zero_point = op[number].astype("int32"), op[number + 1], op[number + 2].astype("int32")
    shape = (-1, *(1,) * (x.rank - 1)) if scale.type.count > 1 else ()
    return (x - zero_point.reshape(shape)).astype("float32") * scale.reshape(shape)


@converter("QLinearConv")
def quantized_convolution(op: Operation) -> Tensor:
    x, filters = channels_last(_real(op, 0)), channels_last(_real(op, 3))
    where = window(op, x.shape[1:-1], filters.shape[1:-1])
    y = call("conv", x, filters, groups=op.attribute("group", 1), **where)
    if op.has(8):
        y = y + op[8].astype("float32") * (op[1].reshape(()) * op[4].reshape((-1,)))
    return channels_first(quantized(op, y, op[6].reshape(()), op[7].reshape(())))


@converter("ConvInteger")
def integer_convolution(op: Operation) -> Tensor:
    x, filters = channels_last(_shifted(op, 0, 2)), channels_last(_shifted(op, 1, 3))
    where = window(op, x.shape[1:-1], filters.shape[1:-1])
    return channels_first(call("conv", x, filters, groups=op.attribute("group", 1), **where))


@converter("MatMulInteger")
def integer_matmul(op: Operation) -> Tensor:
    return _shifted(op, 0, 2) @ _shifted(op, 1, 3)


def _shifted(op: Operation, number: int, zero_point: int) -> Tensor:
    x = op[number].astype("int32")
    return x - op[zero_point].astype("int32").reshape(()) if op.has(zero_point) else x


@converter("QLinearMatMul")
def quantized_matmul(op: Operation) -> Tensor:
    return quantized(op, _real(op, 0) @ _real(op, 3), op[6].reshape(()), op[7].reshape(()))


@converter("com.microsoft.QGemm")
def quantized_gemm(op: Operation) -> Tensor:
    a, b = _real(op, 0), _real(op, 3)
    a = a.transpose(1, 0) if op.attribute("transA", 0) else a
    y = call("conv", a, b if op.attribute("transB", 0) else b.transpose(1, 0)) * op.attribute("alpha", 1.0)
    if op.has(6):
        y = y + op[6].astype("float32") * (op[1].reshape(()) * op[4].reshape((-1,)))
    return quantized(op, y, op[7].reshape(()), op[8].reshape(())) if op.has(7) else y
