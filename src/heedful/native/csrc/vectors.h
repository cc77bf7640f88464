// Numbers side by side: as many as one register of this CPU holds, and what is done to rows of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heedful {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
typedef int16_t Shorts __attribute__((vector_size(LANES * 4)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

constexpr float INFINITE = std::numeric_limits<float>::infinity();

inline Floats load(const float* from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Ints load(const void* from) {
    Ints v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }

inline Floats all(float x) { return x - Floats{}; }

inline float sum(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#elif defined(__AVX__)
    __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#else
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += v[i];
    return total;
#endif
}

// a * b + c, rounded once where the CPU can. Nothing else is ever fused, or numbers would depend on how a loop was compiled.
inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// The sums of four registers.
inline void sums(Floats a, Floats b, Floats c, Floats d, float* to) {
#if defined(__AVX__) && !defined(__AVX512F__)
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b), _mm256_unpackhi_ps((__m256)a, (__m256)b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps((__m256)c, (__m256)d), _mm256_unpackhi_ps((__m256)c, (__m256)d));
    __m256 four = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(four), _mm256_extractf128_ps(four, 1)));
#else
    to[0] = sum(a), to[1] = sum(b), to[2] = sum(c), to[3] = sum(d);
#endif
}

inline void sums(Ints a, Ints b, Ints c, Ints d, int32_t* to) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256i ab = _mm256_hadd_epi32((__m256i)a, (__m256i)b), cd = _mm256_hadd_epi32((__m256i)c, (__m256i)d);
    __m256i four = _mm256_hadd_epi32(ab, cd);
    __m128i both = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    std::memcpy(to, &both, sizeof both);
#else
    to[0] = to[1] = to[2] = to[3] = 0;
    for (int i = 0; i < LANES; ++i) to[0] += a[i], to[1] += b[i], to[2] += c[i], to[3] += d[i];
#endif
}

inline float largest(Floats v) {
    float most = v[0];
    for (int i = 1; i < LANES; ++i) most = v[i] > most ? v[i] : most;
    return most;
}

// Rounds to the nearest integer: adding 1.5 * 2^23 leaves no room for a fraction. Right for |x| < 2^22.
inline Ints nearest(Floats x) {
    Floats shifted = x + 12582912.0f;
    Ints bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return bits - 0x4B400000;
}

// e^x for x <= 0, to about 2 units in the last place: 2^n * e^r with |r| <= ln 2 / 2, and a polynomial for e^r.
inline Floats exponential(Floats x) {
    x = x < -87.0f ? all(-87.0f) : x;
    Ints n = nearest(x * 1.44269504f);
    Floats whole = __builtin_convertvector(n, Floats);
    Floats r = fused(whole, all(2.12194440e-4f), fused(whole, all(-0.693359375f), x));
    Floats p = all(1.9875691500e-4f);
    p = fused(p, r, all(1.3981999507e-3f));
    p = fused(p, r, all(8.3334519073e-3f));
    p = fused(p, r, all(4.1665795894e-2f));
    p = fused(p, r, all(1.6666665459e-1f));
    p = fused(p, r, all(5.0000001201e-1f));
    p = fused(p, r * r, r) + 1.0f;
    Ints bits;
    std::memcpy(&bits, &p, sizeof bits);
    bits += n << 23;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

inline float dot(const float* a, const float* b, int n) {
    Floats total{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) total = fused(load(a + i), load(b + i), total);
    float rest = sum(total);
    for (; i < n; ++i) rest += a[i] * b[i];
    return rest;
}

// to += weight * from
inline void add_scaled(float* to, const float* from, float weight, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, fused(load(from + i), all(weight), load(to + i)));
    for (; i < n; ++i) to[i] += from[i] * weight;
}

inline float maximum(const float* x, int n) {
    float most = -INFINITE;
    int i = 0;
    if (n >= LANES) {
        Floats best = load(x);
        for (i = LANES; i + LANES <= n; i += LANES) {
            Floats v = load(x + i);
            best = v > best ? v : best;
        }
        most = largest(best);
    }
    for (; i < n; ++i) most = x[i] > most ? x[i] : most;
    return most;
}

// x[i] = e^(x[i] - shift), or x as it was if `keep`; the sum of all e^(x[i] - shift).
template <bool keep>
inline float exponentials(float* x, int n, float shift) {
    Floats total{};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        Floats e = exponential(load(x + i) - shift);
        if (!keep) store(x + i, e);
        total += e;
    }
    if (i < n) {
        Floats last = all(-INFINITE);
        std::memcpy(&last, x + i, (n - i) * sizeof(float));
        Floats e = exponential(last - shift);
        for (int j = 0; j < LANES; ++j) e[j] = j < n - i ? e[j] : 0.0f;
        if (!keep) std::memcpy(x + i, &e, (n - i) * sizeof(float));
        total += e;
    }
    return sum(total);
}

}  // namespace heedful
