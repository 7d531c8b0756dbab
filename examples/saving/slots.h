/* slots.h: three places for what NAME_store.c saves: RAM, flash with erase pages, a file.
 *
 * Each fills a te_slot_t. A slot has room for NAME_STORE_BYTES; two slots never share a flash page.
 * Copy what you need; the flash driver's two functions are yours.
 */
#ifndef SLOTS_H_
#define SLOTS_H_

#include "te_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RAM that keeps its content, e.g. a section that startup code leaves alone ------------------- */

typedef struct slot_ram {
    uint8_t *bytes;
    uint32_t byte_count;
} slot_ram_t;

te_slot_t slot_in_ram(slot_ram_t *ram);

/* ---- Flash: pages are erased as a whole, then programmed ----------------------------------------- */

typedef struct slot_flash {
    const volatile uint8_t *bytes; /* where the flash is read */
    uint32_t byte_count;
    uint32_t page_bytes;           /* a multiple of TE_STORE_CHUNK; the slot starts at a page */
    te_status_t (*erase)(void *driver, uint32_t page_offset);
    te_status_t (*program)(void *driver, uint32_t offset, const uint8_t *bytes, uint32_t byte_count);
    void *driver;                  /* handed to the two functions; offsets are within the slot */
} slot_flash_t;

te_slot_t slot_in_flash(slot_flash_t *flash);

/* ---- A file, where there is a C library with files ----------------------------------------------- */

typedef struct slot_file {
    const char *path;
} slot_file_t;

te_slot_t slot_in_file(slot_file_t *file);

#ifdef __cplusplus
}
#endif

#endif /* SLOTS_H_ */
