// Products for learning: y = x Wᵀ, dx = dy W and dW = dyᵀ x, all by one kernel over panels of columns.
#pragma once

#include "products.h"

namespace heedful::learning {

#if defined(__AVX512F__)
constexpr int TILE = 8;  // rows that are multiplied at once
#else
constexpr int TILE = 6;
#endif
constexpr int NEAR = 32;  // rows that stay in the nearest memory while they are turned

inline size_t panelled(size_t n) { return (n + PANEL - 1) / PANEL * PANEL; }
inline size_t filled(size_t n) { return (n + LANES - 1) / LANES * LANES; }

// Lays (k, columns) out in panels; columns are `across` apart and rows `down`. What fills the last panel is zero.
inline void pack(const float* from, long across, long down, int columns, int k, float* to) {
    for (int first = 0; first < columns; first += PANEL) {
        const int count = std::min(PANEL, columns - first);
        for (int t = 0; t < k; ++t, to += PANEL) {
            const float* row = from + first * across + t * down;
            if (count < PANEL) std::fill(to, to + PANEL, 0.0f);
            if (across == 1 && count == PANEL)
                std::memcpy(to, row, PANEL * sizeof(float));
            else
                for (int j = 0; j < count; ++j) to[j] = row[j * across];
        }
    }
}

// As many rows as registers hold, times one panel or the first half of it; see `multiply`.
template <int rows, bool add, int halves = 2>
inline void tile(const float* a, long row, long step, int k, const float* panel, float* c, long to, const float* start) {
    Floats sums[rows][halves];
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < halves; ++half)
            sums[r][half] = add     ? load(c + r * to + half * LANES)
                            : start ? load(start + half * LANES)
                                    : Floats{};
    const float *third = a + 3 * row, *sixth = a + 6 * row;  // counted from three places, rows take fewer registers
    for (int t = 0; t < k; ++t, panel += PANEL, a += step, third += step, sixth += step) {
        const Floats left = load(panel), right = halves == 2 ? load(panel + LANES) : Floats{};
        for (int r = 0; r < rows; ++r) {
            const Floats x = all(r < 3 ? a[r * row] : r < 6 ? third[(r - 3) * row] : sixth[(r - 6) * row]);
            sums[r][0] = fused(x, left, sums[r][0]);
            if constexpr (halves == 2) sums[r][1] = fused(x, right, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < halves; ++half) store(c + r * to + half * LANES, sums[r][half]);
}

template <int rows, bool add, int halves = 2>
inline void last_tile(int left, const float* a, long row, long step, int k, const float* panel, float* c, long to,
                      const float* start) {
    if constexpr (rows > 0) {
        if (left == rows) return tile<rows, add, halves>(a, row, step, k, panel, c, to, start);
        last_tile<rows - 1, add, halves>(left, a, row, step, k, panel, c, to, start);
    }
}

// All rows times one panel or the first half of it.
template <bool add, int halves>
void multiply_panel(const float* a, long row, long step, int m, int k, const float* panel, float* c, long to,
                    const float* start) {
    int i = 0;
    for (; i + TILE <= m; i += TILE) tile<TILE, add, halves>(a + i * row, row, step, k, panel, c + i * to, to, start);
    last_tile<TILE - 1, add, halves>(m - i, a + i * row, row, step, k, panel, c + i * to, to, start);
}

// c = a b + start, or c += a b. a: (m, k), its rows `row` apart and its columns `step`; b: panels of (k, n), `panel` apart;
// c: (m, n), its rows `to` apart, n filled up to whole registers; start: (n).
template <bool add>
void multiply(const float* a, long row, long step, int m, int k, const float* b, int n, float* c, long to,
              const float* start, size_t panel) {
    for (int first = 0; first < n; first += PANEL, b += panel) {
        const float* begin = start ? start + first : nullptr;
        if (n - first > LANES)
            multiply_panel<add, 2>(a, row, step, m, k, b, c + first, to, begin);
        else
            multiply_panel<add, 1>(a, row, step, m, k, b, c + first, to, begin);
    }
}

// The same with panels one after the other.
template <bool add>
void multiply(const float* a, long row, long step, int m, int k, const float* b, int n, float* c, long to,
              const float* start = nullptr) {
    multiply<add>(a, row, step, m, k, b, n, c, to, start, size_t(k) * PANEL);
}

// Panels of which column c is row c of x: (columns, k), its rows `row` apart.
inline void pack_columns(const float* x, long row, int columns, int k, float* to) { pack(x, row, 1, columns, k, to); }

// Panels of which row t is row t of x: (k, columns). Panels are `panel` apart.
inline void pack_rows(const float* x, long row, int k, int columns, float* to, size_t panel) {
    for (int first = 0; first < columns; first += PANEL, to += panel)
        pack(x + first, 1, row, std::min(PANEL, columns - first), k, to);
}

// The same with rows of a whose numbers stand side by side.
template <bool add>
void multiply(const float* a, long row, int m, int k, const float* b, int n, float* c, long to, const float* start,
              size_t panel) {
    multiply<add>(a, row, 1L, m, k, b, n, c, to, start, panel);
}
template <bool add>
void multiply(const float* a, long row, int m, int k, const float* b, int n, float* c, long to,
              const float* start = nullptr) {
    multiply<add>(a, row, 1L, m, k, b, n, c, to, start);
}

// to += yᵀ x: y (rows, n), its rows `apart`, and x (rows, k), in panels of its rows, make (n, k). y is laid out anew.
inline void add_products(const float* y, long apart, int rows, int n, const float* panels, int k, float* to,
                         Room<float>& rows_packed) {
    float* turned = rows_packed.at_least(size_t(n + TILE) * rows);  // what a tile takes at once, side by side
    for (int first = 0; first < rows; first += NEAR)
        for (int i = 0; i < n; i += TILE) {
            float* to = turned + size_t(i) * rows;
            const int last = std::min(first + NEAR, rows);
            if (i + TILE <= n)
                for (int t = first; t < last; ++t) std::memcpy(to + t * TILE, y + t * apart + i, TILE * sizeof(float));
            else
                for (int t = first; t < last; ++t) std::copy_n(y + t * apart + i, n - i, to + t * TILE);
        }
    for (int first = 0; first < k; first += PANEL, panels += size_t(rows) * PANEL)
        for (int i = 0; i < n; i += TILE) {
            const float* a = turned + size_t(i) * rows;
            float* c = to + size_t(i) * k + first;
            if (i + TILE <= n)
                tile<TILE, true>(a, 1, TILE, rows, panels, c, k, nullptr);
            else
                last_tile<TILE - 1, true>(n - i, a, 1, TILE, rows, panels, c, k, nullptr);
        }
}

}  // namespace heedful::learning
