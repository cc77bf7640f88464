// The operations of ops.h, activations.h and losses.h as C functions, for the tests: each computes its forward and its
// backward pass. Gradients are accumulated into. Only tests/native/test_ops.py calls them.

#include "gemm_shortlist.h"
#include "losses.h"

using namespace heedful;

namespace {

template <typename Scalar>
void linear(const float* x, int rows, int in, const float* weight, const float* bias, int out, float* y, const float* dy,
            float* dx, float* d_weight) {
    Buffer<Scalar> forward, backward, row_buffer, weight_buffer, grad_buffer, panels, transposed;
    const size_t depth = gemm_depth<Scalar>(rows);
    const Scalar* w = as_operand<Scalar>(weight, size_t(in) * out, weight_buffer.ensure(size_t(in) * out));
    const Scalar* a = as_operand<Scalar>(x, size_t(rows) * in, row_buffer.ensure(round_up_tile(rows) * in));
    const Scalar* d = as_operand<Scalar>(dy, size_t(rows) * out, grad_buffer.ensure(round_up_tile(rows) * out));
    pack_columns(w, in, out, in, forward.ensure(round_up_panel(out) * in));
    pack_rows(w, in, out, in, backward.ensure(round_up_panel(in) * out), size_t(out) * PANEL);
    pack_rows(a, in, rows, in, panels.ensure(round_up_panel(in) * depth), depth * PANEL);
    Buffer<float> padded_y, padded_dx;  // a GEMM may write whole tiles of rows
    gemm<false>(a, in, rows, in, forward.get(), out, padded_y.ensure(round_up_tile(rows) * out), out, bias);
    std::copy_n(dx, size_t(rows) * in, padded_dx.ensure(round_up_tile(rows) * in));
    gemm<true>(d, out, rows, out, backward.get(), in, padded_dx.get(), in);
    std::copy_n(padded_y.get(), size_t(rows) * out, y), std::copy_n(padded_dx.get(), size_t(rows) * in, dx);
    gemm_tn_add(d, out, rows, out, panels.get(), in, d_weight, transposed);
}

// As in a training step, each thread has sentences, losses and gradients of candidates of its own.
template <typename Scalar>
void cross_entropy(const train::OutputMatrix& matrix, const train::Batch& batch, int threads, float* x, float* dx,
                   float* d_weight, float* d_bias, double* sums) {
    const size_t D = matrix.width, unit = batch.rdrop > 0 ? 2 : 1, units = batch.sentences / unit;
    train::Candidates<Scalar> candidates;
    candidates.pack(matrix, batch, threads);
    std::vector<train::Workspace<Scalar>> workspaces(threads);
    std::vector<std::vector<float>> grads(threads, std::vector<float>(round_up_panel(batch.candidate_count) * D));
    std::vector<std::unique_ptr<train::Losses<Scalar>>> losses;
    std::vector<const train::Losses<Scalar>*> all;
    for (int i = 0; i < threads; ++i) {
        losses.push_back(std::make_unique<train::Losses<Scalar>>(candidates, batch, workspaces[i], grads[i].data()));
        all.push_back(losses.back().get());
    }
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; ++i) {
        const AmxTileScope amx;
        int first = 0, rows = 0;
        std::vector<train::Span> spans;
        for (size_t s = 0; s < units * (i + 1) / threads * unit; ++s)
            if (s < units * i / threads * unit)
                first += batch.target_lengths[s];
            else
                spans.push_back({rows, batch.target_lengths[s]}), rows += batch.target_lengths[s];
        if (rows) losses[i]->add({x + first * D, nullptr, rows, int(D)}, dx + first * D, batch.labels + first, spans);
    }
    train::add_output_gradients(matrix, batch, threads, all, d_weight, d_bias);
    for (const auto& loss : losses) sums[0] += loss->smoothed_loss, sums[1] += loss->nll;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// x Wᵀ + b.
void heedful_op_linear(int32_t bf16, const float* x, int32_t rows, int32_t in, const float* weight, const float* bias,
                       int32_t out, float* y, const float* dy, float* dx, float* d_weight, float* d_bias) {
    const AmxTileScope amx;
    (bf16 ? linear<BF16> : linear<float>)(x, rows, in, weight, bias, out, y, dy, dx, d_weight);
    add_rows(dy, rows, out, d_bias);
}

// The largest magnitude of an int8 weight in a GEMM of this library.
int32_t heedful_max_packed_weight() { return MAX_PACKED; }

// x Wᵀ + b of an inference GEMM in int8, and the columns `ids` of it by the GEMM of shortlists.
void heedful_op_linear_int8(const float* x, int32_t rows, int32_t in, const float* weight, const float* bias, int32_t out,
                            int32_t threads, float* y, const int32_t* ids, int32_t count, float* y_shortlist) {
    const WeightTensor weights{weight, nullptr, nullptr, int64_t(in) * out}, biases{bias, nullptr, nullptr, out};
    PackedMatrix matrix;
    matrix.allocate(out, in, true);
    matrix.load_weight(weights, 0), matrix.load_bias(biases, 0);
    ShortlistMatrix shortlist;
    shortlist.allocate(out, in, true);
    shortlist.load_weight(weights), shortlist.load_bias(biases);
    Activations activations;
    activations.assign(x, rows, in, true, threads);
    matrix.gemm(activations, y, threads);
    shortlist.gemm(activations, {ids, ids + count}, y_shortlist, threads);
}

void heedful_op_layer_norm(const float* x, int32_t rows, int32_t width, const float* scale, const float* bias,
                           float epsilon, float* y, const float* dy, float* dx, float* d_scale, float* d_bias) {
    std::vector<RowStats> stats(rows);
    layer_norm_forward(x, rows, width, scale, bias, epsilon, y, stats.data());
    layer_norm_backward(x, stats.data(), dy, rows, width, scale, dx, d_scale, d_bias);
}

void heedful_op_activation(int32_t kind, const float* x, int32_t count, float* y, const float* dy, float* dx) {
    std::vector<float> derivative(count);
    activation_forward(kind, x, count, y, derivative.data());
    activation_backward(derivative.data(), dy, count, dx);
}

// gate and up are overwritten.
void heedful_op_silu_mul(float* gate, float* up, int32_t count, float* y, const float* dy, float* d_gate, float* d_up) {
    silu_mul_forward<true>(gate, up, count, y);
    silu_mul_backward(gate, up, dy, count, d_up, d_gate);
}

// types, their table and the positions may be null.
void heedful_op_embedding(const int32_t* ids, const int32_t* types, int32_t count, const float* tokens,
                          const float* type_table, const float* positions, float scale, int32_t width, float rate,
                          uint64_t seed, float* x, const float* dx, float* d_tokens, float* d_types, float* d_positions) {
    const EmbeddingTables tables{tokens, type_table, positions, scale, width};
    DropoutRng forward(seed, 0, 0, rate), backward = forward;
    embedding_forward(tables, ids, types, count, forward, x);
    embedding_backward(tables, ids, types, count, backward, dx, {d_tokens, d_types, d_positions});
}

// Softmax cross-entropy of `sentences` hidden states x, over all rows of the output matrix or over candidates, with label
// smoothing and R-Drop -> the sums of the smoothed loss and of the negative log-likelihood.
void heedful_op_cross_entropy(int32_t bf16, int32_t threads, float* x, const int32_t* lengths, int32_t sentences,
                              const float* weight, const float* bias, int32_t vocabulary, int32_t width,
                              const int32_t* labels, const int32_t* candidates, const float* logit_bias,
                              int32_t candidate_count, float label_smoothing, float rdrop, float* dx, float* d_weight,
                              float* d_bias, double* sums) {
    train::Batch batch{};
    batch.target_lengths = lengths, batch.sentences = sentences, batch.labels = labels;
    batch.candidates = candidates, batch.logit_bias = logit_bias, batch.candidate_count = candidate_count;
    batch.label_smoothing = label_smoothing, batch.rdrop = rdrop;
    const auto compute = bf16 ? cross_entropy<BF16> : cross_entropy<float>;
    compute({weight, bias, vocabulary, width}, batch, threads, x, dx, d_weight, d_bias, sums);
}

// x and its gradient are rotated in place.
void heedful_op_rotary(float* x, float* dx, int32_t heads, int32_t head_width, const float* angles) {
    apply_rotary<false>(x, heads, head_width, angles);
    apply_rotary<true>(dx, heads, head_width, angles);
}

// z = x + dropout(y), in y; dz -> dx, accumulated into, and dy.
void heedful_op_dropout_add(const float* x, float* y, int32_t count, float rate, uint64_t seed, const float* dz, float* dx,
                            float* dy) {
    const DropoutRng rng(seed, 0, 0, rate);
    dropout_add_forward(x, y, count, rng);
    dropout_add_backward(dz, count, rng, dx, dy);
}

// One head; rows of all matrices are `stride` apart.
void heedful_op_attention(int32_t queries, int32_t keys, int32_t width, int32_t stride, int32_t causal, float slope,
                          float dropout, uint64_t seed, const float* query, const float* key, const float* value,
                          float* output, const float* d_output, float* d_query, float* d_key, float* d_value) {
    const AttentionShape shape{queries, keys, width, stride, causal != 0, slope, dropout};
    const DropoutRng rng(seed, 0, 0, dropout);
    std::vector<float> weights(shape.weights_size());
    Buffer<float> scratch;
    attention_forward(shape, query, key, value, rng, weights.data(), output, scratch);
    attention_backward(shape, query, key, value, weights.data(), rng, d_output, d_query, d_key, d_value, scratch);
}
}
#pragma GCC visibility pop
