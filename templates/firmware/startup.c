/* startup.c: from reset to te_protocol_run, and what happens on a fault. Armv6-M to Armv8.1-M. */
#include "te_firmware.h"

#define SCB_CCR (*(volatile uint32_t *)0xe000ed14u)
#define SCB_CFSR (*(volatile uint32_t *)0xe000ed28u)
#define SCB_HFSR (*(volatile uint32_t *)0xe000ed2cu)
#define SCB_MMFAR (*(volatile uint32_t *)0xe000ed34u)
#define SCB_BFAR (*(volatile uint32_t *)0xe000ed38u)
#define SCB_CPACR (*(volatile uint32_t *)0xe000ed88u)

#define CCR_UNALIGN_TRP (1u << 3)
#define CCR_LOB (1u << 19)

extern uint32_t te_data_start[], te_data_end[], te_bss_start[], te_bss_end[];
extern const uint32_t te_data_load[];

void te_reset(void);
void te_fault(const uint32_t *frame, uint32_t exception);
void te_fault_entry(void);

static void configure_core(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    SCB_CPACR |= 0xfu << 20; /* coprocessors 10 and 11: the FPU and MVE */
#endif
    SCB_CCR |= CCR_UNALIGN_TRP; /* every core as strict as a Cortex-M0 */
#if defined(__ARM_FEATURE_MVE)
    SCB_CCR |= CCR_LOB; /* low-overhead branches keep their loop cache */
#endif
    __asm__ volatile("dsb\n isb" ::: "memory");
}

static void fill_memory(void)
{
    const uint32_t *from = te_data_load;
    for (uint32_t *to = te_data_start; to < te_data_end; ++to) {
        *to = *from++;
    }
    for (uint32_t *to = te_bss_start; to < te_bss_end; ++to) {
        *to = 0u;
    }
}

__attribute__((noreturn)) void te_reset(void)
{
    configure_core();
    fill_memory();
    te_channel_open();
    te_protocol_run();
}

static void put_register(const char *name, uint32_t value)
{
    te_put_text(name);
    te_put_hex(value);
}

/* One line of the protocol, so that a host waiting for an answer learns of the fault at once. */
__attribute__((noreturn, used)) void te_fault(const uint32_t *frame, uint32_t exception)
{
    put_register("\nfault exception=", exception & 0x1ffu);
    if ((frame >= te_stack_limit) && (frame + 8 <= te_stack_top)) { /* else the stack overflowed */
        put_register(" pc=", frame[6]);
        put_register(" lr=", frame[5]);
    }
    put_register(" sp=", (uint32_t)frame);
#if !defined(__ARM_ARCH_6M__)
    put_register(" cfsr=", SCB_CFSR);
    put_register(" hfsr=", SCB_HFSR);
    put_register(" mmfar=", SCB_MMFAR);
    put_register(" bfar=", SCB_BFAR);
#endif
    te_put_text("\n");
    te_exit(TE_EXIT_FAULT);
}

/* Takes the whole stack anew: after an overflow there is none left. */
__attribute__((naked)) void te_fault_entry(void)
{
    __asm__ volatile("mrs r0, msp\n"
                     "mrs r1, ipsr\n"
                     "ldr r2, =te_stack_top\n"
                     "mov sp, r2\n"
                     "bl te_fault\n"
                     ".ltorg\n");
}

typedef struct {
    uint32_t *stack_top;
    void (*reset)(void);
    void (*exception[14])(void); /* 2 .. 15 */
} te_vectors_t;

#define FAULT te_fault_entry

__attribute__((section(".vectors"), used)) const te_vectors_t te_vectors = {
    te_stack_top, te_reset,
    {FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT, FAULT},
};
