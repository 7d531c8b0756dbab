/* mark.c: segment borders for the instruction counter, an emulator plugin that watches the stores of
 * te_mark: a store to te_mark_base[n] ends the current segment and starts segment n. Segment 0 is
 * everything outside the model. Node i of an entry point is segment first_mark + i; what follows its
 * last node is segment first_mark + node count. Instructions of te_mark itself are not counted. */
#include "board.h"
#include "te_firmware.h"

volatile uint8_t te_mark_base[TE_MARK_COUNT];
uint32_t te_mark_first;

__attribute__((noinline, section(".text.te_mark"))) void te_mark(uint32_t id)
{
    te_mark_base[te_mark_first + id] = 1u;
}
