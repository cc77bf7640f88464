// Self-attention of one head over a long sentence, by GEMMs over blocks of queries.
//
// A query's result does not depend on its block. For short sentences, `Model::attend` is faster: it packs nothing.
#pragma once

#include "ops.h"

namespace heedful {

constexpr int BLOCK_ATTENTION_TOKENS = 64;  // tokens from which it is faster

// softmax(Q Kᵀ / √d) V of one head. query: (S, d), its keys and values `kv_offset` and 2 `kv_offset` floats behind it, rows
// `stride` apart; output: (S, d), rows `kv_offset` apart. slope is ALiBi's, or 0; hidden is a
// token that nothing attends to, or -1.
inline void block_attention(const float* query, int length, int width, size_t stride, size_t kv_offset, float slope,
                            int hidden, float* output) {
    constexpr int ROWS = 4 * KERNEL_ROWS;  // their scores stay in the L2 cache
    const float scale = 1.0f / std::sqrt(float(width));
    const size_t padded = round_up_lanes(length), columns = round_up_lanes(width);
    thread_local Buffer<float> key_panels, value_panels, scores_buffer, query_buffer, output_buffer;
    float* keys = key_panels.ensure(round_up_panel(length) * width);
    float* values = value_panels.ensure(round_up_panel(width) * length);
    pack(query + kv_offset, long(stride), 1, length, width, keys);
    pack(query + 2 * kv_offset, 1, long(stride), width, length, values);
    float *scores = scores_buffer.ensure(ROWS * padded), *scaled = query_buffer.ensure(ROWS * width);
    float *sums = output_buffer.ensure(ROWS * columns), totals[ROWS];
    for (int first = 0; first < length; first += ROWS) {
        const int rows = std::min(ROWS, length - first);
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < width; ++i) scaled[r * width + i] = query[(first + r) * stride + i] * scale;
        gemm<false>(scaled, width, 1L, rows, width, keys, length, scores, long(padded));
        for (int r = 0; r < rows; ++r) {
            float* row = scores + r * padded;
            if (slope != 0) subtract_alibi(row, length, first + r, slope);
            if (hidden >= 0) row[hidden] = -INF;
            totals[r] = sum_exp<false>(row, length, max_value(row, length));
        }
        gemm<false>(scores, long(padded), 1L, rows, length, values, width, sums, long(columns), nullptr,
                    size_t(length) * PANEL);
        for (int r = 0; r < rows; ++r)
            for (int i = 0; i < width; ++i) output[(first + r) * kv_offset + i] = sums[r * columns + i] / totals[r];
    }
}

}  // namespace heedful
