/* mischief.h: a model written by hand that misbehaves when asked to. */
#ifndef MISCHIEF_H_
#define MISCHIEF_H_

#include <stddef.h>
#include <stdint.h>

typedef int32_t te_status_t;
#define TE_OK 0

typedef union mischief_arena {
    uint8_t bytes[16];
    uint32_t words[4];
} mischief_arena_t;

typedef struct mischief_ctx {
    mischief_arena_t *arena;
} mischief_ctx_t;

te_status_t mischief_init(mischief_ctx_t *ctx, void *arena, size_t arena_bytes);

/* The word at byte `at` of the arena: unaligned unless `at` is a multiple of 4. */
te_status_t mischief_load_word(const mischief_ctx_t *ctx, int32_t at, int32_t *word);

/* The first byte of the arena, before anything is written to it. */
te_status_t mischief_read_arena(const mischief_ctx_t *ctx, uint8_t byte[1]);

te_status_t mischief_write_arena(const mischief_ctx_t *ctx, int32_t at);
te_status_t mischief_recurse(const mischief_ctx_t *ctx, int32_t depth, int32_t *sum);
te_status_t mischief_hang(const mischief_ctx_t *ctx);

/* Each output is its input. */
te_status_t mischief_echo(const mischief_ctx_t *ctx, const uint8_t in_bool[3], uint8_t out_bool[3],
                          const int8_t in_int8[3], int8_t out_int8[3], const double in_float64[3],
                          double out_float64[3], const int16_t in_int16[3], int16_t out_int16[3],
                          const uint32_t in_uint32[3], uint32_t out_uint32[3]);

#endif /* MISCHIEF_H_ */
