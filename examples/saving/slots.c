/* slots.c: see slots.h. */
#include "slots.h"

#include <stdio.h>

static te_status_t within(uint32_t offset, uint32_t byte_count, uint32_t slot_bytes)
{
    return ((offset <= slot_bytes) && (byte_count <= slot_bytes - offset)) ? TE_OK : TE_ERR_IO;
}

/* ---- RAM ------------------------------------------------------------------------------------------ */

static te_status_t ram_read(void *user, uint32_t offset, uint8_t *bytes, uint32_t byte_count)
{
    const slot_ram_t *const ram = user;
    if (within(offset, byte_count, ram->byte_count) != TE_OK) {
        return TE_ERR_IO;
    }
    for (uint32_t i = 0u; i < byte_count; ++i) {
        bytes[i] = ram->bytes[offset + i];
    }
    return TE_OK;
}

static te_status_t ram_write(void *user, uint32_t offset, const uint8_t *bytes, uint32_t byte_count)
{
    const slot_ram_t *const ram = user;
    if (within(offset, byte_count, ram->byte_count) != TE_OK) {
        return TE_ERR_IO;
    }
    for (uint32_t i = 0u; i < byte_count; ++i) {
        ram->bytes[offset + i] = bytes[i];
    }
    return TE_OK;
}

te_slot_t slot_in_ram(slot_ram_t *ram)
{
    const te_slot_t slot = {ram_read, ram_write, ram};
    return slot;
}

/* ---- Flash ---------------------------------------------------------------------------------------- */

static te_status_t flash_read(void *user, uint32_t offset, uint8_t *bytes, uint32_t byte_count)
{
    const slot_flash_t *const flash = user;
    if (within(offset, byte_count, flash->byte_count) != TE_OK) {
        return TE_ERR_IO;
    }
    for (uint32_t i = 0u; i < byte_count; ++i) {
        bytes[i] = flash->bytes[offset + i];
    }
    return TE_OK;
}

/* Chunks arrive in order, so a page is erased when its first chunk does. */
static te_status_t flash_write(void *user, uint32_t offset, const uint8_t *bytes, uint32_t byte_count)
{
    const slot_flash_t *const flash = user;
    te_status_t status = within(offset, byte_count, flash->byte_count);
    if ((status == TE_OK) && (offset % flash->page_bytes == 0u)) {
        status = flash->erase(flash->driver, offset);
    }
    if (status == TE_OK) {
        status = flash->program(flash->driver, offset, bytes, byte_count);
    }
    return (status == TE_OK) ? TE_OK : TE_ERR_IO;
}

te_slot_t slot_in_flash(slot_flash_t *flash)
{
    const te_slot_t slot = {flash_read, flash_write, flash};
    return slot;
}

/* ---- A file ---------------------------------------------------------------------------------------- */

static te_status_t file_read(void *user, uint32_t offset, uint8_t *bytes, uint32_t byte_count)
{
    const slot_file_t *const slot = user;
    FILE *const file = fopen(slot->path, "rb");
    size_t done = 0u;
    if (file == NULL) {
        return TE_ERR_IO;
    }
    if (fseek(file, (long)offset, SEEK_SET) == 0) {
        done = fread(bytes, 1u, byte_count, file);
    }
    return ((fclose(file) == 0) && (done == byte_count)) ? TE_OK : TE_ERR_IO;
}

/* The first chunk makes the file anew, so nothing of an older one is left behind the last. */
static te_status_t file_write(void *user, uint32_t offset, const uint8_t *bytes, uint32_t byte_count)
{
    const slot_file_t *const slot = user;
    FILE *const file = fopen(slot->path, (offset == 0u) ? "wb" : "ab");
    size_t done = 0u;
    if (file == NULL) {
        return TE_ERR_IO;
    }
    done = fwrite(bytes, 1u, byte_count, file);
    return ((fclose(file) == 0) && (done == byte_count)) ? TE_OK : TE_ERR_IO;
}

te_slot_t slot_in_file(slot_file_t *file)
{
    const te_slot_t slot = {file_read, file_write, file};
    return slot;
}
