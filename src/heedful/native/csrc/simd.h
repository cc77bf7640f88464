// SIMD vectors of the width of one register of the target instruction set, and reductions and BLAS-1 loops over them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define HEEDFUL_NEON
#endif

namespace heedful {

#if defined(__AVX512F__)
constexpr int LANES = 16;  // float32 values in one register
#elif defined(HEEDFUL_NEON)
constexpr int LANES = 4;
#else
constexpr int LANES = 8;
#endif
constexpr int PANEL = 2 * LANES;  // columns of a GEMM panel: two registers

typedef float VecF32 __attribute__((vector_size(LANES * 4)));
typedef int32_t VecI32 __attribute__((vector_size(LANES * 4)));
typedef uint32_t VecU32 __attribute__((vector_size(LANES * 4)));
typedef int16_t VecI16 __attribute__((vector_size(LANES * 4)));
typedef uint8_t VecU8 __attribute__((vector_size(LANES)));

constexpr float INF = std::numeric_limits<float>::infinity();

inline size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Calls work(0), work(1), …, work(count - 1) with constants. Registers in an array that is indexed by them stay registers:
// GCC unrolls a loop only after it has decided to keep the array in memory.
template <int count, typename Work>
__attribute__((always_inline)) inline void unroll(Work work) {
    if constexpr (count > 0) {
        unroll<count - 1>(work);
        work(std::integral_constant<int, count - 1>{});
    }
}

inline VecF32 load(const float* from) {
    VecF32 v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline VecI32 load(const void* from) {
    VecI32 v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float* to, VecF32 v) { std::memcpy(to, &v, sizeof v); }

inline VecF32 broadcast(float x) { return x - VecF32{}; }

inline float reduce_sum(VecF32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX__)
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#elif defined(HEEDFUL_NEON)
    return vaddvq_f32((float32x4_t)v);
#else
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += v[i];
    return total;
#endif
}

// a * b + c, with one rounding where the CPU has FMA. The compiler fuses nothing else (-ffp-contract=off), so results do
// not depend on how a loop was compiled.
inline VecF32 fmadd(VecF32 a, VecF32 b, VecF32 c) {
#if defined(__AVX512F__)
    return (VecF32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (VecF32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(HEEDFUL_NEON)
    return (VecF32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

inline VecF32 square_root(VecF32 x) {
#if defined(__AVX512F__)
    return (VecF32)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (VecF32)_mm256_sqrt_ps((__m256)x);
#elif defined(HEEDFUL_NEON)
    return (VecF32)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < LANES; ++i) x[i] = std::sqrt(x[i]);
    return x;
#endif
}

// The sums of four registers.
inline void reduce_sum4(VecF32 a, VecF32 b, VecF32 c, VecF32 d, float* to) {
#if defined(__AVX__) && !defined(__AVX512F__)
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b), _mm256_unpackhi_ps((__m256)a, (__m256)b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d), _mm256_unpackhi_ps((__m256)c, (__m256)d));
    __m256 four = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1)));
#elif defined(HEEDFUL_NEON)
    const float32x4_t ab = vpaddq_f32((float32x4_t)a, (float32x4_t)b), cd = vpaddq_f32((float32x4_t)c, (float32x4_t)d);
    vst1q_f32(to, vpaddq_f32(ab, cd));
#else
    to[0] = reduce_sum(a), to[1] = reduce_sum(b), to[2] = reduce_sum(c), to[3] = reduce_sum(d);
#endif
}

inline void reduce_sum4(VecI32 a, VecI32 b, VecI32 c, VecI32 d, int32_t* to) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256i ab = _mm256_hadd_epi32((__m256i)a, (__m256i)b), cd = _mm256_hadd_epi32((__m256i)c, (__m256i)d);
    __m256i four = _mm256_hadd_epi32(ab, cd);
    __m128i both = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    std::memcpy(to, &both, sizeof both);
#elif defined(HEEDFUL_NEON)
    const int32x4_t ab = vpaddq_s32((int32x4_t)a, (int32x4_t)b), cd = vpaddq_s32((int32x4_t)c, (int32x4_t)d);
    vst1q_s32(to, vpaddq_s32(ab, cd));
#else
    to[0] = to[1] = to[2] = to[3] = 0;
    for (int i = 0; i < LANES; ++i) to[0] += a[i], to[1] += b[i], to[2] += c[i], to[3] += d[i];
#endif
}

inline float reduce_max(VecF32 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#elif defined(__AVX__)
    __m128 half = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
#elif defined(HEEDFUL_NEON)
    return vmaxvq_f32((float32x4_t)v);
#else
    float largest = v[0];
    for (int i = 1; i < LANES; ++i) largest = v[i] > largest ? v[i] : largest;
    return largest;
#endif
}

// Rounds to the nearest integer: adding 1.5 * 2^23 pushes the fraction out of the mantissa. Valid for |x| < 2^22.
inline VecI32 round_to_int(VecF32 x) {
    VecF32 shifted = x + 12582912.0f;
    VecI32 bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return bits - 0x4B400000;
}

// e^x for x <= 0, to about 2 ULP: 2^n * e^r with |r| <= ln 2 / 2, and a polynomial for e^r.
inline VecF32 exp_nonpositive(VecF32 x) {
    x = x < -87.0f ? broadcast(-87.0f) : x;
    VecI32 n = round_to_int(x * 1.44269504f);
    VecF32 whole = __builtin_convertvector(n, VecF32);
    VecF32 r = fmadd(whole, broadcast(2.12194440e-4f), fmadd(whole, broadcast(-0.693359375f), x));
    VecF32 p = broadcast(1.9875691500e-4f);
    p = fmadd(p, r, broadcast(1.3981999507e-3f));
    p = fmadd(p, r, broadcast(8.3334519073e-3f));
    p = fmadd(p, r, broadcast(4.1665795894e-2f));
    p = fmadd(p, r, broadcast(1.6666665459e-1f));
    p = fmadd(p, r, broadcast(5.0000001201e-1f));
    p = fmadd(p, r * r, r) + 1.0f;
    VecI32 bits;
    std::memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

inline float dot(const float* a, const float* b, int n) {
    VecF32 total{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) total = fmadd(load(a + i), load(b + i), total);
    float result = reduce_sum(total);
    for (; i < n; ++i) result += a[i] * b[i];
    return result;
}

// y += alpha * x
inline void axpy(float* y, const float* x, float alpha, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, fmadd(load(x + i), broadcast(alpha), load(y + i)));
    for (; i < n; ++i) y[i] += x[i] * alpha;
}

inline float max_value(const float* x, int n) {
    float largest = -INF;
    int i = 0;
    if (n >= LANES) {
        VecF32 best = load(x);
        for (i = LANES; i + LANES <= n; i += LANES) {
            VecF32 v = load(x + i);
            best = v > best ? v : best;
        }
        largest = reduce_max(best);
    }
    for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

// The sum of e^(x[i] - shift). Each x[i] is overwritten with e^(x[i] - shift) unless `keep_input`.
template <bool keep_input>
inline float sum_exp(float* x, int n, float shift) {
    VecF32 total{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        VecF32 e = exp_nonpositive(load(x + i) - shift);
        if (!keep_input) store(x + i, e);
        total += e;
    }
    if (i < n) {
        VecF32 last = broadcast(-INF);
        std::memcpy(&last, x + i, (n - i) * sizeof(float));
        VecF32 e = exp_nonpositive(last - shift);
        for (int j = 0; j < LANES; ++j) e[j] = j < n - i ? e[j] : 0.0f;
        if (!keep_input) std::memcpy(x + i, &e, (n - i) * sizeof(float));
        total += e;
    }
    return reduce_sum(total);
}

inline float logsumexp(float* x, int n) {
    const float largest = max_value(x, n);
    return largest + std::log(sum_exp<true>(x, n, largest));
}

}  // namespace heedful
