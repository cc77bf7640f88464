// bfloat16: the upper 16 bits of a float32, and registers of pairs of them (VNNI layout).
//
// Hardware multiplies bf16 values in pairs that are adjacent along the dimension that is summed over. Rows have this
// layout anyway; panels are packed into it (packing.h).
#pragma once

#include "simd.h"

namespace heedful {

struct BF16 {
    uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BF16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline VecU32 load(const BF16* from) {
    VecU32 v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
inline void store(BF16* to, VecU32 v) { std::memcpy(to, &v, sizeof v); }

// Two float32 registers as one of bf16, rounded to nearest even.
inline VecU32 to_bf16(VecF32 first, VecF32 second) {
#if defined(__AVX512BF16__)
    return (VecU32)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
    uint16_t rounded[2 * LANES];
    VecU32 bits[2], both;
    std::memcpy(&bits[0], &first, sizeof first);
    std::memcpy(&bits[1], &second, sizeof second);
    for (int i = 0; i < 2 * LANES; ++i) {
        const uint32_t exact = bits[i / LANES][i % LANES];
        rounded[i] = uint16_t((exact + 0x7FFF + (exact >> 16 & 1)) >> 16);
    }
    std::memcpy(&both, rounded, sizeof both);
    return both;
#endif
}

// Stores PANEL values in the type of the destination.
inline void store_panel(BF16* to, VecF32 first, VecF32 second) { store(to, to_bf16(first, second)); }
inline void store_panel(float* to, VecF32 first, VecF32 second) { store(to, first), store(to + LANES, second); }

// Converts `count` values, a multiple of PANEL.
inline void convert_to_bf16(const float* x, size_t count, BF16* to) {
    for (size_t i = 0; i < count; i += PANEL) store_panel(to + i, load(x + i), load(x + i + LANES));
}

// Of two rows of bf16 values: pairs of the elements at even positions, and of those at odd positions.
inline VecU32 pair_even(VecU32 a, VecU32 b) { return (a & 0xFFFFu) | (b << 16); }
inline VecU32 pair_odd(VecU32 a, VecU32 b) { return (a >> 16) | (b & 0xFFFF0000u); }

// The words of the lower (or upper) halves of two registers, alternating.
template <bool upper>
inline VecU32 interleave(VecU32 a, VecU32 b) {
#if defined(__AVX512F__)
    const int s = upper ? 8 : 0;
    const __m512i order = _mm512_setr_epi32(s, s + 16, s + 1, s + 17, s + 2, s + 18, s + 3, s + 19, s + 4, s + 20, s + 5,
                                            s + 21, s + 6, s + 22, s + 7, s + 23);
    return (VecU32)_mm512_permutex2var_epi32((__m512i)a, order, (__m512i)b);
#elif defined(HEEDFUL_NEON)
    return (VecU32)(upper ? vzip2q_u32((uint32x4_t)a, (uint32x4_t)b) : vzip1q_u32((uint32x4_t)a, (uint32x4_t)b));
#else
    VecU32 both;
    for (int i = 0; i < LANES; ++i) {
        const int from = i / 2 + (upper ? LANES / 2 : 0);
        both[i] = i % 2 ? b[from] : a[from];
    }
    return both;
#endif
}

// Transposes a square block of 32-bit words, one register a row.
inline void transpose(VecU32 (&x)[LANES]) {
    for (int round = 1; round < LANES; round *= 2) {
        VecU32 next[LANES];
        for (int i = 0; i < LANES / 2; ++i) {
            next[2 * i] = interleave<false>(x[i], x[i + LANES / 2]);
            next[2 * i + 1] = interleave<true>(x[i], x[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; ++i) x[i] = next[i];
    }
}

// In each lane: sum + the dot product of two pairs of bf16 values (vdpbf16ps, or its emulation).
inline VecF32 dot2_bf16(VecF32 sum, VecU32 a, VecU32 b) {
#if defined(__AVX512BF16__)
    return (VecF32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return fmadd(VecF32(a << 16), VecF32(b << 16), fmadd(VecF32(a & 0xFFFF0000u), VecF32(b & 0xFFFF0000u), sum));
#endif
}

}  // namespace heedful
