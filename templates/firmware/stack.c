/* stack.c: how deep a call went, by painting the unused stack and looking for the lowest spot. */
#include "te_firmware.h"

#define PAINT 0xc5a5c5a5u

static volatile uint32_t *painted_end;

static volatile uint32_t *stack_pointer(void)
{
    uint32_t *pointer;
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
    return pointer;
}

__attribute__((noinline)) void te_stack_paint(void)
{
    painted_end = stack_pointer();
    for (volatile uint32_t *word = te_stack_limit; word < painted_end; ++word) {
        *word = PAINT;
    }
}

__attribute__((noinline)) uint32_t te_stack_used_bytes(void)
{
    const volatile uint32_t *word = te_stack_limit;
    while ((word < painted_end) && (*word == PAINT)) {
        ++word;
    }
    return 4u * (uint32_t)(painted_end - word);
}
