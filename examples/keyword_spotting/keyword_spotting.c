/* keyword_spotting.c: windows of 30 ms become 40 features each, 49 of them a word. For any project. */
#include "keyword_spotting.h"

#include <stddef.h>

#include "classifier.h"
#include "features.h"

#define WINDOW_SAMPLES 480
#define STEP_SAMPLES 320
#define WINDOWS 49
#define FEATURES 40
#define WORDS 4

static const char *const words[WORDS] = {"silence", "unknown", "yes", "no"};

static features_state_t features_state;
static features_arena_t features_arena;
static classifier_arena_t classifier_arena;

const char *keyword_of(const int16_t samples[SAMPLES_PER_SECOND])
{
    static int8_t spectrogram[WINDOWS * FEATURES];
    int8_t scores[WORDS];
    int32_t best = 0;
    features_ctx_t features;
    classifier_ctx_t classifier;

    if ((features_init(&features, &features_state, sizeof features_state, &features_arena,
             sizeof features_arena) != TE_OK)
        || (features_reset(&features) != TE_OK)
        || (classifier_init(&classifier, &classifier_arena, sizeof classifier_arena) != TE_OK)) {
        return NULL;
    }
    for (int32_t window = 0; window < WINDOWS; ++window) {
        /* the estimate of the noise goes on from window to window */
        const int16_t *from = &samples[window * STEP_SAMPLES];
        if (features_infer(&features, from, &spectrogram[window * FEATURES]) != TE_OK) {
            return NULL;
        }
    }
    if (classifier_infer(&classifier, spectrogram, scores) != TE_OK) {
        return NULL;
    }
    for (int32_t word = 1; word < WORDS; ++word) {
        best = (scores[word] > scores[best]) ? word : best;
    }
    return words[best];
}
