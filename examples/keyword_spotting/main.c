/* main.c: one second of samples comes from the emulator's file "request", the word goes into "response". */
#include <stddef.h>

#include "keyword_spotting.h"
#include "te_firmware.h"

void te_protocol_run(void)
{
    static int16_t samples[SAMPLES_PER_SECOND];
    const char *word;

    te_channel_read(samples, (uint32_t)sizeof samples);
    word = keyword_of(samples);
    if (word != NULL) {
        te_channel_write(word, te_text_bytes(word));
    }
    te_exit(word == NULL);
}
