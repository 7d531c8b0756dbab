"""The statuses that generated functions return; te_abi.h says what each means to a firmware engineer."""

from __future__ import annotations

OK, ERR_ARGUMENT, ERR_STATE, ERR_RANGE, ERR_NONFINITE = 0, -1, -4, -5, -6

MEANINGS = {
    ERR_ARGUMENT: "TE_ERR_ARGUMENT (a learning rate is NaN, infinite or negative)",
    ERR_STATE: "TE_ERR_STATE (the state was not reset)",
    ERR_RANGE: "TE_ERR_RANGE (a label or index is out of range)",
    ERR_NONFINITE: "TE_ERR_NONFINITE (the loss is NaN or infinite)",
}
