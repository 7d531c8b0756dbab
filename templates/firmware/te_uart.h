/* te_uart.h: what a UART driver provides to uart.c. Polled, 8 bits, no parity, one stop bit; clocks,
 * pins and baud rate are set before by the writes that board.h lists. */
#ifndef TE_UART_H_
#define TE_UART_H_

#include "board.h"
#include "te_firmware.h"

#define TE_UART_REGISTER(offset_bytes) (*(volatile uint32_t *)(TE_UART_BASE + (offset_bytes)))

void te_uart_open(void);
uint8_t te_uart_get(void);
void te_uart_put(uint8_t byte);

#endif /* TE_UART_H_ */
