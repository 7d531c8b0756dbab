/* uart_nrf.c: the UART of nRF51 (Nordic nRF51 reference manual 3.0, chapter 29). */
#include "te_uart.h"

#define TASKS_STARTRX TE_UART_REGISTER(0x000u)
#define TASKS_STARTTX TE_UART_REGISTER(0x008u)
#define EVENTS_RXDRDY TE_UART_REGISTER(0x108u)
#define EVENTS_TXDRDY TE_UART_REGISTER(0x11cu)
#define ENABLE TE_UART_REGISTER(0x500u)
#define RXD TE_UART_REGISTER(0x518u)
#define TXD TE_UART_REGISTER(0x51cu)

#define ENABLE_UART 4u

void te_uart_open(void)
{
    ENABLE = ENABLE_UART;
    TASKS_STARTRX = 1u;
    TASKS_STARTTX = 1u;
}

uint8_t te_uart_get(void)
{
    while (EVENTS_RXDRDY == 0u) {
    }
    EVENTS_RXDRDY = 0u; /* before reading: the next byte in the FIFO raises it again */
    return (uint8_t)RXD;
}

void te_uart_put(uint8_t byte)
{
    TXD = byte;
    while (EVENTS_TXDRDY == 0u) {
    }
    EVENTS_TXDRDY = 0u;
}
