/* protocol.c: what the host may ask.
 *
 *     request     command [number [payload bytes]] newline, payload
 *     response    ok number payload-bytes newline, payload
 *                 error text newline                    nothing was done
 *                 fault name=value ... newline          the program ends (startup.c)
 *
 *     command       number       payload          response's number      response's payload
 *     info          any                           the request's number   identity: name and id, newline
 *     reset                                       te_status_t
 *     call          entry point  inputs in order  te_status_t            outputs in order, always
 *     read_state                                  0                      the state struct
 *     write_state                the state struct 0
 *     stack                                       stack bytes of the last call
 *     quit                                        0
 *
 * Numbers are decimal, arrays row-major, everything little-endian. On start the firmware says
 * "hello identity", on quit "bye identity". A host that connects does not know whether the firmware
 * listens yet: it sends info with rising numbers until one is answered, and skips all before that. */
#include <stdbool.h>

#include "te_firmware.h"

#define LINE_BYTES 40u
#define ARENA_GARBAGE 0xa5u /* an arena may hold anything: reads before writes shall show */

void *memset(void *to, int value, size_t count);
int memcmp(const void *a, const void *b, size_t count);

typedef struct {
    uint32_t command_bytes;
    uint32_t number;
    uint32_t payload_bytes;
    char line[LINE_BYTES];
} te_request_t;

static uint32_t last_stack_bytes;

/* ---- Lists of blocks ------------------------------------------------------------------------- */

static uint32_t total_bytes(const te_block_t *block)
{
    uint32_t total = 0u;
    for (; block->bytes != NULL; ++block) {
        total += block->byte_count;
    }
    return total;
}

static void read_blocks(const te_block_t *block)
{
    for (; block->bytes != NULL; ++block) {
        te_channel_read(block->bytes, block->byte_count);
    }
}

static void write_blocks(const te_block_t *block)
{
    for (; block->bytes != NULL; ++block) {
        te_channel_write(block->bytes, block->byte_count);
    }
}

static void clear_blocks(const te_block_t *block)
{
    for (; block->bytes != NULL; ++block) {
        (void)memset(block->bytes, 0, block->byte_count);
    }
}

/* ---- Responses ------------------------------------------------------------------------------- */

static void respond(int32_t number, uint32_t payload_bytes)
{
    te_put_text("ok ");
    te_put_decimal(number);
    te_put_text(" ");
    te_put_decimal((int32_t)payload_bytes);
    te_put_text("\n");
}

static void respond_error(const te_request_t *request, const char *text)
{
    for (uint32_t i = 0u; i < request->payload_bytes; ++i) { /* else it would be read as commands */
        uint8_t ignored;
        te_channel_read(&ignored, 1u);
    }
    te_put_text("error ");
    te_put_text(text);
    te_put_text("\n");
}

static void introduce(const char *word)
{
    te_put_text(word);
    te_put_text(te_model.identity);
    te_put_text("\n");
}

/* ---- Commands -------------------------------------------------------------------------------- */

static void run_info(const te_request_t *request)
{
    respond((int32_t)request->number, te_text_bytes(te_model.identity) + 1u);
    introduce("");
}

static void run_reset(const te_request_t *request)
{
    (void)request;
    respond(te_model.reset(), 0u);
}

static int32_t run_entry(const te_entry_t *entry)
{
    te_stack_paint();
#ifdef TE_MEASURE
    te_mark_first = entry->first_mark;
    te_mark(0u);
#endif
    const int32_t status = entry->call();
#ifdef TE_MEASURE
    te_mark_first = 0u;
    te_mark(0u);
#endif
    last_stack_bytes = te_stack_used_bytes();
    return status;
}

static void run_call(const te_request_t *request)
{
    if (request->number >= te_model.entry_count) {
        respond_error(request, "no such entry point");
        return;
    }
    const te_entry_t *const entry = &te_model.entries[request->number];
    if (request->payload_bytes != total_bytes(entry->inputs)) {
        respond_error(request, "wrong payload size");
        return;
    }
    (void)memset(te_model.arena.bytes, ARENA_GARBAGE, te_model.arena.byte_count);
    clear_blocks(entry->outputs);
    read_blocks(entry->inputs); /* last: they may lie in the arena */
    const int32_t status = run_entry(entry);
    respond(status, total_bytes(entry->outputs));
    write_blocks(entry->outputs);
}

static void run_read_state(const te_request_t *request)
{
    (void)request;
    respond(0, te_model.state.byte_count);
    te_channel_write(te_model.state.bytes, te_model.state.byte_count);
}

static void run_write_state(const te_request_t *request)
{
    if (request->payload_bytes != te_model.state.byte_count) {
        respond_error(request, "wrong payload size");
        return;
    }
    te_channel_read(te_model.state.bytes, te_model.state.byte_count);
    respond(0, 0u);
}

static void run_stack(const te_request_t *request)
{
    (void)request;
    respond((int32_t)last_stack_bytes, 0u);
}

static void run_quit(const te_request_t *request)
{
    (void)request;
    respond(0, 0u);
    introduce("bye ");
    te_exit(TE_EXIT_DONE);
}

typedef struct {
    const char *name;
    uint32_t name_bytes;
    bool has_payload;
    void (*run)(const te_request_t *request);
} te_command_t;

static const te_command_t COMMANDS[] = {
    {"info", 4u, false, run_info},
    {"reset", 5u, false, run_reset},
    {"call", 4u, true, run_call},
    {"read_state", 10u, false, run_read_state},
    {"write_state", 11u, true, run_write_state},
    {"stack", 5u, false, run_stack},
    {"quit", 4u, false, run_quit},
};

static const te_command_t *find_command(const te_request_t *request)
{
    for (uint32_t i = 0u; i < sizeof COMMANDS / sizeof COMMANDS[0]; ++i) {
        if ((request->command_bytes == COMMANDS[i].name_bytes) &&
            (memcmp(request->line, COMMANDS[i].name, COMMANDS[i].name_bytes) == 0)) {
            return &COMMANDS[i];
        }
    }
    return NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Reads up to the newline, which becomes a 0; false if the line was too long. */
static bool read_line(char line[LINE_BYTES])
{
    uint32_t count = 0u;
    for (;;) {
        char character;
        te_channel_read(&character, 1u);
        if (character == '\n') {
            break;
        }
        if (count < LINE_BYTES) {
            line[count] = character;
        }
        count += (count < LINE_BYTES) ? 1u : 0u;
    }
    line[(count < LINE_BYTES) ? count : 0u] = '\0';
    return count < LINE_BYTES;
}

/* A space and a decimal number of at most nine digits; returns what follows, NULL if malformed. */
static const char *parse_number(const char *text, uint32_t *number)
{
    if ((text == NULL) || (*text == '\0')) {
        return text;
    }
    if (*text != ' ') {
        return NULL;
    }
    uint32_t digits = 0u;
    for (++text; (*text >= '0') && (*text <= '9') && (digits < 9u); ++text, ++digits) {
        *number = *number * 10u + (uint32_t)(*text - '0');
    }
    return (digits > 0u) ? text : NULL;
}

static bool parse(te_request_t *request)
{
    const char *text = request->line;
    while ((*text != ' ') && (*text != '\0')) {
        ++text;
    }
    request->command_bytes = (uint32_t)(text - request->line);
    text = parse_number(text, &request->number);
    text = parse_number(text, &request->payload_bytes);
    if ((text == NULL) || (*text != '\0')) {
        request->payload_bytes = 0u; /* not to be believed */
        return false;
    }
    return true;
}

static void serve(te_request_t *request)
{
    if (!read_line(request->line)) {
        respond_error(request, "line too long");
        return;
    }
    if (!parse(request)) {
        respond_error(request, "malformed line");
        return;
    }
    const te_command_t *const command = find_command(request);
    if (command == NULL) {
        respond_error(request, "unknown command");
    } else if (!command->has_payload && (request->payload_bytes != 0u)) {
        respond_error(request, "wrong payload size");
    } else {
        command->run(request);
    }
}

void te_protocol_run(void)
{
    const int32_t status = te_model.init();
    introduce("hello ");
    if (status != 0) {
        te_put_text("error init failed with status ");
        te_put_decimal(status);
        te_put_text("\n");
        te_exit(TE_EXIT_FAULT);
    }
    for (;;) {
        te_request_t request = {0};
        serve(&request);
    }
}
