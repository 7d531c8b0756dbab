"""Which operators can be imported: those of TFLite Micro, with their converters, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator

from teeny_embed.frontends.tflite.operators import CONVERTERS

_MICRO_OPERATORS = """
ABS ADD ADD_N ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND
BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL CONCATENATION CONV_2D COS CUMSUM DEPTHWISE_CONV_2D
DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FILL FLOOR
FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER GREATER_EQUAL HARD_SWISH IF L2_NORMALIZATION
L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC LOG_SOFTMAX MAXIMUM
MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2 PRELU QUANTIZE READ_VARIABLE
REDUCE_ALL REDUCE_MAX REDUCE_MIN RELU RELU6 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2
ROUND RSQRT SELECT_V2 SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE
SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM SVDF TANH TRANSPOSE TRANSPOSE_CONV
UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK VAR_HANDLE WHILE ZEROS_LIKE
CIRCULAR_BUFFER SignalDelay SignalEnergy SignalFftAutoScale SignalFilterBank SignalFilterBankLog
SignalFilterBankSpectralSubtraction SignalFilterBankSquareRoot SignalFramer SignalIrfft SignalOverlapAdd
SignalPCAN SignalRfft SignalStacker SignalWindow TFLM_DECODE TFLite_Detection_PostProcess ethos-u
"""
MICRO_OPERATORS = tuple(_MICRO_OPERATORS.split())
"""What TFLite Micro registers; custom operators come last."""

LEFT_OUT = {
    "TFLM_DECODE": "decompresses weights while the net runs; the importer reads weights as they are",
    "TFLite_Detection_PostProcess": "sorts, and loops as long as its data say; a task of the application",
    "ethos-u": "a program for another processor, already compiled",
}
NOT_YET = "no converter yet"


def table() -> Iterator[tuple[str, str, str]]:
    """(operator, types of its activations, note): TFLite Micro's operators, then others with a converter."""
    others = sorted(set(CONVERTERS) - set(MICRO_OPERATORS))
    for name in (*MICRO_OPERATORS, *others):
        if name in CONVERTERS:
            found = CONVERTERS[name]
            yield name, ", ".join(found.dtypes), found.note
        else:
            yield name, "", LEFT_OUT.get(name, NOT_YET)
