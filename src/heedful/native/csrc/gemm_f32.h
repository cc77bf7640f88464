// float32 GEMM of training: y = x Wᵀ, dx = dy W and dW = dyᵀ x, all by one micro-kernel over packed panels.
#pragma once

#include "buffer.h"
#include "packing.h"

namespace heedful {

#if defined(__AVX512F__) || defined(HEEDFUL_NEON)
constexpr int KERNEL_ROWS = 8;  // rows of a micro-kernel: as many as the registers hold
#else
constexpr int KERNEL_ROWS = 6;
#endif
constexpr int TRANSPOSE_ROWS = 32;  // rows that stay in the L1 cache while they are transposed

// Some rows times one panel (halves = 2) or its first half (halves = 1); see `gemm`.
template <int rows, bool accumulate, int halves = 2>
inline void micro_kernel(const float* a, long lda, long a_step, int k, const float* panel, float* c, long ldc,
                         const float* bias) {
    VecF32 sums[rows][halves];
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < halves; ++half)
            sums[r][half] = accumulate ? load(c + r * ldc + half * LANES)
                            : bias     ? load(bias + half * LANES)
                                       : VecF32{};
    const float *third = a + 3 * lda, *sixth = a + 6 * lda;  // three base pointers address all rows: fewer registers
    for (int t = 0; t < k; ++t, panel += PANEL, a += a_step, third += a_step, sixth += a_step) {
        const VecF32 left = load(panel), right = halves == 2 ? load(panel + LANES) : VecF32{};
        for (int r = 0; r < rows; ++r) {
            const VecF32 x = broadcast(r < 3 ? a[r * lda] : r < 6 ? third[(r - 3) * lda] : sixth[(r - 6) * lda]);
            sums[r][0] = fmadd(x, left, sums[r][0]);
            if constexpr (halves == 2) sums[r][1] = fmadd(x, right, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < halves; ++half) store(c + r * ldc + half * LANES, sums[r][half]);
}

// The micro-kernel for the rows that remain, fewer than KERNEL_ROWS.
template <int rows, bool accumulate, int halves = 2>
inline void remaining_rows(int count, const float* a, long lda, long a_step, int k, const float* panel, float* c, long ldc,
                           const float* bias) {
    if constexpr (rows > 0) {
        if (count == rows) return micro_kernel<rows, accumulate, halves>(a, lda, a_step, k, panel, c, ldc, bias);
        remaining_rows<rows - 1, accumulate, halves>(count, a, lda, a_step, k, panel, c, ldc, bias);
    }
}

// All rows times one panel or its first half.
template <bool accumulate, int halves>
void gemm_panel(const float* a, long lda, long a_step, int m, int k, const float* panel, float* c, long ldc,
                const float* bias) {
    int i = 0;
    for (; i + KERNEL_ROWS <= m; i += KERNEL_ROWS)
        micro_kernel<KERNEL_ROWS, accumulate, halves>(a + i * lda, lda, a_step, k, panel, c + i * ldc, ldc, bias);
    remaining_rows<KERNEL_ROWS - 1, accumulate, halves>(m - i, a + i * lda, lda, a_step, k, panel, c + i * ldc, ldc, bias);
}

// c = a b + bias, or c += a b if `accumulate`. a: (m, k) with row stride lda and column stride a_step; b: panels of (k, n),
// panel_stride apart, or contiguous if it is 0; c: (m, n) with row stride ldc, n rounded up to whole registers; bias: (n).
template <bool accumulate>
void gemm(const float* a, long lda, long a_step, int m, int k, const float* b, int n, float* c, long ldc,
          const float* bias = nullptr, size_t panel_stride = 0) {
    if (!panel_stride) panel_stride = size_t(k) * PANEL;
    for (int first = 0; first < n; first += PANEL, b += panel_stride) {
        const float* panel_bias = bias ? bias + first : nullptr;
        if (n - first > LANES)
            gemm_panel<accumulate, 2>(a, lda, a_step, m, k, b, c + first, ldc, panel_bias);
        else
            gemm_panel<accumulate, 1>(a, lda, a_step, m, k, b, c + first, ldc, panel_bias);
    }
}

// The same with contiguous rows of a.
template <bool accumulate>
void gemm(const float* a, long lda, int m, int k, const float* b, int n, float* c, long ldc, const float* bias = nullptr,
          size_t panel_stride = 0) {
    gemm<accumulate>(a, lda, 1L, m, k, b, n, c, ldc, bias, panel_stride);
}

// c += yᵀ x: the gradient of a weight. y: (rows, n) with row stride ldy; x: (rows, k) in panels; c: (n, k). y is repacked
// into `packed`, so that the rows of a micro-kernel are adjacent.
inline void gemm_tn_add(const float* y, long ldy, int rows, int n, const float* panels, int k, float* c,
                        Buffer<float>& packed) {
    float* transposed = packed.ensure(size_t(n + KERNEL_ROWS) * rows);
    for (int first = 0; first < rows; first += TRANSPOSE_ROWS)
        for (int i = 0; i < n; i += KERNEL_ROWS) {
            float* to = transposed + size_t(i) * rows;
            const int last = std::min(first + TRANSPOSE_ROWS, rows);
            if (i + KERNEL_ROWS <= n)
                for (int t = first; t < last; ++t)
                    std::memcpy(to + t * KERNEL_ROWS, y + t * ldy + i, KERNEL_ROWS * sizeof(float));
            else
                for (int t = first; t < last; ++t) std::copy_n(y + t * ldy + i, n - i, to + t * KERNEL_ROWS);
        }
    for (int first = 0; first < k; first += PANEL, panels += size_t(rows) * PANEL)
        for (int i = 0; i < n; i += KERNEL_ROWS) {
            const float* a = transposed + size_t(i) * rows;
            float* to = c + size_t(i) * k + first;
            if (i + KERNEL_ROWS <= n)
                micro_kernel<KERNEL_ROWS, true>(a, 1, KERNEL_ROWS, rows, panels, to, k, nullptr);
            else
                remaining_rows<KERNEL_ROWS - 1, true>(n - i, a, 1, KERNEL_ROWS, rows, panels, to, k, nullptr);
        }
}

}  // namespace heedful
