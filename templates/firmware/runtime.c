/* runtime.c: the four functions that gcc may call in any freestanding program. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
int memcmp(const void *a, const void *b, size_t count);

void *memcpy(void *to, const void *from, size_t count)
{
    uint8_t *const t = to;
    const uint8_t *const f = from;
    for (size_t i = 0u; i < count; ++i) {
        t[i] = f[i];
    }
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    uint8_t *const t = to;
    const uint8_t *const f = from;
    if ((uintptr_t)to <= (uintptr_t)from) {
        return memcpy(to, from, count);
    }
    for (size_t i = count; i > 0u; --i) {
        t[i - 1u] = f[i - 1u];
    }
    return to;
}

void *memset(void *to, int value, size_t count)
{
    uint8_t *const t = to;
    for (size_t i = 0u; i < count; ++i) {
        t[i] = (uint8_t)value;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t count)
{
    const uint8_t *const x = a;
    const uint8_t *const y = b;
    for (size_t i = 0u; i < count; ++i) {
        if (x[i] != y[i]) {
            return (int)x[i] - (int)y[i];
        }
    }
    return 0;
}
