// Products for learning in bfloat16, with sums in float32: by tiles (AMX) or by pairs, whichever the CPU has.
//
// A half is the upper half of a float. Two of them that are multiplied one after the other stand side by side, as a
// pair: in rows they do anyway, in panels of columns they are laid so. What is multiplied over is filled up with zeros to
// whole tiles, and rows may be computed that nobody asked for, so there has to be room for a multiple of STACK of them.
#pragma once

#include "cpu.h"
#include "tiles.h"

namespace heedful::learning {

using heedful::load, heedful::store;

struct Half {
    uint16_t bits;
};
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));  // pairs

constexpr int STACK = 16;  // rows of a tile

inline size_t stacked(size_t rows) { return (rows + STACK - 1) / STACK * STACK; }

inline Words load(const Half* from) {
    Words v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
inline void store(Half* to, Words v) { std::memcpy(to, &v, sizeof v); }

// Two registers of numbers as one of halves, to the nearest.
inline Words halved(Floats first, Floats second) {
#if defined(__AVX512BF16__)
    return (Words)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
#else
    uint16_t halves[2 * LANES];
    Words bits[2], both;
    std::memcpy(&bits[0], &first, sizeof first);
    std::memcpy(&bits[1], &second, sizeof second);
    for (int i = 0; i < 2 * LANES; ++i) {
        const uint32_t exact = bits[i / LANES][i % LANES];
        halves[i] = uint16_t((exact + 0x7FFF + (exact >> 16 & 1)) >> 16);
    }
    std::memcpy(&both, halves, sizeof both);
    return both;
#endif
}

inline void put(Half* to, Floats first, Floats second) { store(to, halved(first, second)); }
inline void put(float* to, Floats first, Floats second) { store(to, first), store(to + LANES, second); }

// So many numbers, a multiple of PANEL.
inline void halve(const float* x, size_t count, Half* to) {
    for (size_t i = 0; i < count; i += PANEL) put(to + i, load(x + i), load(x + i + LANES));
}

// Pairs of what stands in the even places of two rows, and in the odd ones.
inline Words evens(Words a, Words b) { return (a & 0xFFFFu) | (b << 16); }
inline Words odds(Words a, Words b) { return (a >> 16) | (b & 0xFFFF0000u); }

// The lower or the upper halves of two registers, one word of each in turn.
template <bool upper>
inline Words interleaved(Words a, Words b) {
#if defined(__AVX512F__)
    const int s = upper ? 8 : 0;
    const __m512i order = _mm512_setr_epi32(s, s + 16, s + 1, s + 17, s + 2, s + 18, s + 3, s + 19, s + 4, s + 20, s + 5,
                                            s + 21, s + 6, s + 22, s + 7, s + 23);
    return (Words)_mm512_permutex2var_epi32((__m512i)a, order, (__m512i)b);
#else
    Words both;
    for (int i = 0; i < LANES; ++i) both[i] = (i % 2 ? b : a)[i / 2 + (upper ? LANES / 2 : 0)];
    return both;
#endif
}

// Rows become columns, in as many registers as each has words.
inline void turn(Words (&x)[LANES]) {
    for (int round = 1; round < LANES; round *= 2) {
        Words next[LANES];
        for (int i = 0; i < LANES / 2; ++i) {
            next[2 * i] = interleaved<false>(x[i], x[i + LANES / 2]);
            next[2 * i + 1] = interleaved<true>(x[i], x[i + LANES / 2]);
        }
        for (int i = 0; i < LANES; ++i) x[i] = next[i];
    }
}

// Panels of which column c is row c of x: (columns, k), its rows `row` apart, k a multiple of PANEL.
inline void pack_columns(const Half* x, long row, int columns, int k, Half* to) {
    for (int first = 0; first < columns; first += PANEL, to += size_t(k) * PANEL)
        for (int t = 0; t < k; t += PANEL)
            for (int half = 0; half < 2; ++half) {
                Words block[LANES];
                for (int i = 0; i < LANES; ++i) {
                    const int column = first + half * LANES + i;
                    block[i] = column < columns ? load(x + column * row + t) : Words{};
                }
                turn(block);
                for (int i = 0; i < LANES; ++i) store(to + (size_t(t / 2 + i) * PANEL + half * LANES) * 2, block[i]);
            }
}

// Panels of which row t is row t of x: (k, columns), columns a multiple of PANEL. Panels are `panel` apart.
inline void pack_rows(const Half* x, long row, int k, int columns, Half* to, size_t panel) {
    for (int first = 0; first < columns; first += PANEL, to += panel)
        for (int t = 0; t < int(panelled(k)); t += 2) {
            const Words a = t < k ? load(x + t * row + first) : Words{};
            const Words b = t + 1 < k ? load(x + (t + 1) * row + first) : Words{};
            store(to + size_t(t) * PANEL, interleaved<false>(evens(a, b), odds(a, b)));
            store(to + size_t(t + 1) * PANEL, interleaved<true>(evens(a, b), odds(a, b)));
        }
}

// (rows, n), its rows `apart`, as (n, panelled(rows)), n a multiple of PANEL.
inline void turn_rows(const Half* y, long apart, int rows, int n, Half* to) {
    const size_t length = panelled(rows);
    for (int t = 0; t < rows; t += PANEL)
        for (int j = 0; j < n; j += PANEL) {
            Words even[LANES], odd[LANES];
            for (int i = 0; i < LANES; ++i) {
                const int first = t + 2 * i;
                const Words a = first < rows ? load(y + first * apart + j) : Words{};
                const Words b = first + 1 < rows ? load(y + (first + 1) * apart + j) : Words{};
                even[i] = evens(a, b), odd[i] = odds(a, b);
            }
            turn(even), turn(odd);
            for (int i = 0; i < LANES; ++i)
                store(to + (j + 2 * i) * length + t, even[i]), store(to + (j + 2 * i + 1) * length + t, odd[i]);
        }
}

// sum + the products of both halves of each pair
inline Floats add_pairs(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return fused(Floats(a << 16), Floats(b << 16), fused(Floats(a & 0xFFFF0000u), Floats(b & 0xFFFF0000u), sum));
#endif
}

// Some rows times one panel; see `multiply`.
template <int rows, bool add>
inline void tile(const Half* a, long row, int k, const Half* panel, float* c, long to, const float* start) {
    Floats sums[rows][2];
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < 2; ++half)
            sums[r][half] = add     ? load(c + r * to + half * LANES)
                            : start ? load(start + half * LANES)
                                    : Floats{};
    for (int t = 0; t < k; t += 2, panel += 2 * PANEL) {
        const Words left = load(panel), right = load(panel + PANEL);
        for (int r = 0; r < rows; ++r) {
            uint32_t pair;
            std::memcpy(&pair, a + r * row + t, sizeof pair);
            const Words x = pair - Words{};
            sums[r][0] = add_pairs(sums[r][0], x, left);
            sums[r][1] = add_pairs(sums[r][1], x, right);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < 2; ++half) store(c + r * to + half * LANES, sums[r][half]);
}

#if defined(__AMX_BF16__)
static_assert(PANEL == 32, "a panel is as wide as two tiles");

// For as long as it lives, tiles of this thread have 16 rows of 64 bytes; then they are again what they were.
class Tiles {
  public:
    Tiles() {
        _tile_storeconfig(before);
        alignas(64) uint8_t shape[64] = {1};  // the palette
        for (int tile = 0; tile < 8; ++tile) shape[16 + 2 * tile] = 64, shape[48 + tile] = STACK;
        __asm__ volatile("" ::"r"(shape) : "memory");  // all of it is read, and not all compilers know
        _tile_loadconfig(shape);
    }
    ~Tiles() { _tile_loadconfig(before); }
    Tiles(const Tiles&) = delete;

  private:
    alignas(64) uint8_t before[64];
};

// One or two stacks of rows times one panel.
template <int stacks, bool add>
inline void tile_stacks(const Half* a, long row, int k, const Half* panel, float* c, long to, const float* start) {
    float* lower = c + STACK * to;
    __asm__ volatile("" ::: "memory");  // tiles are read from memory, which compilers do not know of all of these
    if (add) {
        _tile_loadd(0, c, to * 4);
        _tile_loadd(1, c + STACK, to * 4);
        if (stacks == 2) {
            _tile_loadd(2, lower, to * 4);
            _tile_loadd(3, lower + STACK, to * 4);
        }
    } else if (start) {  // the same row again and again
        _tile_loadd(0, start, 0);
        _tile_loadd(1, start + STACK, 0);
        _tile_loadd(2, start, 0);
        _tile_loadd(3, start + STACK, 0);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int t = 0; t < k; t += PANEL, panel += PANEL * PANEL) {
        _tile_loadd(6, panel, PANEL * 4);
        _tile_loadd(7, panel + PANEL, PANEL * 4);
        _tile_loadd(4, a + t, row * 2);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (stacks == 2) {
            _tile_loadd(5, a + STACK * row + t, row * 2);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, c, to * 4);
    _tile_stored(1, c + STACK, to * 4);
    if (stacks == 2) {
        _tile_stored(2, lower, to * 4);
        _tile_stored(3, lower + STACK, to * 4);
    }
}
#else
struct Tiles {
    Tiles() {}
};
#endif

// Whether products of halves are faster than those of floats: by pairs they are not on CPUs that have tiles.
inline bool fast_halves() {
#if defined(__AMX_BF16__)
    return true;
#elif defined(__AVX512BF16__)
    return !lists_amx();
#else
    return false;
#endif
}

// c = a b + start, or c += a b. a: (m, k), its rows `row` apart; b: panels of (k, n), `panel` apart; c: (m, n), its rows `to`
// apart; start: (n). k and n are multiples of PANEL.
template <bool add>
void multiply(const Half* a, long row, int m, int k, const Half* b, int n, float* c, long to, const float* start,
              size_t panel) {
    for (int first = 0; first < n; first += PANEL, b += panel) {
        const float* begin = start ? start + first : nullptr;
#if defined(__AMX_BF16__)
        int i = 0;
        for (; i + STACK < m; i += 2 * STACK)
            tile_stacks<2, add>(a + i * row, row, k, b, c + i * to + first, to, begin);
        if (i < m) tile_stacks<1, add>(a + i * row, row, k, b, c + i * to + first, to, begin);
#else
        constexpr int ROWS = LANES / 2;
        for (int i = 0; i < m; i += ROWS) tile<ROWS, add>(a + i * row, row, k, b, c + i * to + first, to, begin);
#endif
    }
}

template <bool add>
void multiply(const Half* a, long row, int m, int k, const Half* b, int n, float* c, long to,
              const float* start = nullptr) {
    multiply<add>(a, row, m, k, b, n, c, to, start, size_t(k) * PANEL);
}

// to += yᵀ x: y (rows, n), its rows `apart`, and x (rows, k), in panels of its rows, make (n, k). y is laid out anew.
inline void add_products(const Half* y, long apart, int rows, int n, const Half* panels, int k, float* to,
                         Room<Half>& turned) {
    const int length = int(panelled(rows));
    turn_rows(y, apart, rows, n, turned.at_least(size_t(n) * length));
    multiply<true>(turned.get(), length, n, length, panels, k, to, k);
}

// Rows as products take them: as they are, or as halves in a room that is lent.
template <typename Number>
const Number* as(const float* x, size_t count, Number* room) {
    if constexpr (std::is_same_v<Number, Half>)
        return halve(x, count, room), room;
    else
        return x;
}

// How far a product goes over so many rows.
template <typename Number>
int depth(int rows) {
    return std::is_same_v<Number, Half> ? int(panelled(rows)) : rows;
}

}  // namespace heedful::learning
