/* te_firmware.h: what the parts of teeny_embed's test firmware know of each other. Freestanding C99.
 *
 *     startup.c                    vectors, memory, FPU, faults
 *     semihosting.c or uart_*.c    the channel: bytes to and from the host
 *     protocol.c                   commands; text.c writes numbers, stack.c measures the stack
 *     main.c, board.h, link.ld     rendered: one model on one board
 */
#ifndef TE_FIRMWARE_H_
#define TE_FIRMWARE_H_

#include <stddef.h>
#include <stdint.h>

/* ---- Channel ------------------------------------------------------------------------------------
 * Reading and writing wait until all `count` bytes have passed. */

void te_channel_open(void);
void te_channel_read(void *bytes, uint32_t count);
void te_channel_write(const void *bytes, uint32_t count);

/* Ends the program. The emulator exits with `code`; a board without debugger starts anew. */
__attribute__((noreturn)) void te_exit(int32_t code);

#define TE_EXIT_DONE 0
#define TE_EXIT_FAULT 70
#define TE_EXIT_CHANNEL 74

/* ---- Text ------------------------------------------------------------------------------------ */

uint32_t te_text_bytes(const char *text);
void te_put_text(const char *text);
void te_put_decimal(int32_t number);
void te_put_hex(uint32_t number);

/* ---- Stack ------------------------------------------------------------------------------------- */

extern uint32_t te_stack_limit[]; /* lowest word */
extern uint32_t te_stack_top[];   /* one past the highest */

void te_stack_paint(void);
uint32_t te_stack_used_bytes(void); /* deepest use since te_stack_paint, below its caller's frame */

/* ---- Instruction counts: measuring builds only, see mark.c ------------------------------------- */

void te_mark(uint32_t id);
extern uint32_t te_mark_first;

/* ---- The model, described by main.c ------------------------------------------------------------ */

typedef struct {
    void *bytes; /* NULL ends a list */
    uint32_t byte_count;
} te_block_t;

typedef struct {
    int32_t (*call)(void); /* returns a te_status_t */
    const te_block_t *inputs;
    const te_block_t *outputs;
    uint32_t first_mark;
} te_entry_t;

typedef struct {
    const char *identity; /* "name id": the host compares it with its own */
    te_block_t state;
    te_block_t arena;
    int32_t (*init)(void);
    int32_t (*reset)(void);
    const te_entry_t *entries;
    uint32_t entry_count;
} te_model_t;

extern const te_model_t te_model;

__attribute__((noreturn)) void te_protocol_run(void);

#endif /* TE_FIRMWARE_H_ */
