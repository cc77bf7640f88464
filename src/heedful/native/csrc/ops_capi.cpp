// The operations of ops.h and activations.h as C functions, for the tests: each computes its forward and its backward pass.
// Gradients are accumulated into. Only tests/native/test_ops.py calls them.

#include <vector>

#include "gemm_bf16.h"
#include "ops.h"

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
    gemm<false>(a, in, rows, in, forward.get(), out, y, out, bias);
    gemm<true>(d, out, rows, out, backward.get(), in, dx, in);
    gemm_tn_add(d, out, rows, out, panels.get(), in, d_weight, transposed);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// x Wᵀ + b; y and dx have space for whole tiles of rows.
void heedful_op_linear(int32_t bf16, const float* x, int32_t rows, int32_t in, const float* weight, const float* bias,
                       int32_t out, float* y, const float* dy, float* dx, float* d_weight, float* d_bias) {
    const AmxTileScope amx;
    (bf16 ? linear<BF16> : linear<float>)(x, rows, in, weight, bias, out, y, dy, dx, d_weight);
    add_rows(dy, rows, out, d_bias);
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
