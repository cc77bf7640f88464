// bf16 GEMM of training with float32 accumulation: by AMX tiles, by vdpbf16ps, or emulated.
//
// k and n are multiples of PANEL, and c has space for round_up_tile(m) rows: the last block of rows is computed whole.
#pragma once

#include <type_traits>

#include "amx.h"
#include "cpu.h"
#include "gemm_f32.h"

namespace heedful {

// Some rows times one panel; see `gemm`.
template <int rows, bool accumulate>
inline void micro_kernel(const BF16* a, long lda, int k, const BF16* panel, float* c, long ldc, const float* bias) {
    VecF32 sums[rows][2];
    unroll<rows>([&](auto r) {
        unroll<2>([&](auto half) {
            sums[r][half] = accumulate ? load(c + r * ldc + half * LANES)
                            : bias     ? load(bias + half * LANES)
                                       : VecF32{};
        });
    });
    for (int t = 0; t < k; t += 2, panel += 2 * PANEL) {
        const VecU32 left = load(panel), right = load(panel + PANEL);
        unroll<rows>([&](auto r) {
            uint32_t pair;
            std::memcpy(&pair, a + r * lda + t, sizeof pair);
            const VecU32 x = pair - VecU32{};
            sums[r][0] = dot2_bf16(sums[r][0], x, left);
            sums[r][1] = dot2_bf16(sums[r][1], x, right);
        });
    }
    unroll<rows>([&](auto r) {
        unroll<2>([&](auto half) { store(c + r * ldc + half * LANES, sums[r][half]); });
    });
}

// Whether a bf16 GEMM is faster than a float32 GEMM: vdpbf16ps alone is not on CPUs that have AMX.
inline bool prefers_bf16() {
#if defined(__AMX_BF16__)
    return true;
#elif defined(__AVX512BF16__)
    return !lists_amx();
#else
    return false;
#endif
}

// c = a b + bias, or c += a b if `accumulate`. a: (m, k) with row stride lda; b: panels of (k, n), panel_stride apart, or
// contiguous if it is 0; c: (m, n) with row stride ldc; bias: (n).
template <bool accumulate>
void gemm(const BF16* a, long lda, int m, int k, const BF16* b, int n, float* c, long ldc, const float* bias = nullptr,
          size_t panel_stride = 0) {
    if (!panel_stride) panel_stride = size_t(k) * PANEL;
    for (int first = 0; first < n; first += PANEL, b += panel_stride) {
        const float* panel_bias = bias ? bias + first : nullptr;
#if defined(__AMX_BF16__)
        int i = 0;
        for (; i + TILE_ROWS < m; i += 2 * TILE_ROWS)
            amx_kernel<2, accumulate>(a + i * lda, lda, k, b, c + i * ldc + first, ldc, panel_bias);
        if (i < m) amx_kernel<1, accumulate>(a + i * lda, lda, k, b, c + i * ldc + first, ldc, panel_bias);
#else
        constexpr int ROWS = LANES / 2;
        for (int i = 0; i < m; i += ROWS)
            micro_kernel<ROWS, accumulate>(a + i * lda, lda, k, b, c + i * ldc + first, ldc, panel_bias);
#endif
    }
}

// c += yᵀ x: the gradient of a weight. y: (rows, n) with row stride ldy; x: (rows, k) in panels; c: (n, k). `transposed`
// receives yᵀ.
inline void gemm_tn_add(const BF16* y, long ldy, int rows, int n, const BF16* panels, int k, float* c,
                        Buffer<BF16>& transposed) {
    const int length = int(round_up_panel(rows));
    transpose_rows(y, ldy, rows, n, transposed.ensure(size_t(n) * length));
    gemm<true>(transposed.get(), length, n, length, panels, k, c, k);
}

// Rows as an operand of a GEMM: x itself, or converted to bf16 into `buffer`.
template <typename Scalar>
const Scalar* as_operand(const float* x, size_t count, Scalar* buffer) {
    if constexpr (std::is_same_v<Scalar, BF16>)
        return convert_to_bf16(x, count, buffer), buffer;
    else
        return x;
}

// The depth k of a GEMM that sums over `rows` rows, padding included.
template <typename Scalar>
int gemm_depth(int rows) {
    return std::is_same_v<Scalar, BF16> ? int(round_up_panel(rows)) : rows;
}

}  // namespace heedful
