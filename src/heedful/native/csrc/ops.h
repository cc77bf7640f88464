// Operations of a Transformer as free functions: each `_forward` has its `_backward`, which adds to the gradients of its
// inputs. Activations are in activations.h, losses in losses.h.
#pragma once

#include "activations.h"
#include "dropout.h"
#include "gemm_f32.h"

namespace heedful {

// Layer normalization of one row -> its mean and 1 / standard deviation. y may be x.
struct RowStats {
    float mean, inverse;
};
inline RowStats normalize_row(const float* x, int width, const float* scale, const float* bias, float epsilon, float* y) {
    VecF32 total{}, squares{};
    int i = 0;
    for (; i + LANES <= width; i += LANES) total += load(x + i);
    float mean = reduce_sum(total);
    for (; i < width; ++i) mean += x[i];
    mean /= width;
    for (i = 0; i + LANES <= width; i += LANES) {
        const VecF32 centered = load(x + i) - mean;
        squares = fmadd(centered, centered, squares);
    }
    float variance = reduce_sum(squares);
    for (; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1 / std::sqrt(variance / width + epsilon);
    for (i = 0; i + LANES <= width; i += LANES)
        store(y + i, fmadd((load(x + i) - mean) * inverse, load(scale + i), load(bias + i)));
    for (; i < width; ++i) y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    return {mean, inverse};
}

// x: (rows, width) -> y, and the statistics of each row.
inline void layer_norm_forward(const float* x, int rows, int width, const float* scale, const float* bias, float epsilon,
                               float* y, RowStats* stats) {
    for (int r = 0; r < rows; ++r)
        stats[r] = normalize_row(x + size_t(r) * width, width, scale, bias, epsilon, y + size_t(r) * width);
}

inline void layer_norm_backward(const float* x, const RowStats* stats, const float* dy, int rows, int width,
                                const float* scale, float* dx, float* d_scale, float* d_bias) {
    for (int r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
        const auto [mean, inverse] = stats[r];
        VecF32 sum_dy{}, sum_dy_x{};
        int j = 0;
        for (; j + LANES <= width; j += LANES) {
            const VecF32 normalized = (load(x + j) - mean) * inverse, d = load(dy + j);
            store(d_scale + j, fmadd(d, normalized, load(d_scale + j)));
            store(d_bias + j, load(d_bias + j) + d);
            sum_dy += d * load(scale + j);
            sum_dy_x = fmadd(d * load(scale + j), normalized, sum_dy_x);
        }
        float mean_dy = reduce_sum(sum_dy), mean_dy_x = reduce_sum(sum_dy_x);
        for (; j < width; ++j) {
            const float normalized = (x[j] - mean) * inverse;
            d_scale[j] += dy[j] * normalized, d_bias[j] += dy[j];
            mean_dy += dy[j] * scale[j], mean_dy_x += dy[j] * scale[j] * normalized;
        }
        mean_dy /= width, mean_dy_x /= width;
        for (j = 0; j + LANES <= width; j += LANES) {
            const VecF32 normalized = (load(x + j) - mean) * inverse;
            const VecF32 centered = load(dy + j) * load(scale + j) - mean_dy - normalized * mean_dy_x;
            store(dx + j, fmadd(centered, broadcast(inverse), load(dx + j)));
        }
        for (; j < width; ++j)
            dx[j] += (dy[j] * scale[j] - mean_dy - (x[j] - mean) * inverse * mean_dy_x) * inverse;
    }
}

struct EmbeddingTables {  // (V, D) embeddings, (types, D) of token types and (max_length, D) of positions, or null
    const float *tokens, *types, *positions;
    float scale;  // of the embeddings and the token types
    int width;    // D, a multiple of LANES
};
struct EmbeddingGrads {  // of the tables; null where a table is null or not learned
    float *tokens, *types, *positions;
};

// x: (count, D), the embeddings of one sentence, times a dropout mask that is drawn from rng.
inline void embedding_forward(const EmbeddingTables& tables, const int32_t* ids, const int32_t* types, int count,
                              DropoutRng& rng, float* x) {
    const size_t D = tables.width;
    const VecF32 scale = broadcast(tables.scale);
    for (int i = 0; i < count; ++i, x += D) {
        const float *token = tables.tokens + ids[i] * D, *type = tables.types ? tables.types + types[i] * D : nullptr;
        const float* position = tables.positions ? tables.positions + i * D : nullptr;
        for (size_t j = 0; j < D; j += LANES) {
            VecF32 sum = position ? load(position + j) : VecF32{};
            if (type) sum = fmadd(load(type + j), scale, sum);
            store(x + j, rng.mask() * fmadd(load(token + j), scale, sum));
        }
    }
}

inline void embedding_backward(const EmbeddingTables& tables, const int32_t* ids, const int32_t* types, int count,
                               DropoutRng& rng, const float* dx, const EmbeddingGrads& grads) {
    const size_t D = tables.width;
    for (int i = 0; i < count; ++i, dx += D) {
        float *token = grads.tokens + ids[i] * D, *type = grads.types ? grads.types + types[i] * D : nullptr;
        float* position = grads.positions ? grads.positions + i * D : nullptr;
        for (size_t j = 0; j < D; j += LANES) {
            const VecF32 mask = rng.mask(), d = load(dx + j);
            store(token + j, fmadd(d * tables.scale, mask, load(token + j)));
            if (type) store(type + j, load(type + j) + d * tables.scale * mask);
            if (position) store(position + j, load(position + j) + d * mask);
        }
    }
}

// Rotary position embedding (Su et al., 2021), in place: rotates adjacent pairs of each head of one row by the angles of its
// position, (d / 2, 2) cosines and sines. The inverse rotation is the backward pass.
template <bool inverse = false>
inline void apply_rotary(float* x, int heads, int head_width, const float* angles) {
    for (int h = 0; h < heads; ++h, x += head_width)
        for (int i = 0; i < head_width; i += 2) {
            const float a = x[i], b = x[i + 1], c = angles[i], s = inverse ? -angles[i + 1] : angles[i + 1];
            x[i] = a * c - b * s, x[i + 1] = a * s + b * c;
        }
}

// ALiBi (Press et al., 2022): subtracts slope times the distance of each of n keys from the query's position.
inline void subtract_alibi(float* scores, int n, int position, float slope) {
    for (int i = 0; i < n; ++i) scores[i] -= slope * float(std::abs(i - position));
}

// x, multiplied by a dropout mask in place: forward on values, backward on gradients. count is a multiple of LANES.
inline void dropout_apply(float* x, size_t count, DropoutRng rng) {
    for (size_t i = 0; i < count; i += LANES) store(x + i, load(x + i) * rng.mask());
}

// y = x + dropout(y). count is a multiple of LANES.
inline void dropout_add_forward(const float* x, float* y, size_t count, DropoutRng rng) {
    for (size_t i = 0; i < count; i += LANES) store(y + i, fmadd(load(y + i), rng.mask(), load(x + i)));
}

// dy = dz mask, and dx += dz unless dx is null.
inline void dropout_add_backward(const float* dz, size_t count, DropoutRng rng, float* dx, float* dy) {
    for (size_t i = 0; i < count; i += LANES) {
        store(dy + i, load(dz + i) * rng.mask());
        if (dx) store(dx + i, load(dx + i) + load(dz + i));
    }
}

// One head of attention over the tokens of one sentence.
struct AttentionShape {
    int queries, keys, width;  // T, S, d
    long stride;               // between the rows of query, key, value and output
    bool causal;
    float slope;    // ALiBi's, or 0
    float dropout;  // rate of the attention weights

    int padded_keys() const { return int(round_up_lanes(keys)); }
    size_t weights_size() const { return size_t(queries) * padded_keys(); }
    // Causal attention is computed in blocks of queries, without the keys that none of them may see.
    int block() const { return causal ? CAUSAL_BLOCK : std::max(queries, keys); }
    int visible(int query) const { return causal ? std::min(query + 1, keys) : keys; }

    static constexpr int CAUSAL_BLOCK = 32;
};

// The dropped attention weights, or the weights themselves without dropout; `mask` receives the mask values.
inline const float* drop_weights(const AttentionShape& shape, const float* weights, const DropoutRng& rng, float* mask,
                                 float* dropped) {
    if (shape.dropout <= 0) return weights;
    DropoutRng draws = rng;
    for (size_t i = 0; i < shape.weights_size(); i += LANES) {
        const VecF32 factor = draws.mask();
        store(mask + i, factor), store(dropped + i, load(weights + i) * factor);
    }
    return dropped;
}

// softmax(Q Kᵀ / √d) V. weights: (T, padded_keys), zero where a query may not attend, kept for the backward pass.
inline void attention_forward(const AttentionShape& shape, const float* query, const float* key, const float* value,
                              const DropoutRng& rng, float* weights, float* output, Buffer<float>& scratch) {
    const auto [T, S, d, D, causal, slope, rate] = shape;
    const int P = shape.padded_keys();
    const float scale = 1 / std::sqrt(float(d));
    const size_t panel_size = std::max(round_up_panel(S) * d, round_up_panel(d) * S);
    float* panels = scratch.ensure(panel_size + (rate > 0 ? 2 * shape.weights_size() : 0));
    pack(key, D, 1, S, d, panels);
    for (int first = 0; first < T; first += shape.block()) {
        const int rows = std::min(shape.block(), T - first), n = shape.visible(first + rows - 1);
        gemm<false>(query + first * D, D, 1, rows, d, panels, n, weights + size_t(first) * P, P);
    }
    for (int t = 0; t < T; ++t) {
        float* row = weights + size_t(t) * P;
        const int visible = shape.visible(t);
        for (int i = 0; i < visible; ++i) row[i] *= scale;
        if (slope != 0) subtract_alibi(row, visible, t, slope);
        const float inverse = 1 / sum_exp<false>(row, visible, max_value(row, visible));
        for (int i = 0; i < visible; ++i) row[i] *= inverse;
        std::fill(row + visible, row + P, 0.0f);
    }
    float* mask = panels + panel_size;
    const float* dropped = drop_weights(shape, weights, rng, mask, mask + shape.weights_size());
    pack(value, 1, D, d, S, panels);
    for (int first = 0; first < T; first += shape.block()) {
        const int rows = std::min(shape.block(), T - first), n = shape.visible(first + rows - 1);
        gemm<false>(dropped + size_t(first) * P, P, 1, rows, n, panels, d, output + first * D, D, nullptr,
                    size_t(S) * PANEL);
    }
}

// Adds to the gradients of query, key and value.
inline void attention_backward(const AttentionShape& shape, const float* query, const float* key, const float* value,
                               const float* weights, const DropoutRng& rng, const float* d_output, float* d_query,
                               float* d_key, float* d_value, Buffer<float>& scratch) {
    const auto [T, S, d, D, causal, slope, rate] = shape;
    const int P = shape.padded_keys(), longest = std::max(S, T), block = shape.block();
    const float scale = 1 / std::sqrt(float(d));
    const size_t panel_size = std::max(round_up_panel(longest) * d, round_up_panel(d) * longest);
    const size_t size = shape.weights_size();
    float* panels = scratch.ensure(panel_size + size + (rate > 0 ? 2 * size : 0));
    float *d_weights = panels + panel_size, *mask = d_weights + size;  // (T, P)
    const float* dropped = drop_weights(shape, weights, rng, mask, mask + size);
    auto for_each_query_block = [&](auto work) {
        for (int first = 0; first < T; first += block) {
            const int rows = std::min(block, T - first);
            work(first, rows, shape.visible(first + rows - 1));
        }
    };
    // Adds (T, S)ᵀ (T, d) to (S, d); the panels hold the second operand. Queries before a causal block do not see its keys.
    auto add_transposed = [&](const float* left, float* to) {
        for (int first = 0; first < S; first += block) {
            const int rows = std::min(block, S - first), t = causal ? first : 0;
            gemm<true>(left + size_t(t) * P + first, 1, P, rows, T - t, panels + size_t(t) * PANEL, d, to + first * D, D,
                       nullptr, size_t(T) * PANEL);
        }
    };
    pack(value, D, 1, S, d, panels);
    for_each_query_block([&](int first, int rows, int n) {
        gemm<false>(d_output + first * D, D, 1, rows, d, panels, n, d_weights + size_t(first) * P, P);
    });
    pack(d_output, 1, D, d, T, panels);
    add_transposed(dropped, d_value);
    for (int t = 0; t < T; ++t) {
        float* row = d_weights + size_t(t) * P;
        const float* weight = weights + size_t(t) * P;
        const int n = int(round_up_lanes(shape.visible(t)));
        if (rate > 0)
            for (int i = 0; i < n; ++i) row[i] *= mask[size_t(t) * P + i];
        const float mean = dot(row, weight, n);
        for (int i = 0; i < n; ++i) row[i] = (row[i] - mean) * weight[i] * scale;
        std::fill(row + n, row + P, 0.0f);
    }
    pack(key, 1, D, d, S, panels);
    for_each_query_block([&](int first, int rows, int n) {
        gemm<true>(d_weights + size_t(first) * P, P, 1, rows, n, panels, d, d_query + first * D, D, nullptr,
                   size_t(S) * PANEL);
    });
    pack(query, 1, D, d, T, panels);
    add_transposed(d_weights, d_key);
}

// to += the sum of all rows of x: (rows, width); width is a multiple of LANES.
inline void add_rows(const float* x, int rows, int width, float* to) {
    for (int r = 0; r < rows; ++r)
        for (int j = 0; j < width; j += LANES) store(to + j, load(to + j) + load(x + size_t(r) * width + j));
}

}  // namespace heedful
