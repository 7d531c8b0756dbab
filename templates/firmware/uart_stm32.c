/* uart_stm32.c: the USART of STM32F1, F2 and F4 (ST RM0041, RM0090). */
#include "te_uart.h"

#define SR TE_UART_REGISTER(0x00u)
#define DR TE_UART_REGISTER(0x04u)
#define CR1 TE_UART_REGISTER(0x0cu)

#define SR_RECEIVE_NOT_EMPTY (1u << 5)
#define SR_TRANSMIT_COMPLETE (1u << 6)
#define CR1_RECEIVE_ENABLE (1u << 2)
#define CR1_TRANSMIT_ENABLE (1u << 3)
#define CR1_USART_ENABLE (1u << 13)

void te_uart_open(void)
{
    CR1 = CR1_USART_ENABLE | CR1_TRANSMIT_ENABLE | CR1_RECEIVE_ENABLE;
}

uint8_t te_uart_get(void)
{
    while ((SR & SR_RECEIVE_NOT_EMPTY) == 0u) {
    }
    return (uint8_t)DR;
}

void te_uart_put(uint8_t byte)
{
    DR = byte;
    while ((SR & SR_TRANSMIT_COMPLETE) == 0u) { /* complete, so that a reset cuts nothing short */
    }
}
