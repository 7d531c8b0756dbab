/* QEMU TCG plugin: how often each instruction ran, per segment of the run.
 *
 * A segment begins when the guest stores to base + id from code in [mark_low, mark_high), which is
 * the function te_mark; it is named id and ends at the next such store. Segment 0 runs until the
 * first one. The instructions of te_mark itself are not counted, those of its call are.
 *
 * Arguments, all needed: mark_low, mark_high, base, ids (count), out (file). The file has a line
 * "S id" per segment that ran, followed by a line "pc count" (pc in hex) per instruction.
 *
 * Build: gcc -O2 -shared -fPIC -DQEMU_PLUGIN_VERSION=1 (2 from QEMU 9 on). The few functions used
 * are declared here, as the plugin interface documents them, so no QEMU headers are needed.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb; /* a block of instructions that is being translated */
struct qemu_plugin_insn;
typedef void (*translate_t)(uint64_t plugin, struct qemu_plugin_tb *block);
typedef void (*execute_t)(unsigned cpu, void *user);
typedef void (*access_t)(unsigned cpu, uint32_t info, uint64_t address, void *user);
typedef void (*exit_t)(uint64_t plugin, void *user);

enum { NO_REGISTERS = 0, WRITES = 2 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, translate_t call);
void qemu_plugin_register_atexit_cb(uint64_t plugin, exit_t call, void *user);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, execute_t call,
                                            int flags, void *user);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, access_t call,
                                      int flags, int accesses, void *user);

EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* One instruction of the guest. */
struct counter {
    uint64_t pc;
    uint64_t count;       /* in the segment that is open */
    uint64_t *in_segment; /* [ids], of those that are closed */
    struct counter *next; /* all counters, newest first */
    struct counter *next_in_bucket;
};

#define BUCKETS 65536u

static struct counter *counters;
static struct counter *buckets[BUCKETS];
static uint64_t segment;
static uint64_t mark_low, mark_high, base, ids;
static const char *out;

static void *cleared(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL) {
        fputs("icount_plugin: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* A block may be translated many times; an instruction has one counter. */
static struct counter *counter_of(uint64_t pc)
{
    struct counter **bucket = &buckets[(pc >> 1) % BUCKETS];
    for (struct counter *c = *bucket; c != NULL; c = c->next_in_bucket) {
        if (c->pc == pc) {
            return c;
        }
    }
    struct counter *c = cleared(1, sizeof *c);
    *c = (struct counter){pc, 0, cleared(ids, sizeof(uint64_t)), counters, *bucket};
    counters = *bucket = c;
    return c;
}

static void close_segment(void)
{
    for (struct counter *c = counters; c != NULL; c = c->next) {
        c->in_segment[segment] += c->count;
        c->count = 0;
    }
}

static void on_execute(unsigned cpu, void *user)
{
    (void)cpu;
    ((struct counter *)user)->count += 1;
}

static void on_mark(unsigned cpu, uint32_t info, uint64_t address, void *user)
{
    (void)cpu, (void)info, (void)user;
    if (address >= base && address < base + ids) {
        close_segment();
        segment = address - base;
    }
}

static void on_translate(uint64_t plugin, struct qemu_plugin_tb *block)
{
    (void)plugin;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); ++i) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t pc = qemu_plugin_insn_vaddr(instruction);
        if (pc >= mark_low && pc < mark_high) {
            qemu_plugin_register_vcpu_mem_cb(instruction, on_mark, NO_REGISTERS, WRITES, NULL);
        } else {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_execute, NO_REGISTERS, counter_of(pc));
        }
    }
}

static void write_segment(FILE *file, uint64_t id)
{
    int any = 0;
    for (struct counter *c = counters; c != NULL; c = c->next) {
        if (c->in_segment[id] != 0) {
            if (!any) {
                fprintf(file, "S %" PRIu64 "\n", id);
            }
            any = 1;
            fprintf(file, "%" PRIx64 " %" PRIu64 "\n", c->pc, c->in_segment[id]);
        }
    }
}

static void on_exit_of_guest(uint64_t plugin, void *user)
{
    (void)plugin, (void)user;
    close_segment();
    FILE *file = fopen(out, "w");
    if (file == NULL) {
        perror(out);
        return;
    }
    for (uint64_t id = 0; id < ids; ++id) {
        write_segment(file, id);
    }
    fclose(file);
}

static void read_argument(const char *name, const char *value)
{
    const struct { const char *name; uint64_t *value; } numbers[] = {
        {"mark_low", &mark_low}, {"mark_high", &mark_high}, {"base", &base}, {"ids", &ids}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].value = strtoull(value, NULL, 0);
        }
    }
    if (strcmp(name, "out") == 0) {
        out = strdup(value);
    }
}

EXPORT int qemu_plugin_install(uint64_t plugin, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; ++i) {
        char *equals = strchr(argv[i], '=');
        if (equals != NULL) {
            *equals = '\0';
            read_argument(argv[i], equals + 1);
        }
    }
    if (out == NULL || ids == 0 || mark_high <= mark_low) {
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translate);
    qemu_plugin_register_atexit_cb(plugin, on_exit_of_guest, NULL);
    return 0;
}
