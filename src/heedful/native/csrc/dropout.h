// Dropout masks that are drawn again in the backward pass instead of being stored.
#pragma once

#include "simd.h"

namespace heedful {

// Random numbers for dropout, one stream per lane (xoshiro128++, Blackman and Vigna, 2021). The seed, the group of sentences
// and the dropout site determine the stream.
class DropoutRng {
  public:
    DropoutRng(uint64_t seed, uint64_t group, uint64_t site, float rate)
        : limit(int32_t(rate * 2147483648.0)), scale(1 / (1 - rate)) {
        if (limit <= 0) return;
        uint64_t state = mix(mix(seed) + mix(group * 0x10001 + site + 1));
        uint32_t words[4 * LANES];
        for (uint32_t& word : words) word = uint32_t(mix(state += 0x9E3779B97F4A7C15) >> 32);
        std::memcpy(s, words, sizeof words);
    }

    // The next LANES mask values: 1 / (1 - rate) where the value is kept, 0 where it is dropped.
    VecF32 mask() {
        if (limit <= 0) return broadcast(1.0f);
        const VecU32 drawn = rotl(s[0] + s[3], 7) + s[0];
        const VecU32 shifted = s[1] << 9;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
        s[2] ^= shifted, s[3] = rotl(s[3], 11);
        const VecI32 keep = VecI32(drawn >> 1) >= limit;
        VecI32 bits;
        const VecF32 scales = broadcast(scale);
        std::memcpy(&bits, &scales, sizeof bits);
        bits &= keep;
        VecF32 result;
        std::memcpy(&result, &bits, sizeof result);
        return result;
    }

  private:
    int32_t limit;
    float scale;
    VecU32 s[4];

    static VecU32 rotl(VecU32 x, int bits) { return (x << bits) | (x >> (32 - bits)); }
    static uint64_t mix(uint64_t x) {  // the finalizer of SplitMix64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
        return x ^ (x >> 31);
    }
};

}  // namespace heedful
