/* semihosting.c: the channel as two files of the host, "request" and "response" in the emulator's
 * working directory, usually named pipes. Arm, "Semihosting for AArch32 and AArch64", 2022. */
#include "te_firmware.h"

#define SYS_OPEN 0x01u
#define SYS_WRITE0 0x04u
#define SYS_WRITE 0x05u
#define SYS_READ 0x06u
#define SYS_EXIT_EXTENDED 0x20u

#define MODE_READ_BINARY 1u
#define MODE_WRITE_BINARY 5u
#define APPLICATION_EXIT 0x20026u

static int32_t request_file = -1;
static int32_t response_file = -1;

static int32_t semihosting(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory", "cc");
    return (int32_t)r0;
}

static int32_t open_file(const char *name, uint32_t name_bytes, uint32_t mode)
{
    const uint32_t arguments[3] = {(uint32_t)name, mode, name_bytes};
    return semihosting(SYS_OPEN, arguments);
}

/* Returns how many bytes are left to transfer. */
static uint32_t transfer(uint32_t operation, int32_t file, const void *bytes, uint32_t count)
{
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)bytes, count};
    return (uint32_t)semihosting(operation, arguments);
}

static void transfer_all(uint32_t operation, int32_t file, const void *bytes, uint32_t count)
{
    const uint8_t *at = bytes;
    while (count > 0u) {
        const uint32_t left = transfer(operation, file, at, count);
        if (left >= count) { /* no progress: the host has closed the file, or -1 for an error */
            te_exit(TE_EXIT_CHANNEL);
        }
        at += count - left;
        count = left;
    }
}

void te_channel_open(void)
{
    request_file = open_file("request", 7u, MODE_READ_BINARY);
    response_file = open_file("response", 8u, MODE_WRITE_BINARY);
    if ((request_file < 0) || (response_file < 0)) {
        (void)semihosting(SYS_WRITE0, "cannot open the files request and response\n");
        te_exit(TE_EXIT_CHANNEL);
    }
}

void te_channel_read(void *bytes, uint32_t count)
{
    transfer_all(SYS_READ, request_file, bytes, count);
}

void te_channel_write(const void *bytes, uint32_t count)
{
    transfer_all(SYS_WRITE, response_file, bytes, count);
}

void te_exit(int32_t code)
{
    const uint32_t arguments[2] = {APPLICATION_EXIT, (uint32_t)code};
    for (;;) {
        (void)semihosting(SYS_EXIT_EXTENDED, arguments);
    }
}
