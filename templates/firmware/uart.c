/* uart.c: the channel as a serial port. Needs no emulator and no debugger. */
#include "te_uart.h"

#define SCB_AIRCR (*(volatile uint32_t *)0xe000ed0cu)
#define AIRCR_KEY_SYSRESETREQ 0x05fa0004u

typedef struct {
    uint32_t address;
    uint32_t clear;
    uint32_t set;
} te_register_write_t;

static const te_register_write_t SETUP[] = {TE_BOARD_SETUP};

void te_channel_open(void)
{
    for (uint32_t i = 0u; i < sizeof SETUP / sizeof SETUP[0]; ++i) {
        volatile uint32_t *const at = (volatile uint32_t *)SETUP[i].address;
        *at = (*at & ~SETUP[i].clear) | SETUP[i].set;
    }
    te_uart_open();
}

void te_channel_read(void *bytes, uint32_t count)
{
    uint8_t *const to = bytes;
    for (uint32_t i = 0u; i < count; ++i) {
        to[i] = te_uart_get();
    }
}

void te_channel_write(const void *bytes, uint32_t count)
{
    const uint8_t *const from = bytes;
    for (uint32_t i = 0u; i < count; ++i) {
        te_uart_put(from[i]);
    }
}

/* A board has nowhere to exit to: it starts anew and says hello. QEMU's -no-reboot ends there. */
void te_exit(int32_t code)
{
    (void)code;
    __asm__ volatile("dsb" ::: "memory");
    for (;;) {
        SCB_AIRCR = AIRCR_KEY_SYSRESETREQ;
    }
}
