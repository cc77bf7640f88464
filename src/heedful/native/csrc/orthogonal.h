// The matrix with the singular vectors of a given one, and singular values near 1: the steps of Muon (train/muon.py).
//
// A round of Newton-Schulz takes X to P X, where P = a + b G + c G² and G = X Xᵀ; the G of the next round is P G P. So
// only the first G and the last product are with X, and the P of all rounds are multiplied into one matrix. All of these
// are symmetric and come of the same G, so their products are symmetric too, and half of each is computed. In halves that
// would not do: the smallest singular values are lost in a G that is rounded, and come out wrong. There, every round
// makes its G of X anew.
#pragma once

#include "halves.h"
#include "parallel.h"

namespace heedful::learning {

struct Quintic {  // x -> a x + b x³ + c x⁵, and how often
    float a, b, c;
    int32_t rounds;
};

// What x has to be multiplied with to be of length 1.
inline float shortening(const float* x, size_t count) {
    double squares = 0;
    for (size_t first = 0; first < count; first += 4096) {
        const float* part = x + first;
        squares += dot(part, part, int(std::min(count - first, size_t(4096))));
    }
    return 1 / std::max(float(std::sqrt(squares)), 1e-7f);
}

// One matrix after the other, of (m, n) with m <= n.
class Orthogonal {
  public:
    Orthogonal(int rows, int columns, const Quintic& polynomial)
        : m(rows), n(columns), M(int(panelled(rows))), N(int(panelled(columns))), quintic(polynomial) {
        for (Room<float>* each : {&gram, &square, &factor, &product, &other}) each->at_least(size_t(m) * M);
        given.at_least(size_t(m) * n), filled.at_least(size_t(m) * N);
        panels.at_least(std::max(size_t(M) * n, size_t(N) * m));
    }

    // x: (m, n), its rows `down` apart and its columns `across`; it is overwritten.
    void make(float* x, long down, long across) {
        float *scaled = given.get(), *result = filled.get();
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) scaled[size_t(i) * n + j] = x[i * down + j * across];
        const float scale = shortening(scaled, size_t(m) * n);
        for (size_t i = 0; i < size_t(m) * n; ++i) scaled[i] *= scale;

        pack(scaled, n, 1, m, n, panels.get());
        symmetric(scaled, n, n, gram);
        for (int round = 0; round < quintic.rounds; ++round) {
            multiply_symmetric(gram, gram, square);
            float *p = factor.get(), *g = gram.get(), *s = square.get();
            for (size_t i = 0; i < size_t(m) * M; ++i) p[i] = quintic.b * g[i] + quintic.c * s[i];
            for (int i = 0; i < m; ++i) p[size_t(i) * M + i] += quintic.a;
            if (round == 0) {
                std::memcpy(product.get(), p, size_t(m) * M * sizeof(float));
            } else {
                multiply_symmetric(product, factor, other);
                std::swap(product, other);
            }
            if (round + 1 < quintic.rounds) {
                multiply_symmetric(gram, factor, other);
                multiply_symmetric(other, factor, gram);
            }
        }
        pack(scaled, 1, n, n, m, panels.get());
        multiply<false>(product.get(), M, 1, m, m, panels.get(), n, result, N);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) x[i * down + j * across] = result[size_t(i) * N + j];
    }

  private:
    const int m, n, M, N;
    const Quintic quintic;
    Room<float> given, filled, panels;                  // (m, n), (m, N)
    Room<float> gram, square, factor, product, other;  // (m, M)

    // c = a b, which is known to be symmetric, where b has been laid out in panels of (k, m): what is above the diagonal
    // is computed, and copied to below.
    void symmetric(const float* a, long row, int k, Room<float>& to) {
        float *c = to.get(), *b = panels.get();
        for (int first = 0; first < m; first += PANEL, b += size_t(k) * PANEL) {
            const int last = std::min(first + PANEL, m);
            int i = 0;
            for (; i + TILE <= last; i += TILE)
                tile<TILE, false>(a + i * row, row, 1, k, b, c + size_t(i) * M + first, M, nullptr);
            last_tile<TILE - 1, false>(last - i, a + i * row, row, 1, k, b, c + size_t(i) * M + first, M, nullptr);
        }
        for (int down = 0; down < m; down += PANEL)
            for (int across = 0; across <= down; across += PANEL)
                for (int j = across; j < std::min(across + PANEL, m); ++j)
                    for (int i = std::max(down, j + 1); i < std::min(down + PANEL, m); ++i)
                        c[size_t(i) * M + j] = c[size_t(j) * M + i];
    }
    void multiply_symmetric(const Room<float>& a, const Room<float>& b, Room<float>& to) {
        pack(b.get(), 1, M, m, m, panels.get());
        symmetric(a.get(), M, m, to);
    }
};

// The same with products in halves.
class HalvedOrthogonal {
  public:
    HalvedOrthogonal(int rows, int columns, const Quintic& polynomial)
        : m(rows), n(columns), M(int(panelled(rows))), N(int(panelled(columns))), quintic(polynomial) {
        for (Room<float>* each : {&gram, &square}) each->at_least(size_t(M) * M);
        for (Room<float>* each : {&now, &change}) each->at_least(size_t(M) * N);
        halves.at_least(size_t(M) * N), factor.at_least(size_t(M) * M), panels.at_least(size_t(M) * N);
    }

    // x: (m, n), its rows `down` apart and its columns `across`; it is overwritten.
    void make(float* x, long down, long across) {
        float *given = now.get(), *g = gram.get(), *s = square.get(), *c = change.get();
        const size_t size = size_t(m) * N, square_size = size_t(m) * M;
        std::fill_n(given, size, 0.0f);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) given[size_t(i) * N + j] = x[i * down + j * across];
        const float scale = shortening(given, size);
        for (size_t i = 0; i < size; ++i) given[i] *= scale;
        for (int round = 0; round < quintic.rounds; ++round) {
            halve(given, size, halves.get());
            pack_columns(halves.get(), N, m, N, panels.get());
            multiply<false>(halves.get(), N, m, N, panels.get(), M, g, M);
            halve(g, square_size, factor.get());
            pack_rows(factor.get(), M, m, M, panels.get(), size_t(M) * PANEL);
            multiply<false>(factor.get(), M, m, M, panels.get(), M, s, M);
            for (size_t i = 0; i < square_size; ++i) s[i] = quintic.b * g[i] + quintic.c * s[i];
            halve(s, square_size, factor.get());
            pack_rows(halves.get(), N, m, N, panels.get(), size_t(M) * PANEL);
            multiply<false>(factor.get(), M, m, M, panels.get(), N, c, N);
            for (size_t i = 0; i < size; ++i) given[i] = quintic.a * given[i] + c[i];
        }
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) x[i * down + j * across] = given[size_t(i) * N + j];
    }

  private:
    const int m, n, M, N;
    const Quintic quintic;
    Room<float> now, change, gram, square;  // (m, N), (m, N), (m, M), (m, M)
    Room<Half> halves, factor, panels;
};

// matrices: (count, rows, columns), which are overwritten.
template <typename Maker>
void make_orthogonal(float* matrices, int count, int rows, int columns, const Quintic& quintic, int threads) {
    const bool tall = rows > columns;
    threads = std::max(1, std::min(threads, count));
    std::vector<std::unique_ptr<Maker>> makers;
    while (int(makers.size()) < threads)
        makers.push_back(std::make_unique<Maker>(std::min(rows, columns), std::max(rows, columns), quintic));
    Caught caught;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int maker = 0; maker < threads; ++maker)
        caught.run([&] {
            const Tiles tiles;
            for (int i = maker; i < count; i += threads)
                makers[maker]->make(matrices + size_t(i) * rows * columns, tall ? 1 : columns, tall ? columns : 1);
        });
    caught.rethrow();
}

}  // namespace heedful::learning
