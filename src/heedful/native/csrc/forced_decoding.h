// Forced decoding (teacher forcing) of an encoder-decoder: log-probabilities of given targets, and their attention weights
// over the source.
#pragma once

#include "decoder.h"

namespace heedful {

constexpr size_t FORCED_GROUP_TOKENS = 256;  // of both sides, after which a group of pairs is full
constexpr size_t FORCED_ROWS = 64;           // target tokens of one decoder step, at most
constexpr size_t FORCED_WEIGHTS = 1 << 22;   // attention weights of its rows, after which a step is full

struct ForcedPairs {  // without padding; native/capi.py mirrors it
    SourceArrays sources;
    const int32_t* source_lengths;
    const int32_t* hidden;                    // of each source, a token that nothing attends to, or -1; null: none
    const int32_t *targets, *target_lengths;  // from the first input to the last label
    const int32_t* heads;                     // cross-attention heads whose weights are wanted: layer * H + head
    int32_t pairs, head_count;
};

struct ForcedPair {
    SourceArrays source;
    const int32_t* target;
    int32_t source_length, labels, hidden;
    float *log_probs, *weights;  // receive (T), and (heads, T, S)
};

// The pairs, and where their results are written.
inline std::vector<ForcedPair> split_pairs(const ModelConfig& config, const ForcedPairs& all, float* log_probs,
                                           float* weights) {
    std::vector<ForcedPair> pairs;
    SourceArrays source = all.sources;
    const int32_t* target = all.targets;
    for (int32_t i = 0; i < all.pairs; ++i) {
        const int32_t S = all.source_lengths[i], T = all.target_lengths[i] - 1;
        pairs.push_back({source, target, S, T, all.hidden ? all.hidden[i] : -1, log_probs, weights});
        source = source.rest(config, S), target += T + 1, log_probs += T, weights += size_t(all.head_count) * T * S;
    }
    return pairs;
}

// The tokens of a group of pairs share decoder steps.
inline void force_group(Decoder& decoder, const ForcedPair* pairs, size_t count, const ForcedPairs& all) {
    const ModelConfig& config = decoder.model.config;
    std::vector<Sentence> sentences(count);
    std::vector<Sentence*> encoded;
    std::vector<std::pair<size_t, int32_t>> tokens;  // pair and index of each input
    for (size_t p = 0; p < count; ++p) {
        sentences[p].hidden = pairs[p].hidden;
        sentences[p].source = pairs[p].source.first(config, pairs[p].source_length);
        encoded.push_back(&sentences[p]);
        for (int32_t t = 0; t < pairs[p].labels; ++t) tokens.push_back({p, t});
    }
    decoder.encode(encoded);
    Buffer<float> buffer;
    for (size_t first = 0, R = 0; first < tokens.size(); first += R) {
        std::vector<Row> rows;
        std::vector<size_t> offsets{0};  // of each row's attention weights
        for (R = 0; R < FORCED_ROWS && first + R < tokens.size(); ++R) {
            const auto [p, t] = tokens[first + R];
            const size_t heads = all.head_count ? size_t(config.decoder_layers) * config.heads : 0;
            const size_t weights = heads * pairs[p].source_length;
            if (R && offsets.back() + weights > FORCED_WEIGHTS) break;
            rows.push_back({&sentences[p], t - 1, pairs[p].target[t], 0});
            offsets.push_back(offsets.back() + weights);
        }
        if (all.head_count) buffer.ensure(offsets.back());
        for (size_t r = 0; r < R && all.head_count; ++r) rows[r].cross_weights = buffer.get() + offsets[r];
        decoder.step(rows);
        for (size_t r = 0; r < R; ++r) {
            const auto [p, t] = tokens[first + r];
            const ForcedPair& pair = pairs[p];
            const size_t S = pair.source_length;
            const float normalizer = logsumexp(rows[r].logits, config.vocabulary);
            if (!std::isfinite(normalizer)) throw std::domain_error("the model's probabilities are not numbers");
            pair.log_probs[t] = rows[r].logits[pair.target[t + 1]] - normalizer;
            for (int32_t h = 0; h < all.head_count; ++h)
                std::copy_n(rows[r].cross_weights + all.heads[h] * S, S, pair.weights + (size_t(h) * pair.labels + t) * S);
        }
    }
}

// log_probs receives the log-probability of each label, of all pairs, and `weights` (heads, T, S) of each pair. Each thread
// computes its own groups of pairs; all threads compute a single group if it is full.
inline void force(const Model& model, int threads, const ForcedPairs& all, float* log_probs, float* weights) {
    const std::vector<ForcedPair> pairs = split_pairs(model.config, all, log_probs, weights);
    std::vector<size_t> groups{0};  // first pair of each, and the end
    size_t tokens = 0;  // of the last group
    for (size_t p = 0; p < pairs.size(); ++p) {
        if (groups.back() == p) tokens = 0;
        tokens += pairs[p].source_length + pairs[p].labels;
        if (tokens >= FORCED_GROUP_TOKENS || p + 1 == pairs.size()) groups.push_back(p + 1);
    }
    const size_t count = groups.size() - 1;
    if (count == 1 && tokens >= FORCED_GROUP_TOKENS) {
        Decoder decoder(model, threads);
        return force_group(decoder, pairs.data(), pairs.size(), all);
    }
    parallel_for_with(count, threads, [&] { return Decoder(model, 1); }, [&](Decoder& decoder, size_t g) {
        force_group(decoder, &pairs[groups[g]], groups[g + 1] - groups[g], all);
    });
}

}  // namespace heedful
