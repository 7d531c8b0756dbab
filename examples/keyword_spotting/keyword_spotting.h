/* keyword_spotting.h: one second of sound to a word. */
#ifndef KEYWORD_SPOTTING_H
#define KEYWORD_SPOTTING_H

#include <stdint.h>

#define SAMPLES_PER_SECOND 16000

/* Which word a second of 16-bit samples at 16 kHz holds: "silence", "unknown", "yes" or "no". */
const char *keyword_of(const int16_t samples[SAMPLES_PER_SECOND]);

#endif
