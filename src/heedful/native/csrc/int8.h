// int8 quantization, and dot products of quantized activations with int8 weights.
//
// A weight is an int8 value of magnitude 127 at most times a scale of its output column. An activation is an integer minus
// the zero point of its row, times a scale of its row, both computed when the row arrives (dynamic quantization). The largest
// value of a row, if the others span less than half of the range, is an outlier: it is multiplied apart as a wider integer, so
// that it does not coarsen the others.
//
// On x86 activations are unsigned: 128 is added to each of them and to the zero point. Without VNNI, vpmaddubsw adds pairs of
// products in int16, which would saturate: there weights are rounded once more, to a magnitude of 64. Where the weights are
// small enough (`fits_int16`), two pairs are added in int16, which saves one instruction in six.
#pragma once

#include <algorithm>
#include <vector>

#include "buffer.h"
#include "simd.h"

namespace heedful {

constexpr int MAX_INT8 = 127;              // magnitude of weights and activations
constexpr float STEPS = 2 * MAX_INT8 - 1;  // of a row's range; one less than fit, because both ends of it are rounded
constexpr float MIN_ABS_MAX = 1e-30f;  // a row whose values are all smaller is quantized to zeros: 1 / scale would overflow
constexpr float OUTLIER_RATIO = 2;     // of a row's range with an outlier to that without it
constexpr float MAX_OUTLIER = 1 << 15;  // in steps of the other values
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int MAX_PACKED = MAX_INT8, ACTIVATION_OFFSET = 128;  // magnitude of a packed weight; see above
#elif defined(__AVX2__)
constexpr int MAX_PACKED = 64, ACTIVATION_OFFSET = 128;
#else
constexpr int MAX_PACKED = MAX_INT8, ACTIVATION_OFFSET = 0;
#endif
constexpr long MIN_PARALLEL_MACS = 1 << 18;  // multiply-accumulates from which a second thread pays

// How a row of activations is quantized: x = scale * (q - zero), except that of the outlier, which is scale * outlier.
struct RowQuantization {
    float scale = 0;
    int32_t zero = 0, outlier = 0;  // outlier: 0 if there is none
    int32_t column = 0;             // of the outlier
};

struct ValueRange {  // it contains 0
    float low, high;

    float scale() const { return high / STEPS - low / STEPS; }
};

inline ValueRange value_range(const float* x, int count) {
    VecF32 low{}, high{};
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        const VecF32 v = load(x + i);
        low = v < low ? v : low, high = v > high ? v : high;
    }
    ValueRange range{-reduce_max(-low), reduce_max(high)};
    for (; i < count; ++i) range = {std::min(range.low, x[i]), std::max(range.high, x[i])};
    return range;
}

// The left-hand operand of an inference GEMM: rows of activations in float32, and in int8 if the weights are.
struct Activations {
    const float* floats = nullptr;
    int count = 0, width = 0, stride = 0;  // stride of the quantized rows: the width, rounded up to a multiple of 8
    size_t pitch = 0;                      // floats from one row to the next
    Buffer<uint8_t> quantized;
    Buffer<RowQuantization> quantizations;  // of the rows
    bool has_outliers = false;

    // Rows that may overlap, such as the frames of a convolution: `distance` floats from one to the next.
    void assign_f32(const float* x, int rows, int columns, size_t distance) {
        floats = x, count = rows, width = columns, pitch = distance;
    }

    // x: (rows, columns), not copied; it must outlive this object's use.
    void assign(const float* x, int rows, int columns, bool int8, int threads) {
        assign_f32(x, rows, columns, columns), stride = (columns + 7) / 8 * 8;
        if (!int8) return;
        uint8_t* to = quantized.ensure(size_t(rows) * stride + LANES);
        RowQuantization* of_row = quantizations.ensure(rows);
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(rows) * columns > MIN_PARALLEL_MACS / 16)
        for (int r = 0; r < rows; ++r) of_row[r] = quantize_row(x + size_t(r) * columns, to + size_t(r) * stride);
        has_outliers = std::any_of(of_row, of_row + rows, [](const RowQuantization& row) { return row.outlier != 0; });
    }

  private:
    // The scale is NaN if a value of the row is not finite: int8 values cannot express that, and nothing that is computed
    // from the row may become finite again.
    RowQuantization quantize_row(const float* x, uint8_t* to) const {
        VecF32 low{}, high{}, nan_check{};  // v - v is 0 for finite v, else NaN
        int i = 0;
        for (; i + LANES <= width; i += LANES) {
            const VecF32 v = load(x + i);
            nan_check += v - v;
            low = v < low ? v : low, high = v > high ? v : high;
        }
        ValueRange range{-reduce_max(-low), reduce_max(high)};
        float zero_or_nan = reduce_sum(nan_check);
        for (; i < width; ++i) {
            zero_or_nan += x[i] - x[i], low[0] = std::min(low[0], x[i]), high[0] = std::max(high[0], x[i]);
            range = {std::min(range.low, x[i]), std::max(range.high, x[i])};
        }
        RowQuantization row{range.scale() + zero_or_nan};
        if (!(row.scale > MIN_ABS_MAX / STEPS)) {  // zeros, or NaN
            std::fill_n(to, stride, uint8_t(ACTIVATION_OFFSET));
            row.zero = ACTIVATION_OFFSET;
            return row;
        }
        const bool outlier = may_have_outlier(low, high, range) && leave_out_outlier(x, range, row);
        const float factor = 1 / row.scale;
        row.zero = ACTIVATION_OFFSET - MAX_INT8 - round_to_int(broadcast(range.low * factor))[0];
        for (i = 0; i + LANES <= width; i += LANES) {
            VecU8 bytes = __builtin_convertvector(round_to_int(load(x + i) * factor) + row.zero, VecU8);
            std::memcpy(to + i, &bytes, LANES);
        }
        for (; i < width; ++i) to[i] = uint8_t(round_to_int(broadcast(x[i] * factor))[0] + row.zero);
        for (; i < stride; ++i) to[i] = uint8_t(row.zero);
        if (outlier) {
            row.outlier = round_to_int(broadcast(x[row.column] * factor))[0];
            to[row.column] = uint8_t(row.zero);
        }
        return row;
    }

    // Whether the range would be halved without the lane that holds the value farthest from 0.
    static bool may_have_outlier(VecF32 low, VecF32 high, const ValueRange& range) {
        const bool positive = range.high > -range.low;
        const VecF32 end = positive ? high : -low, zero{};
        const float farthest = positive ? range.high : -range.low, other_end = positive ? -range.low : range.high;
        return (reduce_max(end == farthest ? zero : end) + other_end) * OUTLIER_RATIO < farthest + other_end;
    }

    // Sets the outlier's column, and the range and scale of the other values, if that halves the range.
    bool leave_out_outlier(const float* x, ValueRange& range, RowQuantization& row) const {
        const float end = range.high > -range.low ? range.high : range.low;
        const int column = int(std::find(x, x + width, end) - x);
        const ValueRange before = value_range(x, column), after = value_range(x + column + 1, width - column - 1);
        const ValueRange others{std::min(before.low, after.low), std::max(before.high, after.high)};
        if (!((others.high - others.low) * OUTLIER_RATIO < range.high - range.low)) return false;
        range = others, row.column = column;
        row.scale = std::max(others.scale(), std::fabs(end) / MAX_OUTLIER);
        return true;
    }
};

// Quantizes one row of weights -> its scale, of which MAX_INT8 times is exact: dequantized weights have the same scale again.
inline float quantize(const float* row, int count, int8_t* to) {
    const ValueRange range = value_range(row, count);
    const float bound = std::max(-range.low, range.high);
    if (!(bound > MIN_ABS_MAX)) return std::fill_n(to, count, int8_t(0)), 0.0f;
    float scale = bound / MAX_INT8;
    uint32_t bits;
    std::memcpy(&bits, &scale, sizeof bits);
    bits &= 0xFFFFFF00;  // 16 significant bits
    std::memcpy(&scale, &bits, sizeof bits);
    for (int k = 0; k < count; ++k) to[k] = int8_t(std::nearbyint(row[k] * (1 / scale)));
    return scale;
}

// Rounds quantized weights to the magnitude that is packed, if a value exceeds it -> their scale.
inline float round_to_packed(int8_t* row, int count, float scale) {
    if (std::all_of(row, row + count, [](int8_t value) { return std::abs(value) <= MAX_PACKED; })) return scale;
    for (int k = 0; k < count; ++k) row[k] = int8_t(std::nearbyint(row[k] * (float(MAX_PACKED) / MAX_INT8)));
    return scale * (float(MAX_INT8) / MAX_PACKED);
}

// Four bytes, broadcast to all lanes.
inline VecI32 broadcast4(const uint8_t* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return four - VecI32{};
}

// In each lane: sum + the dot product of four stored activations and four weights.
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
    return (VecI32)vdotq_s32((int32x4_t)sum, (int8x16_t)row, (int8x16_t)weights);
}
#elif defined(HEEDFUL_NEON)
#define HEEDFUL_INT16_SUMS
inline VecI16 dot2(VecI32 row, VecI32 weights) {
    const int8x16_t a = (int8x16_t)row, w = (int8x16_t)weights;
    return (VecI16)vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(w)), vmull_high_s8(a, w));
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
    int8_t a[4 * LANES], b[4 * LANES];
    std::memcpy(a, &row, sizeof a);
    std::memcpy(b, &weights, sizeof b);
    for (int i = 0; i < 4 * LANES; ++i) sum[i / 4] += int32_t(a[i]) * b[i];
    return sum;
}
#endif

// The same over eight values: row[0] with the first weights and row[1] with the second. `fits_int16` promises that four
// products with any activation (the first two bytes of both weights, or the last two) do not overflow int16.
template <bool fits_int16>
inline VecI32 dot8(VecI32 sum, const VecI32* row, VecI32 first, VecI32 second) {
#if defined(HEEDFUL_INT16_SUMS)
    if (fits_int16) return sum + widen(dot2(row[0], first) + dot2(row[1], second));
#endif
    return dot4(dot4(sum, row[0], first), row[1], second);
}

}  // namespace heedful
