/* mischief.c: see mischief.h. */
#include "mischief.h"

#ifndef MISCHIEF_AFTER_NODE
#define MISCHIEF_AFTER_NODE(ctx, node) ((void)0)
#endif

te_status_t mischief_init(mischief_ctx_t *ctx, void *arena, size_t arena_bytes)
{
    ctx->arena = arena;
    return (arena_bytes == sizeof(mischief_arena_t)) ? TE_OK : -2;
}

te_status_t mischief_load_word(const mischief_ctx_t *ctx, int32_t at, int32_t *word)
{
    *word = *(volatile int32_t *)(uintptr_t)&ctx->arena->bytes[at];
    MISCHIEF_AFTER_NODE(ctx, 0);
    return TE_OK;
}

te_status_t mischief_read_arena(const mischief_ctx_t *ctx, uint8_t byte[1])
{
    byte[0] = ctx->arena->bytes[0];
    ctx->arena->bytes[0] = 1u;
    return 7;
}

te_status_t mischief_write_arena(const mischief_ctx_t *ctx, int32_t at)
{
    *(volatile uint8_t *)((uintptr_t)ctx->arena + (uintptr_t)at) = 1u;
    return TE_OK;
}

te_status_t mischief_recurse(const mischief_ctx_t *ctx, int32_t depth, int32_t *sum)
{
    volatile int32_t frame[64] = {depth};
    *sum = 0;
    if (depth > 0) {
        (void)mischief_recurse(ctx, depth - 1, sum);
    }
    *sum += frame[0];
    return TE_OK;
}

te_status_t mischief_hang(const mischief_ctx_t *ctx)
{
    (void)ctx;
    for (volatile int32_t i = 0;; ++i) {
    }
}

#define COPY(to, from)                                                                             \
    for (int32_t i = 0; i < 3; ++i) {                                                              \
        (to)[i] = (from)[i];                                                                       \
    }

te_status_t mischief_echo(const mischief_ctx_t *ctx, const uint8_t in_bool[3], uint8_t out_bool[3],
                          const int8_t in_int8[3], int8_t out_int8[3], const double in_float64[3],
                          double out_float64[3], const int16_t in_int16[3], int16_t out_int16[3],
                          const uint32_t in_uint32[3], uint32_t out_uint32[3])
{
    (void)ctx;
    COPY(out_bool, in_bool)
    COPY(out_int8, in_int8)
    COPY(out_float64, in_float64)
    COPY(out_int16, in_int16)
    COPY(out_uint32, in_uint32)
    return TE_OK;
}
