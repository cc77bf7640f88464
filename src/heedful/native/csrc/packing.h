// Packing of GEMM operands: panels of PANEL columns, so that a micro-kernel reads them in order.
//
// A float32 panel is (k, PANEL). A bf16 panel is (k / 2, PANEL, 2): VNNI layout, two rows interleaved. k of a bf16 panel is
// zero-padded to a multiple of PANEL.
#pragma once

#include <algorithm>

#include "bf16.h"

namespace heedful {

constexpr int TILE_ROWS = 16;  // rows of an AMX tile; bf16 GEMMs may write that many rows beyond the last one

inline size_t round_up_panel(size_t n) { return round_up(n, PANEL); }
inline size_t round_up_lanes(size_t n) { return round_up(n, LANES); }
inline size_t round_up_tile(size_t rows) { return round_up(rows, TILE_ROWS); }

// LANES rows of k values, k a multiple of LANES, as k rows of LANES values, `ldt` apart.
inline void transpose_block(const float* from, long ldx, int k, float* to, long ldt) {
    for (int t = 0; t < k; t += LANES) {
        VecU32 block[LANES];
        for (int i = 0; i < LANES; ++i) std::memcpy(&block[i], from + i * ldx + t, sizeof block[i]);
        transpose(block);
        for (int i = 0; i < LANES; ++i) std::memcpy(to + (t + i) * ldt, &block[i], sizeof block[i]);
    }
}

// (k, columns) into panels, with any strides; the last panel is zero-padded.
inline void pack(const float* from, long column_stride, long row_stride, int columns, int k, float* to) {
    for (int first = 0; first < columns; first += PANEL) {
        const int count = std::min(PANEL, columns - first);
        if (row_stride == 1 && count == PANEL && k % LANES == 0) {
            for (int half = 0; half < PANEL; half += LANES)
                transpose_block(from + (first + half) * column_stride, column_stride, k, to + half, PANEL);
            to += size_t(k) * PANEL;
            continue;
        }
        for (int t = 0; t < k; ++t, to += PANEL) {
            const float* row = from + first * column_stride + t * row_stride;
            if (count < PANEL) std::fill(to, to + PANEL, 0.0f);
            if (column_stride == 1 && count == PANEL)
                std::memcpy(to, row, PANEL * sizeof(float));
            else
                for (int j = 0; j < count; ++j) to[j] = row[j * column_stride];
        }
    }
}

// x: (columns, k) -> panels of xᵀ: column c of the operand is row c of x.
inline void pack_columns(const float* x, long ldx, int columns, int k, float* to) { pack(x, ldx, 1, columns, k, to); }

// x: (k, columns) -> panels of x, `panel_stride` apart.
inline void pack_rows(const float* x, long ldx, int k, int columns, float* to, size_t panel_stride) {
    for (int first = 0; first < columns; first += PANEL, to += panel_stride)
        pack(x + first, 1, ldx, std::min(PANEL, columns - first), k, to);
}

// x: (columns, k) -> panels of xᵀ; k is a multiple of PANEL.
inline void pack_columns(const BF16* x, long ldx, int columns, int k, BF16* to) {
    for (int first = 0; first < columns; first += PANEL, to += size_t(k) * PANEL)
        for (int t = 0; t < k; t += PANEL)
            for (int half = 0; half < 2; ++half) {
                VecU32 block[LANES];
                for (int i = 0; i < LANES; ++i) {
                    const int column = first + half * LANES + i;
                    block[i] = column < columns ? load(x + column * ldx + t) : VecU32{};
                }
                transpose(block);
                for (int i = 0; i < LANES; ++i) store(to + (size_t(t / 2 + i) * PANEL + half * LANES) * 2, block[i]);
            }
}

// x: (k, columns) -> panels of x, `panel_stride` apart; columns is a multiple of PANEL.
inline void pack_rows(const BF16* x, long ldx, int k, int columns, BF16* to, size_t panel_stride) {
    for (int first = 0; first < columns; first += PANEL, to += panel_stride)
        for (int t = 0; t < int(round_up_panel(k)); t += 2) {
            const VecU32 a = t < k ? load(x + t * ldx + first) : VecU32{};
            const VecU32 b = t + 1 < k ? load(x + (t + 1) * ldx + first) : VecU32{};
            store(to + size_t(t) * PANEL, interleave<false>(pair_even(a, b), pair_odd(a, b)));
            store(to + size_t(t + 1) * PANEL, interleave<true>(pair_even(a, b), pair_odd(a, b)));
        }
}

// y: (rows, n) -> yᵀ: (n, round_up_panel(rows)), zero-padded; n is a multiple of PANEL.
inline void transpose_rows(const BF16* y, long ldy, int rows, int n, BF16* to) {
    const size_t length = round_up_panel(rows);
    for (int t = 0; t < rows; t += PANEL)
        for (int j = 0; j < n; j += PANEL) {
            VecU32 even[LANES], odd[LANES];
            for (int i = 0; i < LANES; ++i) {
                const int first = t + 2 * i;
                const VecU32 a = first < rows ? load(y + first * ldy + j) : VecU32{};
                const VecU32 b = first + 1 < rows ? load(y + (first + 1) * ldy + j) : VecU32{};
                even[i] = pair_even(a, b), odd[i] = pair_odd(a, b);
            }
            transpose(even), transpose(odd);
            for (int i = 0; i < LANES; ++i)
                store(to + (j + 2 * i) * length + t, even[i]), store(to + (j + 2 * i + 1) * length + t, odd[i]);
        }
}

}  // namespace heedful
