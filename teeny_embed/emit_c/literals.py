"""C spellings of types and constants."""

from __future__ import annotations

from typing import Any

import numpy as np

C_TYPES = {
    "bool": "uint8_t", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t",
    "float16": "uint16_t", "float32": "float", "float64": "double",
}  # fmt: skip
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_SUFFIX = {"uint8": "u", "uint16": "u", "uint32": "u", "int64": "ll", "uint64": "ull", "bool": "u"}


def literal(value: Any, dtype: str, module: str = "") -> str:
    """`value` as a C constant that keeps every bit: hexadecimal floats; float16, infinities and NaN by bits.

    `module` is the prefix of the helper that turns bits into a float; tables hold finite numbers only.
    """
    if dtype == "float16":
        return f"0x{int(np.float16(value).view(np.uint16)):04x}u"
    if dtype.startswith("float"):
        return _float_literal(value, dtype, module)
    number = int(value)
    if number in (-(2**31), -(2**63)):  # the positive half of these does not exist in their type
        return f"(-{-number - 1}{_SUFFIX.get(dtype, '')} - 1)"
    return f"{number}{_SUFFIX.get(dtype, '')}"


def _float_literal(value: Any, dtype: str, module: str) -> str:
    number = np.dtype(dtype).type(value)
    suffix = "f" if dtype == "float32" else ""
    if not np.isfinite(number):
        wide = dtype == "float64"
        bits = (
            int(number.view("u8" if wide else "u4"))
            if not np.isnan(number)
            else (0x7FF8 << 48 if wide else 0x7FC00000)
        )
        return f"{module}_from_bits{'64' if wide else ''}(0x{bits:x}u{'ll' if wide else ''})"
    text = float(number).hex()
    mantissa, exponent = text.split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    text = f"{mantissa}p{exponent}{suffix}"
    if float(number) == int(float(number)) and abs(number) < 1e6:
        text = f"{'-' if np.signbit(number) else ''}{abs(int(number))}.0{suffix}"
    return f"({text})" if text.startswith("-") else text
