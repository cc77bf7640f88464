// Newton-Schulz orthogonalization: the matrix with the singular vectors of a given one and singular values near 1. It is
// the update of Muon (training/optim/muon.py).
//
// One iteration is X -> P X with P = a + b G + c G² and G = X Xᵀ; the next G is P G P. So in float32 only the first G and
// the last product involve X, and the P of all iterations are multiplied into one matrix. All of these are polynomials of
// the same G, so their products are symmetric and only one triangle is computed. bf16 is not accurate enough for that: the
// smallest singular values are lost in a rounded G. There each iteration computes G from X.
#pragma once

#include <vector>

#include "gemm_bf16.h"
#include "parallel.h"

namespace heedful {

struct Quintic {  // x -> a x + b x³ + c x⁵, iterated; native/capi.py mirrors it
    float a, b, c;
    int32_t iterations;
};

// 1 / the Frobenius norm.
inline float inverse_norm(const float* x, size_t count) {
    double squares = 0;
    for (size_t first = 0; first < count; first += 4096) {
        const float* part = x + first;
        squares += dot(part, part, int(std::min(count - first, size_t(4096))));
    }
    return 1 / std::max(float(std::sqrt(squares)), 1e-7f);
}

// Orthogonalizes (m, n) matrices with m <= n.
class NewtonSchulzF32 {
  public:
    NewtonSchulzF32(int rows, int columns, const Quintic& quintic)
        : m(rows), n(columns), M(int(round_up_panel(rows))), N(int(round_up_panel(columns))), quintic(quintic) {
        for (Buffer<float>* buffer : {&gram, &square, &factor, &product, &swap_buffer}) buffer->ensure(size_t(m) * M);
        scaled.ensure(size_t(m) * n), result.ensure(size_t(m) * N);
        panels.ensure(std::max(size_t(M) * n, size_t(N) * m));
    }

    // x: (m, n), overwritten.
    void orthogonalize(float* x, long row_stride, long column_stride) {
        float *normalized = scaled.get(), *to = result.get();
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) normalized[size_t(i) * n + j] = x[i * row_stride + j * column_stride];
        const float scale = inverse_norm(normalized, size_t(m) * n);
        for (size_t i = 0; i < size_t(m) * n; ++i) normalized[i] *= scale;

        pack(normalized, n, 1, m, n, panels.get());
        symmetric_product(normalized, n, n, gram);
        for (int iteration = 0; iteration < quintic.iterations; ++iteration) {
            gemm_symmetric(gram, gram, square);
            float *p = factor.get(), *g = gram.get(), *s = square.get();
            for (size_t i = 0; i < size_t(m) * M; ++i) p[i] = quintic.b * g[i] + quintic.c * s[i];
            for (int i = 0; i < m; ++i) p[size_t(i) * M + i] += quintic.a;
            if (iteration == 0) {
                std::memcpy(product.get(), p, size_t(m) * M * sizeof(float));
            } else {
                gemm_symmetric(product, factor, swap_buffer);
                std::swap(product, swap_buffer);
            }
            if (iteration + 1 < quintic.iterations) {
                gemm_symmetric(gram, factor, swap_buffer);
                gemm_symmetric(swap_buffer, factor, gram);
            }
        }
        pack(normalized, 1, n, n, m, panels.get());
        gemm<false>(product.get(), M, 1, m, m, panels.get(), n, to, N);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) x[i * row_stride + j * column_stride] = to[size_t(i) * N + j];
    }

  private:
    const int m, n, M, N;
    const Quintic quintic;
    Buffer<float> scaled, result, panels;                      // (m, n), (m, N)
    Buffer<float> gram, square, factor, product, swap_buffer;  // (m, M)

    // c = a b for a symmetric c, with b packed as (k, m) in `panels`: computes the upper triangle and mirrors it.
    void symmetric_product(const float* a, long lda, int k, Buffer<float>& to) {
        float *c = to.get(), *b = panels.get();
        for (int first = 0; first < m; first += PANEL, b += size_t(k) * PANEL) {
            const int last = std::min(first + PANEL, m);
            int i = 0;
            for (; i + KERNEL_ROWS <= last; i += KERNEL_ROWS)
                micro_kernel<KERNEL_ROWS, false>(a + i * lda, lda, 1, k, b, c + size_t(i) * M + first, M, nullptr);
            remaining_rows<KERNEL_ROWS - 1, false>(last - i, a + i * lda, lda, 1, k, b, c + size_t(i) * M + first, M,
                                                   nullptr);
        }
        for (int block_row = 0; block_row < m; block_row += PANEL)
            for (int block_column = 0; block_column <= block_row; block_column += PANEL)
                for (int j = block_column; j < std::min(block_column + PANEL, m); ++j)
                    for (int i = std::max(block_row, j + 1); i < std::min(block_row + PANEL, m); ++i)
                        c[size_t(i) * M + j] = c[size_t(j) * M + i];
    }
    void gemm_symmetric(const Buffer<float>& a, const Buffer<float>& b, Buffer<float>& to) {
        pack(b.get(), 1, M, m, m, panels.get());
        symmetric_product(a.get(), M, m, to);
    }
};

// The same with bf16 GEMMs.
class NewtonSchulzBF16 {
  public:
    NewtonSchulzBF16(int rows, int columns, const Quintic& quintic)
        : m(rows), n(columns), M(int(round_up_panel(rows))), N(int(round_up_panel(columns))), quintic(quintic) {
        for (Buffer<float>* buffer : {&gram, &square}) buffer->ensure(size_t(M) * M);
        for (Buffer<float>* buffer : {&current, &update}) buffer->ensure(size_t(M) * N);
        x_bf16.ensure(size_t(M) * N), factor.ensure(size_t(M) * M), panels.ensure(size_t(M) * N);
    }

    // x: (m, n), overwritten.
    void orthogonalize(float* x, long row_stride, long column_stride) {
        float *x_f32 = current.get(), *g = gram.get(), *s = square.get(), *c = update.get();
        const size_t size = size_t(m) * N, square_size = size_t(m) * M;
        std::fill_n(x_f32, size, 0.0f);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) x_f32[size_t(i) * N + j] = x[i * row_stride + j * column_stride];
        const float scale = inverse_norm(x_f32, size);
        for (size_t i = 0; i < size; ++i) x_f32[i] *= scale;
        for (int iteration = 0; iteration < quintic.iterations; ++iteration) {
            convert_to_bf16(x_f32, size, x_bf16.get());
            pack_columns(x_bf16.get(), N, m, N, panels.get());
            gemm<false>(x_bf16.get(), N, m, N, panels.get(), M, g, M);
            convert_to_bf16(g, square_size, factor.get());
            pack_rows(factor.get(), M, m, M, panels.get(), size_t(M) * PANEL);
            gemm<false>(factor.get(), M, m, M, panels.get(), M, s, M);
            for (size_t i = 0; i < square_size; ++i) s[i] = quintic.b * g[i] + quintic.c * s[i];
            convert_to_bf16(s, square_size, factor.get());
            pack_rows(x_bf16.get(), N, m, N, panels.get(), size_t(M) * PANEL);
            gemm<false>(factor.get(), M, m, M, panels.get(), N, c, N);
            for (size_t i = 0; i < size; ++i) x_f32[i] = quintic.a * x_f32[i] + c[i];
        }
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) x[i * row_stride + j * column_stride] = x_f32[size_t(i) * N + j];
    }

  private:
    const int m, n, M, N;
    const Quintic quintic;
    Buffer<float> current, update, gram, square;  // (m, N), (m, N), (m, M), (m, M)
    Buffer<BF16> x_bf16, factor, panels;
};

// matrices: (count, rows, columns), overwritten. A tall matrix is transposed by swapping its strides.
template <typename Method>
void orthogonalize_all(float* matrices, int count, int rows, int columns, const Quintic& quintic, int threads) {
    const bool tall = rows > columns;
    threads = std::max(1, std::min(threads, count));
    std::vector<std::unique_ptr<Method>> workers;
    while (int(workers.size()) < threads)
        workers.push_back(std::make_unique<Method>(std::min(rows, columns), std::max(rows, columns), quintic));
    ExceptionCollector exceptions;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int worker = 0; worker < threads; ++worker)
        exceptions.run([&] {
            const AmxTileScope amx;
            for (int i = worker; i < count; i += threads)
                workers[worker]->orthogonalize(matrices + size_t(i) * rows * columns, tall ? 1 : columns,
                                               tall ? columns : 1);
        });
    exceptions.rethrow();
}

}  // namespace heedful
