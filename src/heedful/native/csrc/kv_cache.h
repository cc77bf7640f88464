// The KV cache of a sentence: keys and values of its source, and of a tree of generated tokens.
//
// A node of the tree is one token that the decoder has processed, with its keys and values stored once. A hypothesis is the
// path from the root to a node, so hypotheses branch and end without copying their cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "config.h"

namespace heedful {

// The keys and values of one attention. The key of token i in head h is at base + h * head_stride + i * token_stride; a path
// replaces i by path[i]. The value is value_offset behind the key.
struct KVView {
    const float* base;
    size_t token_stride, head_stride, value_offset;
    const int32_t* path;

    const float* key(int h, int i) const { return base + h * head_stride + (path ? path[i] : i) * token_stride; }
};

struct Node {
    int32_t id, parent, depth;  // the root has parent -1
    float log_prob;
};

struct Source {
    std::vector<int32_t> ids;   // of text
    std::vector<float> frames;  // of audio: (length * feature_stride, F); freed once they are encoded
    int length = 0;             // positions of the encoder
};

// Sources without padding, concatenated: token ids or audio frames; both pointers are null for a decoder.
struct SourceArrays {
    const int32_t* ids;
    const float* frames;

    // The first source, of `length` positions.
    Source first(const ModelConfig& config, int32_t length) const {
        Source source;
        source.length = ids || frames ? length : 0;
        if (ids) source.ids.assign(ids, ids + length);
        if (frames) source.frames.assign(frames, frames + config.frame_values(length));
        if (source.length && (frames != nullptr) != (config.features > 0))
            throw std::invalid_argument(frames ? "the model reads tokens" : "the model reads audio");
        return source;
    }

    // The sources that follow it.
    SourceArrays rest(const ModelConfig& config, int32_t length) const {
        return {ids ? ids + length : nullptr, frames ? frames + config.frame_values(length) : nullptr};
    }
};

struct Sentence {
    Source source;
    int32_t hidden = -1;             // a source token that nothing attends to, or -1
    std::vector<int32_t> shortlist;  // ids of the tokens that the output may use, ascending; empty for all
    std::vector<Node> nodes;
    std::vector<std::vector<float>> cross_kv;  // of each layer and head: (S, d) keys, then (S, d) values of the source
    std::vector<std::vector<float>> self_kv;   // of each layer: (nodes, 2 D) keys and values of the generated tokens
    std::vector<float> copy_keys;              // of a pointer-generator: (S, D)
};

// A row of a decoder step: token `id` follows node `parent` and becomes a node itself.
struct Row {
    Sentence* sentence;
    int32_t parent, id;
    float log_prob;
    bool wants_logits = true;  // false for the tokens of a prompt but the last
    float* logits = nullptr;   // of the next token: one for each token of the shortlist, or of the vocabulary
    float* cross_weights = nullptr;  // receives the attention weights over the source, (layers, H, S), unless it is null
};

}  // namespace heedful
