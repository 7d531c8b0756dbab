/* uart_cmsdk.c: the APB UART of Arm's Cortex-M System Design Kit (Arm DDI 0479, section 4.3). */
#include "te_uart.h"

#define DATA TE_UART_REGISTER(0x00u)
#define STATE TE_UART_REGISTER(0x04u)
#define CTRL TE_UART_REGISTER(0x08u)

#define STATE_TRANSMIT_FULL (1u << 0)
#define STATE_RECEIVE_FULL (1u << 1)
#define CTRL_TRANSMIT_ENABLE (1u << 0)
#define CTRL_RECEIVE_ENABLE (1u << 1)

void te_uart_open(void)
{
    CTRL = CTRL_TRANSMIT_ENABLE | CTRL_RECEIVE_ENABLE;
}

uint8_t te_uart_get(void)
{
    while ((STATE & STATE_RECEIVE_FULL) == 0u) {
    }
    return (uint8_t)DATA;
}

void te_uart_put(uint8_t byte)
{
    while ((STATE & STATE_TRANSMIT_FULL) != 0u) {
    }
    DATA = byte;
}
