// A training batch as Python passes it.
#pragma once

#include <cstdint>

namespace heedful::train {

struct Batch {  // without padding; native/capi.py mirrors it
    const int32_t *sources, *source_lengths;  // token ids of all sentences concatenated, and the length of each sentence
    const int32_t* types;                     // token types of the sources, or null
    const int32_t *inputs, *target_lengths;   // the decoder's input; an encoder has target_lengths predictions a sentence
    const int32_t* predicted;                 // an encoder's predicted positions in their sentences; null: its labels
    const int32_t* labels;                    // indices of the target tokens among the candidates
    const int32_t* candidates;                // token ids; null: all of them in order
    const float* logit_bias;                  // (C), the correction of the sampled softmax, or null
    int32_t sentences, candidate_count;
    float label_smoothing;
    float rdrop;  // R-Drop's weight; if it is not 0, sentences 2 i and 2 i + 1 are two passes of one sentence
    uint64_t seed;

    int32_t candidate(int c) const { return candidates ? candidates[c] : c; }
};

}  // namespace heedful::train
