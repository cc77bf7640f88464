// The matrix with the singular vectors of a given one, and singular values near 1: the steps of Muon (train/muon.py).
//
// A round of Newton-Schulz takes X to P X, where P = a + b G + c G² and G = X Xᵀ; the G of the next round is P G P. So
// only the first G and the last product are with X, and the P of all rounds are multiplied into one matrix. All of these
// are symmetric and come of the same G, so their products are symmetric too, and half of each is computed.
#pragma once

#include "tiles.h"

namespace heedful::learning {

struct Quintic {  // x -> a x + b x³ + c x⁵, and how often
    float a, b, c;
    int32_t rounds;
};

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
        double squares = 0;
        float *scaled = given.get(), *result = filled.get();
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) scaled[size_t(i) * n + j] = x[i * down + j * across];
        for (int i = 0; i < m; ++i) squares += dot(scaled + size_t(i) * n, scaled + size_t(i) * n, n);
        const float scale = 1 / std::max(float(std::sqrt(squares)), 1e-7f);
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

// matrices: (count, rows, columns), which are overwritten.
inline void make_orthogonal(float* matrices, int count, int rows, int columns, const Quintic& quintic, int threads) {
    const bool tall = rows > columns;
    threads = std::max(1, std::min(threads, count));
    std::vector<std::unique_ptr<Orthogonal>> workers;
    while (int(workers.size()) < threads)
        workers.push_back(std::make_unique<Orthogonal>(std::min(rows, columns), std::max(rows, columns), quintic));
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int worker = 0; worker < threads; ++worker)
        for (int i = worker; i < count; i += threads)
            workers[worker]->make(matrices + size_t(i) * rows * columns, tall ? 1 : columns, tall ? columns : 1);
}

}  // namespace heedful::learning
