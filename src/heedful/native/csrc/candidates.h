// The candidates of a softmax: all rows of the output matrix, or a sample of them (sampled softmax, Jean et al., 2015).
#pragma once

#include <vector>

#include "batch.h"
#include "gemm_bf16.h"
#include "parallel.h"

namespace heedful::train {

struct OutputMatrix {  // of logits: (rows, D), and its bias (rows) or null
    const float *weight = nullptr, *bias = nullptr;
    int rows = 0, width = 0;
};

// The output matrix as the losses of one batch need it. GEMM operands are of type Scalar.
template <typename Scalar>
class Candidates {
  public:
    OutputMatrix matrix;
    std::vector<float> mean;   // (D): the mean of all rows of the output matrix, for label smoothing
    float mean_bias = 0;
    Buffer<float> logit_bias;  // (C), padded with large negative numbers
    Buffer<Scalar> panels[2];  // of the candidates' rows, for forward and backward

    void pack(const OutputMatrix& output, const Batch& batch, int threads) {
        matrix = output;
        pack_rows_of(batch, threads);
        if (batch.label_smoothing > 0) compute_means(threads);
    }

  private:
    void pack_rows_of(const Batch& batch, int threads) {
        const int D = matrix.width, C = batch.candidate_count, P = int(round_up_panel(C));
        Scalar* forward = panels[0].ensure(size_t(P) * D);
        Scalar* backward = panels[1].ensure(round_up_panel(D) * P);
        float* bias = logit_bias.ensure(P);
        for (int c = 0; c < P; ++c) {
            bias[c] = c < C ? (batch.logit_bias ? batch.logit_bias[c] : 0.0f) : -1e30f;
            if (c < C && matrix.bias) bias[c] += matrix.bias[batch.candidate(c)];
        }
        struct Workspace {
            Buffer<Scalar> rows;
            Buffer<float> embeddings;
        };
        parallel_for_with(P / PANEL, threads, [] { return Workspace(); }, [&](Workspace& own, size_t number) {
            const int first = int(number) * PANEL;
            float* panel = own.embeddings.ensure(size_t(PANEL) * D);
            for (int c = first; c < first + PANEL; ++c, panel += D)
                if (c < C)
                    std::memcpy(panel, matrix.weight + size_t(batch.candidate(c)) * D, D * sizeof(float));
                else
                    std::fill_n(panel, D, 0.0f);
            const size_t size = size_t(PANEL) * D;
            const Scalar* rows = as_operand<Scalar>(own.embeddings.get(), size, own.rows.ensure(size));
            pack_columns(rows, D, PANEL, D, forward + size_t(first) * D);
            pack_rows(rows, D, PANEL, D, backward + size_t(first) * PANEL, size_t(P) * PANEL);
        });
    }

    void compute_means(int threads) {
        const int D = matrix.width;
        mean.resize(D);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int first = 0; first < D; first += LANES) {
            double total[LANES] = {};
            for (int v = 0; v < matrix.rows; ++v)
                for (int j = 0; j < LANES; ++j) total[j] += matrix.weight[size_t(v) * D + first + j];
            for (int j = 0; j < LANES; ++j) mean[first + j] = float(total[j] / matrix.rows);
        }
        double bias = 0;
        for (int v = 0; matrix.bias && v < matrix.rows; ++v) bias += matrix.bias[v];
        mean_bias = float(bias / matrix.rows);
    }
};

}  // namespace heedful::train
