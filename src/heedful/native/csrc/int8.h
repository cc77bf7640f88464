// int8 quantization and dot products of uint8 activations with int8 weights.
//
// A weight is an int8 value of magnitude 64 at most times a scale of its output column; an activation is an int8 value of
// magnitude 127 at most times a scale of its row, computed when the row arrives (dynamic quantization). Weights stop at 64
// and not at 127 because vpmaddubsw, which CPUs without VNNI use, would saturate above; so all CPUs compute the same
// values. Activations are stored unsigned: 128 is added to each, and 128 times the sum of a weight column is subtracted
// from the result. Without VNNI, pairs of products are added in int16; where the weights are small enough (`fits_int16`),
// two pairs are, which saves one instruction in six.
#pragma once

#include <algorithm>
#include <vector>

#include "buffer.h"
#include "simd.h"

namespace heedful {

constexpr float MAX_WEIGHT = 64, MAX_ACTIVATION = 127;
constexpr float MIN_ABS_MAX = 1e-30f;  // a row whose values are all smaller is quantized to zeros: 1 / scale would overflow
constexpr long MIN_PARALLEL_MACS = 1 << 18;  // multiply-accumulates from which a second thread pays

// The left-hand operand of an inference GEMM: rows of activations in float32, and in int8 if the weights are.
struct Activations {
    const float* floats = nullptr;
    int count = 0, width = 0, stride = 0;  // stride of the quantized rows: the width, rounded up to a multiple of 8
    size_t pitch = 0;                      // floats from one row to the next
    Buffer<uint8_t> quantized;
    Buffer<float> scales;

    // Rows that may overlap, such as the frames of a convolution: `distance` floats from one to the next.
    void assign_f32(const float* x, int rows, int columns, size_t distance) {
        floats = x, count = rows, width = columns, pitch = distance;
    }

    // x: (rows, columns), not copied; it must outlive this object's use.
    void assign(const float* x, int rows, int columns, bool int8, int threads) {
        assign_f32(x, rows, columns, columns), stride = (columns + 7) / 8 * 8;
        if (!int8) return;
        uint8_t* to = quantized.ensure(size_t(rows) * stride + LANES);
        float* scale = scales.ensure(rows);
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(rows) * columns > MIN_PARALLEL_MACS / 16)
        for (int r = 0; r < rows; ++r) scale[r] = quantize_row(x + size_t(r) * columns, to + size_t(r) * stride);
    }

  private:
    // -> the scale, which is NaN if a value of the row is not finite: int8 values cannot express that, and nothing that is
    // computed from the row may become finite again.
    float quantize_row(const float* x, uint8_t* to) const {
        VecF32 abs_max{}, nan_check{};  // v - v is 0 for finite v, else NaN
        int i = 0;
        for (; i + LANES <= width; i += LANES) {
            VecF32 v = load(x + i), minus = -v;
            nan_check += v - v;
            v = v > minus ? v : minus;
            abs_max = v > abs_max ? v : abs_max;
        }
        float bound = reduce_max(abs_max), zero_or_nan = reduce_sum(nan_check);
        for (; i < width; ++i) bound = std::max(bound, std::fabs(x[i])), zero_or_nan += x[i] - x[i];
        float factor = bound > MIN_ABS_MAX ? MAX_ACTIVATION / bound : 0.0f;
        for (i = 0; i + LANES <= width; i += LANES) {
            VecU8 bytes = __builtin_convertvector(round_to_int(load(x + i) * factor) + 128, VecU8);
            std::memcpy(to + i, &bytes, LANES);
        }
        for (; i < width; ++i) to[i] = uint8_t(round_to_int(broadcast(x[i] * factor))[0] + 128);
        for (; i < stride; ++i) to[i] = 128;
        return bound / MAX_ACTIVATION + zero_or_nan;
    }
};

// Quantizes one row of weights -> its scale.
inline float quantize(const float* row, int count, int8_t* to) {
    float bound = 0;
    for (int k = 0; k < count; ++k) bound = std::max(bound, std::fabs(row[k]));
    const bool zero = !(bound > MIN_ABS_MAX);
    for (int k = 0; k < count; ++k) to[k] = zero ? 0 : int8_t(std::nearbyint(row[k] * (MAX_WEIGHT / bound)));
    return zero ? 0.0f : bound / MAX_WEIGHT;
}

// Four bytes, broadcast to all lanes.
inline VecI32 broadcast4(const uint8_t* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return four - VecI32{};
}

// In each lane: sum + the dot product of four uint8 activations and four int8 weights (VNNI's vpdpbusd, or its emulation).
// NEON multiplies only values of the same signedness: (a - 128) * w + 128 * w is computed instead of a * w.
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) {
    return (VecI32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)row, (__m512i)weights);
}
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) {
    return (VecI32)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)row, (__m256i)weights);
}
#elif defined(__ARM_FEATURE_DOTPROD) && defined(HEEDFUL_NEON)
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) {
    const int8x16_t w = (int8x16_t)weights;  // a micro-kernel computes the second product once for all of its rows
    return (VecI32)vdotq_s32((int32x4_t)sum, veorq_s8((int8x16_t)row, vdupq_n_s8(-128)), w) -
           (VecI32)vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(-128), w);
}
#elif defined(HEEDFUL_NEON)
#define HEEDFUL_INT16_SUMS
inline VecI16 dot2(VecI32 row, VecI32 weights) {
    const int8x16_t a = veorq_s8((int8x16_t)row, vdupq_n_s8(-128)), w = (int8x16_t)weights;
    const int16x8_t low = vmlal_s8(vshll_n_s8(vget_low_s8(w), 7), vget_low_s8(a), vget_low_s8(w));
    return (VecI16)vpaddq_s16(low, vmlal_high_s8(vshll_high_n_s8(w, 7), a, w));
}
inline VecI32 widen(VecI16 pairs) { return (VecI32)vpaddlq_s16((int16x8_t)pairs); }
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) {
    return (VecI32)vpadalq_s16((int32x4_t)sum, (int16x8_t)dot2(row, weights));
}
#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define HEEDFUL_INT16_SUMS
#if defined(__AVX512BW__)
inline VecI16 dot2(VecI32 row, VecI32 weights) { return (VecI16)_mm512_maddubs_epi16((__m512i)row, (__m512i)weights); }
inline VecI32 widen(VecI16 pairs) { return (VecI32)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1)); }
#else
inline VecI16 dot2(VecI32 row, VecI32 weights) { return (VecI16)_mm256_maddubs_epi16((__m256i)row, (__m256i)weights); }
inline VecI32 widen(VecI16 pairs) { return (VecI32)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
#endif
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) { return sum + widen(dot2(row, weights)); }
#else
inline VecI32 dot4(VecI32 sum, VecI32 row, VecI32 weights) {
    uint8_t a[4 * LANES];
    int8_t b[4 * LANES];
    std::memcpy(a, &row, sizeof a);
    std::memcpy(b, &weights, sizeof b);
    for (int i = 0; i < 4 * LANES; ++i) sum[i / 4] += int32_t(a[i]) * b[i];
    return sum;
}
#endif

// The same over eight values: row[0] with the first weights and row[1] with the second. `fits_int16` promises that four
// products with an activation of 255 (the first two bytes of both weights, or the last two) do not overflow int16.
template <bool fits_int16>
inline VecI32 dot8(VecI32 sum, const VecI32* row, VecI32 first, VecI32 second) {
#if defined(HEEDFUL_INT16_SUMS)
    if (fits_int16) return sum + widen(dot2(row[0], first) + dot2(row[1], second));
#endif
    return dot4(dot4(sum, row[0], first), row[1], second);
}

}  // namespace heedful
