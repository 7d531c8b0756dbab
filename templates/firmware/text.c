/* text.c: text and numbers onto the channel. */
#include "te_firmware.h"

uint32_t te_text_bytes(const char *text)
{
    uint32_t count = 0u;
    while (text[count] != '\0') {
        ++count;
    }
    return count;
}

void te_put_text(const char *text)
{
    te_channel_write(text, te_text_bytes(text));
}

static void put_digits(uint32_t number, uint32_t base)
{
    char text[11];
    uint32_t at = sizeof text - 1u;
    text[at] = '\0';
    do {
        text[--at] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number != 0u);
    te_put_text(&text[at]);
}

void te_put_decimal(int32_t number)
{
    if (number < 0) {
        te_put_text("-");
    }
    put_digits((number < 0) ? 0u - (uint32_t)number : (uint32_t)number, 10u);
}

void te_put_hex(uint32_t number)
{
    te_put_text("0x");
    put_digits(number, 16u);
}
