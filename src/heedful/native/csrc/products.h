// Rows times a matrix, y = x Wᵀ + b, in float32 or with weights and rows in 8 bits.
//
// Weights are laid out in panels of as many columns as two registers hold, so that a product reads them in order. Every
// number of y is summed in the same order however many rows there are, so no row depends on the others beside it.
//
// In 8 bits a weight is a whole number of at most 64 times a scale of its column, and a row is whole numbers of at most
// 127 times a scale of its own, found when it comes. 64 and not 127, because the products of CPUs without VNNI would
// overflow above it; so every CPU has the same numbers. Products take the rows unsigned: 128 is added to each number,
// and 128 times the sum of a column is taken from its result. These CPUs add pairs of products in 16 bits; where weights
// are modest enough, two pairs, which is one instruction in six less.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "vectors.h"

namespace heedful {

constexpr int PANEL = 2 * LANES;
constexpr float MOST_WEIGHT = 64, MOST_ROW = 127;
constexpr float LEAST = 1e-30f;  // what is all smaller than this counts as zeros: its scale would have no inverse
constexpr long WORTH_THREADS = 1 << 18;  // multiplications from which on a second thread pays

// Memory for vectors: aligned, not cleared, kept until more is needed.
template <typename T>
class Room {
  public:
    T* at_least(size_t count) {
        if (count > size) {
            const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
            size = 0, data.reset();
            data.reset(static_cast<T*>(::operator new(bytes, ALIGNMENT)));
            size = count;
        }
        return data.get();
    }
    T* get() const { return data.get(); }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};
    struct Free {
        void operator()(void* p) const { ::operator delete(p, ALIGNMENT); }
    };
    std::unique_ptr<T, Free> data;
    size_t size = 0;
};

// Rows of numbers as a product takes them.
struct Rows {
    const float* floats = nullptr;
    int count = 0, width = 0, stride = 0;  // of the bytes: the width, filled up to a multiple of 8
    Room<uint8_t> bytes;
    Room<float> scales;

    // x: (count, width) numbers, which must stay where they are; `small` also makes bytes of them.
    void set(const float* x, int rows, int columns, bool small, int threads) {
        floats = x, count = rows, width = columns, stride = (columns + 7) / 8 * 8;
        if (!small) return;
        uint8_t* to = bytes.at_least(size_t(rows) * stride + LANES);
        float* scale = scales.at_least(rows);
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(rows) * columns > WORTH_THREADS / 16)
        for (int r = 0; r < rows; ++r) scale[r] = reduce(x + size_t(r) * columns, to + size_t(r) * stride);
    }

  private:
    // -> the scale, which is NaN if a number of the row is not finite: whole numbers cannot tell, and what is computed
    // from the row must not become finite again.
    float reduce(const float* x, uint8_t* to) const {
        Floats most{}, nothing{};  // v - v is 0, or NaN
        int i = 0;
        for (; i + LANES <= width; i += LANES) {
            Floats v = load(x + i), minus = -v;
            nothing += v - v;
            v = v > minus ? v : minus;
            most = v > most ? v : most;
        }
        float bound = largest(most), rest = sum(nothing);
        for (; i < width; ++i) bound = std::max(bound, std::fabs(x[i])), rest += x[i] - x[i];
        float factor = bound > LEAST ? MOST_ROW / bound : 0.0f;
        for (i = 0; i + LANES <= width; i += LANES) {
            Bytes small = __builtin_convertvector(nearest(load(x + i) * factor) + 128, Bytes);
            std::memcpy(to + i, &small, LANES);
        }
        for (; i < width; ++i) to[i] = uint8_t(nearest(all(x[i] * factor))[0] + 128);
        for (; i < stride; ++i) to[i] = 128;
        return bound / MOST_ROW + rest;
    }
};

// Four bytes, in every lane.
inline Ints everywhere(const uint8_t* from) {
    int32_t four;
    std::memcpy(&four, from, 4);
    return four - Ints{};
}

// sum += four products of an unsigned and a signed byte, in every lane.
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
inline Ints add_fours(Ints sum, Ints row, Ints weights) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)row, (__m512i)weights);
}
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
inline Ints add_fours(Ints sum, Ints row, Ints weights) {
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)row, (__m256i)weights);
}
#elif defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define HEEDFUL_SUMS_OF_16_BITS
#if defined(__AVX512BW__)
inline Shorts pairs(Ints row, Ints weights) { return (Shorts)_mm512_maddubs_epi16((__m512i)row, (__m512i)weights); }
inline Ints widened(Shorts pairs) { return (Ints)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1)); }
#else
inline Shorts pairs(Ints row, Ints weights) { return (Shorts)_mm256_maddubs_epi16((__m256i)row, (__m256i)weights); }
inline Ints widened(Shorts pairs) { return (Ints)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
#endif
inline Ints add_fours(Ints sum, Ints row, Ints weights) { return sum + widened(pairs(row, weights)); }
#else
inline Ints add_fours(Ints sum, Ints row, Ints weights) {
    uint8_t a[4 * LANES];
    int8_t b[4 * LANES];
    std::memcpy(a, &row, sizeof a);
    std::memcpy(b, &weights, sizeof b);
    for (int i = 0; i < 4 * LANES; ++i) sum[i / 4] += int32_t(a[i]) * b[i];
    return sum;
}
#endif

// sum += eight such products: four of row[0] and the first weights, four of row[1] and the second. Modest weights are those
// whose four products of 255 with the first two bytes of both, and with the last two, fit into 16 bits.
template <bool modest>
inline Ints add_eights(Ints sum, const Ints* row, Ints first, Ints second) {
#if defined(HEEDFUL_SUMS_OF_16_BITS)
    if (modest) return sum + widened(pairs(row[0], first) + pairs(row[1], second));
#endif
    return add_fours(add_fours(sum, row[0], first), row[1], second);
}

// A row of weights in 8 bits, and its scale.
inline float reduce(const float* row, int count, int8_t* to) {
    float bound = 0;
    for (int k = 0; k < count; ++k) bound = std::max(bound, std::fabs(row[k]));
    const bool nothing = !(bound > LEAST);
    for (int k = 0; k < count; ++k) to[k] = nothing ? 0 : int8_t(std::nearbyint(row[k] * (MOST_WEIGHT / bound)));
    return nothing ? 0.0f : bound / MOST_WEIGHT;
}

// A tensor, lent for the time of a call: numbers, or whole numbers of at most 64 with a scale for each row.
struct Tensor {
    const float* floats;
    const int8_t* wholes;
    const float* scales;
    int64_t count;

    // Row r of (…, width), restored into `room` if it is of whole numbers.
    const float* row(int r, int width, std::vector<float>& room) const {
        const size_t at = size_t(r) * width;
        if (floats) return floats + at;
        room.resize(width);
        for (int k = 0; k < width; ++k) room[k] = wholes[at + k] * scales[r];
        return room.data();
    }
};

class Matrix {
  public:
    int in = 0, out = 0;

    // Room for zeros, which `place` and `add` fill.
    void set(int columns, int width, bool small) {
        in = width, out = columns, is_small = small;
        int panels = (out + PANEL - 1) / PANEL;
        float* biases = bias.at_least(size_t(panels) * PANEL);
        std::fill(biases, biases + panels * PANEL, 0.0f);
        if (small) {
            std::fill_n(bytes.at_least(panels * panel_bytes()), panels * panel_bytes(), 0);
            modest.assign(panels * panel_bytes() / GROUP, true);
            std::fill_n(scale.at_least(size_t(panels) * PANEL), panels * PANEL, 0.0f);
            std::fill_n(offset.at_least(size_t(panels) * PANEL), panels * PANEL, 0);
        } else {
            std::fill_n(floats.at_least(size_t(panels) * PANEL * in), size_t(panels) * PANEL * in, 0.0f);
        }
    }

    // (rows, in): its rows become columns, from the `first` on.
    void place(const Tensor& weight, int first) {
        const int rows = int(weight.count / in);
        std::vector<float> room;
        for (int row = 0; row < rows; ++row)
            if (weight.wholes && is_small)
                put(weight.wholes + size_t(row) * in, weight.scales[row], first + row);
            else
                put(weight.row(row, in, room), first + row);
        if (!is_small) return;
        const size_t groups = panel_bytes() / GROUP, last = (first + rows - 1) / PANEL + 1;
        for (size_t g = first / PANEL * groups; g < last * groups; ++g) modest[g] = is_modest(bytes.get() + g * GROUP);
    }

    // (rows): the biases of these columns.
    void add(const Tensor& biases, int first) { std::copy_n(biases.floats, biases.count, bias.get() + first); }

    // One column: (in).
    void column(int number, float* to) const {
        const int p = number / PANEL, c = number % PANEL;
        if (!is_small) {
            const float* from = floats.get() + size_t(p) * in * PANEL + c;
            for (int k = 0; k < in; ++k) to[k] = from[size_t(k) * PANEL];
            return;
        }
        const int8_t* from = bytes.get() + p * panel_bytes() + 4 * c;
        for (int k = 0; k < in; ++k) to[k] = from[size_t(k / 4) * 4 * PANEL + k % 4] * scale.get()[number];
    }

    // (count, in) -> (count, out)
    void times(const Rows& x, float* y, int threads) const {
        int panels = (out + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(x.count) * in * out > WORTH_THREADS)
        for (int p = 0; p < panels; ++p) {
            if (is_small)
                panel<true, SMALL_TILE>(x, p, y);
            else
                panel<false, FLOAT_TILE>(x, p, y);
        }
    }

  private:
#if defined(__AVX512F__)
    static constexpr int SMALL_TILE = 8, FLOAT_TILE = 8;  // rows that are multiplied at once: what registers can hold
#else
    static constexpr int SMALL_TILE = 4, FLOAT_TILE = 6;
#endif
    static constexpr int GROUP = 8 * PANEL;  // bytes that are multiplied with eight numbers of a row
    bool is_small = false;
    Room<float> floats;        // (panels, in, PANEL)
    Room<int8_t> bytes;        // (panels, in / 8, 2, PANEL, 4)
    std::vector<char> modest;  // of each (panel, eight numbers)
    Room<float> scale;         // of each column
    Room<int32_t> offset;      // 128 times the sum of each column
    Room<float> bias;

    size_t panel_bytes() const { return size_t(in + 7) / 8 * GROUP; }

    static bool is_modest(const int8_t* group) {
        for (int i = 0; i < GROUP / 2; i += 2) {
            int above = 0, below = 0;
            for (int at : {i, i + 1, i + GROUP / 2, i + GROUP / 2 + 1}) (group[at] > 0 ? above : below) += group[at];
            if (std::max(above, -below) * 255 > std::numeric_limits<int16_t>::max()) return false;
        }
        return true;
    }

    void put(const float* row, int column) {
        if (!is_small) {
            float* to = floats.get() + size_t(column / PANEL) * in * PANEL + column % PANEL;
            for (int k = 0; k < in; ++k) to[size_t(k) * PANEL] = row[k];
            return;
        }
        std::vector<int8_t> wholes(in);
        const float of_row = reduce(row, in, wholes.data());
        put(wholes.data(), of_row, column);
    }

    void put(const int8_t* row, float of_row, int column) {
        int8_t* to = bytes.get() + column / PANEL * panel_bytes() + 4 * (column % PANEL);
        int total = 0;
        for (int k = 0; k < in; ++k) {
            to[size_t(k / 4) * 4 * PANEL + k % 4] = row[k];
            total += row[k];
        }
        scale.get()[column] = of_row, offset.get()[column] = 128 * total;
    }

    template <bool small, int TILE>
    void panel(const Rows& x, int p, float* y) const {
        int row = 0;
        for (; row + TILE <= x.count; row += TILE) tile<small, TILE>(x, row, p, y);
        rest<small, TILE - 1>(x, row, p, y);
    }

    template <bool small, int LEFT>
    void rest(const Rows& x, int row, int p, float* y) const {
        if constexpr (LEFT > 0) {
            if (x.count - row == LEFT)
                tile<small, LEFT>(x, row, p, y);
            else
                rest<small, LEFT - 1>(x, row, p, y);
        }
    }

    template <bool modest, int M>
    static inline __attribute__((always_inline)) void add_group(const uint8_t* from, int stride, const int8_t* weights,
                                                                Ints (&sums)[M][2]) {
        auto part = [weights](int i) { return load(static_cast<const void*>(weights + i * GROUP / 4)); };
        const Ints w0 = part(0), w1 = part(1), w2 = part(2), w3 = part(3);
        for (int m = 0; m < M; ++m, from += stride) {
            const Ints row[2] = {everywhere(from), everywhere(from + 4)};
            sums[m][0] = add_eights<modest>(sums[m][0], row, w0, w2);
            sums[m][1] = add_eights<modest>(sums[m][1], row, w1, w3);
        }
    }

    template <bool small, int M>
    void tile(const Rows& x, int row, int p, float* y) const {
        Floats result[M][2];
        if constexpr (small) {
            Ints sums[M][2] = {};
            const size_t groups = panel_bytes() / GROUP;
            const int8_t* weights = bytes.get() + p * panel_bytes();
            const uint8_t* from = x.bytes.get() + size_t(row) * x.stride;
            for (size_t g = 0; g < groups; ++g, weights += GROUP, from += 8) {
                if (modest[p * groups + g])
                    add_group<true, M>(from, x.stride, weights, sums);
                else
                    add_group<false, M>(from, x.stride, weights, sums);
            }
            for (int half = 0; half < 2; ++half) {
                Ints less = load(static_cast<const void*>(offset.get() + p * PANEL + half * LANES));
                Floats column = load(scale.get() + p * PANEL + half * LANES);
                for (int m = 0; m < M; ++m)
                    result[m][half] = __builtin_convertvector(sums[m][half] - less, Floats) *
                                      (column * x.scales.get()[row + m]);
            }
        } else {
            for (int m = 0; m < M; ++m) result[m][0] = result[m][1] = Floats{};
            const float* weights = floats.get() + size_t(p) * in * PANEL;
            const float* from = x.floats + size_t(row) * in;
            for (int k = 0; k < in; ++k, weights += PANEL) {
                Floats w0 = load(weights), w1 = load(weights + LANES);
                for (int m = 0; m < M; ++m) {
                    Floats each = all(from[size_t(m) * in + k]);
                    result[m][0] = fused(w0, each, result[m][0]);
                    result[m][1] = fused(w1, each, result[m][1]);
                }
            }
        }
        Floats b0 = load(bias.get() + p * PANEL), b1 = load(bias.get() + p * PANEL + LANES);
        int columns = std::min(PANEL, out - p * PANEL);
        for (int m = 0; m < M; ++m) {
            float* to = y + size_t(row + m) * out + p * PANEL;
            if (columns == PANEL) {
                store(to, result[m][0] + b0);
                store(to + LANES, result[m][1] + b1);
            } else {
                Floats both[2] = {result[m][0] + b0, result[m][1] + b1};
                std::memcpy(to, both, columns * sizeof(float));
            }
        }
    }
};

}  // namespace heedful
