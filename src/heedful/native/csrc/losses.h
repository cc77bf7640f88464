// The loss of a group of sentences together with its gradients, so that few logits exist at a time.
#pragma once

#include "candidates.h"
#include "ops.h"
#include "tensor.h"

namespace heedful::train {

constexpr size_t MAX_LOGITS = 1 << 17;   // of a chunk of rows
constexpr int MIN_CHUNK_ROWS = 32;       // rows of a chunk, at least
constexpr int CHUNK_CANDIDATES = 512;    // candidates of a chunk of columns

// What a pointer-generator (See et al., 2017) adds to the loss of each token: its label is generated with probability
// p_gen · softmax, or copied with (1 - p_gen) · copied.
struct CopyMixture {
    std::vector<float> gate;    // (N): the logit of p_gen
    std::vector<float> copied;  // (N): the probability of the label in the copy distribution
    std::vector<float> share;   // (N), written by Losses: the part of the label's probability that is generated

    float log_p_gen(int row) const { return -softplus(-gate[row]); }
    float log_p_copy(int row) const { return -softplus(gate[row]); }

    // The negative log-likelihood of a label that the vocabulary distribution gives this log-probability.
    float nll(int row, float log_generated) {
        const float generated = log_p_gen(row) + log_generated;
        const float copy = copied[row] > 0 ? log_p_copy(row) + std::log(copied[row]) : -INF;
        const float largest = std::max(generated, copy);
        const float total = largest + std::log(std::exp(generated - largest) + std::exp(copy - largest));
        share[row] = std::exp(generated - total);
        return -total;
    }

  private:
    static float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }
};

// Cross-entropy over the candidates with label smoothing, and R-Drop's divergence between two passes.
template <typename Scalar>
class Losses {
  public:
    // candidate_grads, (C, D), are accumulated into.
    Losses(const Candidates<Scalar>& candidates, const Batch& batch, Workspace<Scalar>& workspace, float* candidate_grads)
        : hidden_sum(candidates.matrix.width), candidate_grads(candidate_grads), candidates(candidates), batch(batch),
          D(candidates.matrix.width), workspace(workspace), arena(workspace.arena), packer(workspace) {
        if (candidates.matrix.bias) bias_grads.resize(round_up_panel(batch.candidate_count));
    }

    std::vector<double> hidden_sum;  // (D): the sum of all hidden states; label smoothing's gradient of each output row
    std::vector<float> bias_grads;   // (C), padded; empty without an output bias
    float* const candidate_grads;    // (C, D)
    double smoothed_loss = 0, nll = 0, tokens = 0;

    // x: hidden states (N, D); dx: their gradient, accumulated into. With a mixture, label smoothing is that of the
    // vocabulary distribution.
    void add(const Tensor& x, float* dx, const int32_t* labels, const std::vector<Span>& spans,
             CopyMixture* copies = nullptr) {
        mixture = copies;
        if (batch.rdrop > 0)
            rdrop(x, dx, labels, spans);
        else if constexpr (std::is_same_v<Scalar, BF16>)
            cross_entropy_by_candidates(x, dx, labels);
        else
            cross_entropy_by_rows(x, dx, labels);
    }

  private:
    const Candidates<Scalar>& candidates;
    const Batch& batch;
    const int D;
    Workspace<Scalar>& workspace;
    Arena& arena;
    OperandPacker<Scalar> packer;
    CopyMixture* mixture = nullptr;

    // Chunks of rows: all logits of a few rows at a time.
    void cross_entropy_by_rows(const Tensor& x, float* dx, const int32_t* labels) {
        const int C = batch.candidate_count, P = int(round_up_panel(C));
        const int chunk_rows = std::max(MIN_CHUNK_ROWS, int(MAX_LOGITS / P));
        float* logits = arena.allocate(size_t(std::min(chunk_rows, x.rows)) * P);
        for (int first = 0; first < x.rows; first += chunk_rows) {
            const int rows = std::min(chunk_rows, x.rows - first);
            const float* hidden = x.value + size_t(first) * D;
            float* d_hidden = dx + size_t(first) * D;
            gemm<false>(hidden, D, rows, D, candidates.panels[0].get(), P, logits, P, candidates.logit_bias.get());
            for (int r = 0; r < rows; ++r) {
                float* row = logits + size_t(r) * P;
                const int label = labels[first + r];
                const float max_logit = max_value(row, C), label_logit = row[label];
                const float total = sum_exp<false>(row, C, max_logit);
                const float share = add_token(hidden + size_t(r) * D, d_hidden + size_t(r) * D, first + r,
                                              max_logit + std::log(total), label_logit, 1);
                const float inverse = softmax_weight(share) / total;
                for (int i = 0; i < C; ++i) row[i] *= inverse;
                std::fill(row + C, row + P, 0.0f);
                row[label] -= (1 - batch.label_smoothing) * share;
            }
            if (candidates.matrix.bias) heedful::add_rows(logits, rows, P, bias_grads.data());
            gemm<true>(logits, P, rows, P, candidates.panels[1].get(), D, d_hidden, D);
            gemm_tn_add(logits, P, rows, C, packer.panels(hidden, rows, D), D, candidate_grads, workspace.transposed);
        }
    }

    // Chunks of candidates: some logits of all rows at a time, so that the candidates' gradients are read and written once.
    // The logits of several chunks are computed twice, first for the maximum of each row; e^(logit - maximum) is what is stored.
    void cross_entropy_by_candidates(const Tensor& x, float* dx, const int32_t* labels) {
        const int P = int(round_up_panel(batch.candidate_count)), N = x.rows;
        const Scalar* hidden = packer.persistent_rows(x);
        Scalar* exps = arena.template allocate<Scalar>(round_up_tile(N) * P);
        float* d_hidden = arena.allocate(round_up_tile(N) * D);
        std::vector<float> label_logit(N), total(N);
        const std::vector<float> max_logit = max_logits(hidden, N, labels, label_logit);
        std::fill_n(d_hidden, size_t(N) * D, 0.0f);
        for_each_chunk(hidden, N, true, [&](int first, int width, const float* logits, long ld) {
            for (int r = 0; r < N; ++r)
                total[r] += store_exps(logits + r * ld, width, max_logit[r], exps + size_t(r) * P + first);
            clear_labels(labels, first, width, N, exps);
            add_hidden_grad(exps, first, width, N, d_hidden);
        });
        for (int r = 0; r < N; ++r) {
            const float* row = x.value + size_t(r) * D;
            float *to = dx + size_t(r) * D, *from = d_hidden + size_t(r) * D;
            const float share = add_token(row, to, r, max_logit[r] + std::log(total[r]), label_logit[r], 1);
            const float inverse = softmax_weight(share) / total[r];
            axpy(to, from, inverse, D);
            add_label_grad(labels[r], row, to,
                           std::exp(label_logit[r] - max_logit[r]) * inverse - (1 - batch.label_smoothing) * share);
            for (int j = 0; j < D; ++j) from[j] = row[j] * inverse;
            add_bias_grads(exps + size_t(r) * P, inverse);
        }
        add_candidate_grads(exps, packer.temporary_rows(d_hidden, x), N);
    }

    // R-Drop (Liang et al., 2021): each sentence is there twice with different dropout masks. The loss is half of the
    // cross-entropy of both passes plus alpha / 4 times KL(p, q) + KL(q, p) of each token's distributions p and q. The
    // gradient of KL(p, q) by the logits of p is p (log p - log q - KL); that of KL(q, p) is p - q.
    void rdrop(const Tensor& x, float* dx, const int32_t* labels, const std::vector<Span>& spans) {
        const int P = int(round_up_panel(batch.candidate_count)), N = x.rows;
        const float weight = batch.rdrop / 4;
        const Scalar* hidden = packer.persistent_rows(x);
        Scalar* d_logits = arena.template allocate<Scalar>(round_up_tile(N) * P);
        float* d_hidden = arena.allocate(round_up_tile(N) * D);
        std::vector<int> other(N);  // the row of the same token in the other pass
        for (size_t s = 0; s < spans.size(); s += 2)
            for (int i = 0; i < spans[s].count; ++i) {
                const int first = spans[s].first + i, second = spans[s + 1].first + i;
                other[first] = second, other[second] = first;
            }
        std::vector<float> label_logit(N), total(N), difference(N), logsumexp(N), kl(N);
        const std::vector<float> max_logit = max_logits(hidden, N, labels, label_logit);
        for_each_chunk(hidden, N, true, [&](int, int width, const float* logits, long ld) {
            for (int r = 0; r < N; ++r) {
                const float *row = logits + r * ld, *other_row = logits + other[r] * ld;
                VecF32 sums{}, differences{};
                for (int i = 0; i < width; i += LANES) {
                    const VecF32 e = exp_nonpositive(load(row + i) - max_logit[r]);
                    sums += e;
                    differences = fmadd(e, load(row + i) - load(other_row + i), differences);
                }
                total[r] += reduce_sum(sums), difference[r] += reduce_sum(differences);
            }
        });
        for (int r = 0; r < N; ++r) logsumexp[r] = max_logit[r] + std::log(total[r]);
        for (int r = 0; r < N; ++r) kl[r] = difference[r] / total[r] - (logsumexp[r] - logsumexp[other[r]]);
        std::fill_n(d_hidden, size_t(N) * D, 0.0f);
        for_each_chunk(hidden, N, true, [&](int first, int width, const float* logits, long ld) {
            for (int r = 0; r < N; ++r)
                for (int i = 0; i < width; i += PANEL) {
                    VecF32 d[2];
                    for (int half = 0; half < 2; ++half) {
                        const int at = i + half * LANES;
                        const VecF32 log_p = load(logits + r * ld + at) - logsumexp[r];
                        const VecF32 log_q = load(logits + other[r] * ld + at) - logsumexp[other[r]];
                        const VecF32 p = exp_nonpositive(log_p), q = exp_nonpositive(log_q);
                        d[half] = p * 0.5f + weight * (p * (log_p - log_q - kl[r]) + p - q);
                    }
                    store_panel(d_logits + size_t(r) * P + first + i, d[0], d[1]);
                }
            clear_labels(labels, first, width, N, d_logits);
            add_hidden_grad(d_logits, first, width, N, d_hidden);
        });
        for (int r = 0; r < N; ++r) {
            const float* row = x.value + size_t(r) * D;
            float* to = dx + size_t(r) * D;
            add_token(row, to, r, logsumexp[r], label_logit[r], 0.5f);
            smoothed_loss += double(weight) * kl[r];
            axpy(to, d_hidden + size_t(r) * D, 1, D);
            add_bias_grads(d_logits + size_t(r) * P, 1);
            const float log_p = label_logit[r] - logsumexp[r], log_q = label_logit[other[r]] - logsumexp[other[r]];
            const float p = std::exp(log_p), q = std::exp(log_q);
            add_label_grad(labels[r], row, to,
                           0.5f * (p - (1 - batch.label_smoothing)) + weight * (p * (log_p - log_q - kl[r]) + p - q));
        }
        add_candidate_grads(d_logits, hidden, N);
    }

    // Computes the logits of one chunk of candidates after another; they are valid until the next. If `again`, those of a
    // single chunk are still there.
    template <typename Work>
    void for_each_chunk(const Scalar* hidden, int N, bool again, Work work) {
        const int P = int(round_up_panel(batch.candidate_count)), W = std::min(CHUNK_CANDIDATES, P);
        float* logits = workspace.logits.ensure(round_up_tile(N) * W);
        for (int first = 0; first < P; first += W) {
            const int width = std::min(W, P - first);
            if (!again || P > W)
                gemm<false>(hidden, D, N, D, candidates.panels[0].get() + size_t(first) * D, width, logits, W,
                            candidates.logit_bias.get() + first);
            work(first, width, logits, W);
        }
    }

    // The largest logit of each row; label_logit receives that of its label.
    std::vector<float> max_logits(const Scalar* hidden, int N, const int32_t* labels, std::vector<float>& label_logit) {
        std::vector<float> result(N, -INF);
        for_each_chunk(hidden, N, false, [&](int first, int width, const float* logits, long ld) {
            for (int r = 0; r < N; ++r) {
                const float* row = logits + r * ld;
                result[r] = std::max(result[r], max_value(row, width));
                if (labels[r] >= first && labels[r] < first + width) label_logit[r] = row[labels[r] - first];
            }
        });
        return result;
    }

    // to += d_logits of one chunk times the embeddings of its candidates
    void add_hidden_grad(const Scalar* d_logits, int first, int width, int N, float* to) {
        const int P = int(round_up_panel(batch.candidate_count));
        gemm<true>(d_logits + first, P, N, width, candidates.panels[1].get() + size_t(first) * PANEL, D, to, D, nullptr,
                   size_t(P) * PANEL);
    }

    // candidate_grads += d_logitsᵀ times the rows
    void add_candidate_grads(const Scalar* d_logits, const Scalar* rows, int N) {
        const int P = int(round_up_panel(batch.candidate_count));
        const Scalar* panels = packer.panels(rows, N, D);
        for (int first = 0; first < P; first += CHUNK_CANDIDATES)
            gemm_tn_add(d_logits + first, P, N, std::min(CHUNK_CANDIDATES, P - first), panels, D,
                        candidate_grads + size_t(first) * D, workspace.transposed);
    }

    // Adds the loss of one token, `weight` times, and the gradient of label smoothing by its hidden state -> the part of the
    // label's probability that is generated, 1 without a mixture.
    float add_token(const float* hidden, float* d_hidden, int row, float logsumexp, float label_logit, float weight) {
        const double token_nll = mixture ? mixture->nll(row, label_logit - logsumexp) : double(logsumexp) - label_logit;
        nll += weight * token_nll, tokens += weight;
        if (batch.label_smoothing <= 0) {
            smoothed_loss += weight * token_nll;
        } else {
            const double mean_logit = dot(hidden, candidates.mean.data(), D) + candidates.mean_bias;
            smoothed_loss += weight * (token_nll + batch.label_smoothing * (double(logsumexp) - token_nll - mean_logit));
            axpy(d_hidden, candidates.mean.data(), -weight * batch.label_smoothing, D);
            for (int j = 0; j < D; ++j) hidden_sum[j] += weight * hidden[j];
        }
        return mixture ? mixture->share[row] : 1.0f;
    }
    // The factor of the softmax in the gradient of the logits.
    float softmax_weight(float share) const { return 1 - (1 - batch.label_smoothing) * (1 - share); }

    // Clears the labels' entries of a chunk. The gradient of a label that the model is sure of is a small difference of
    // large numbers, which must not be rounded to bf16 first; `add_label_grad` adds it in float32.
    void clear_labels(const int32_t* labels, int first, int width, int N, Scalar* d_logits) const {
        const int P = int(round_up_panel(batch.candidate_count));
        for (int r = 0; r < N; ++r)
            if (labels[r] >= first && labels[r] < first + width) d_logits[size_t(r) * P + labels[r]] = Scalar{};
    }

    // Backward through the logit of a label: to the hidden state, and to the label's embedding.
    void add_label_grad(int label, const float* hidden, float* d_hidden, float d_logit) {
        axpy(d_hidden, candidates.matrix.weight + size_t(batch.candidate(label)) * D, d_logit, D);
        axpy(candidate_grads + size_t(label) * D, hidden, d_logit, D);
        if (candidates.matrix.bias) bias_grads[label] += d_logit;
    }

    // bias_grads += scale times one row of d_logits
    void add_bias_grads(const Scalar* d_logits, float scale) {
        for (size_t i = 0; i < bias_grads.size(); ++i) bias_grads[i] += to_float(d_logits[i]) * scale;
    }

    // Stores e^(x[i] - shift) -> their sum.
    static float store_exps(const float* x, int n, float shift, Scalar* to) {
        VecF32 sums{};
        for (int i = 0; i < n; i += PANEL) {
            const VecF32 first = exp_nonpositive(load(x + i) - shift), second = exp_nonpositive(load(x + i + LANES) - shift);
            sums += first + second;
            store_panel(to + i, first, second);
        }
        return reduce_sum(sums);
    }
};

// The gradients of the output matrix and its bias, which `losses` of several threads have accumulated by candidate, and those
// of label smoothing. d_bias may be null.
template <typename Scalar>
void add_output_gradients(const OutputMatrix& matrix, const Batch& batch, int threads,
                          const std::vector<const Losses<Scalar>*>& losses, float* d_weight, float* d_bias) {
    const int D = matrix.width, C = batch.candidate_count;
    if (batch.label_smoothing > 0) {
        const double share = double(batch.label_smoothing) / matrix.rows;
        std::vector<float> smoothing_grad(D);
        for (int j = 0; j < D; ++j)
            for (const Losses<Scalar>* loss : losses) smoothing_grad[j] -= float(share * loss->hidden_sum[j]);
#pragma omp parallel for num_threads(threads)
        for (int v = 0; v < matrix.rows; ++v) axpy(d_weight + size_t(v) * D, smoothing_grad.data(), 1.0f, D);
        for (const Losses<Scalar>* loss : losses)
            for (int v = 0; d_bias && v < matrix.rows; ++v) d_bias[v] -= float(share * loss->tokens);
    }
    for (const Losses<Scalar>* loss : losses) {
#pragma omp parallel for num_threads(threads)
        for (int c = 0; c < C; ++c)
            axpy(d_weight + size_t(batch.candidate(c)) * D, loss->candidate_grads + size_t(c) * D, 1.0f, D);
        for (int c = 0; d_bias && c < C; ++c) d_bias[batch.candidate(c)] += loss->bias_grads[c];
    }
}

}  // namespace heedful::train
