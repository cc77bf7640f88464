// The tape of reverse-mode differentiation: each operation computes its forward pass and records its backward pass.
#pragma once

#include <functional>

#include "losses.h"

namespace heedful::train {

// Records one group of sentences after another. GEMMs with weights are computed in Scalar, everything else in float32.
template <typename Scalar>
class Tape {
  public:
    // weight_grads, all weights concatenated, and candidate_grads, (C, D), are accumulated into.
    Tape(const TransformerTrainer<Scalar>& trainer, const Batch& batch, Arena& arena, float* weight_grads,
         float* candidate_grads)
        : losses(trainer, batch, arena, candidate_grads), trainer(trainer), batch(batch), D(trainer.config.width),
          arena(arena), grads(arena), packer(arena), weight_grads(weight_grads) {}

    Losses<Scalar> losses;

    void start_group(uint64_t number) {
        group = number, site = 0;
        arena.reset(), grads.clear(), steps.clear();
    }
    void backward() {
        for (size_t i = steps.size(); i--;) steps[i]();
    }

    // Embeddings with positions, after dropout.
    Tensor embed(const int32_t* ids, const std::vector<Span>& spans) {
        const Tensor x = new_tensor(spans.back().first + spans.back().count, D);
        const float* table = trainer.weights[0];
        const TrainConfig& config = trainer.config;
        const uint64_t this_site = site++;
        DropoutRng rng(batch.seed, group, this_site);
        for (const Span& span : spans)
            for (int i = 0; i < span.count; ++i) {
                const float *from = table + size_t(ids[span.first + i]) * D, *position = trainer.positions + size_t(i) * D;
                float* to = x.value + size_t(span.first + i) * D;
                for (int j = 0; j < D; j += LANES)
                    store(to + j, dropout_mask(rng) *
                                      fmadd(load(from + j), broadcast(config.embedding_scale), load(position + j)));
            }
        steps.push_back([=] {
            DropoutRng rng(batch.seed, group, this_site);
            for (int i = 0; i < x.rows; ++i) {
                float* to = weight_grads + size_t(ids[i]) * D;
                const float* from = grad(x) + size_t(i) * D;
                for (int j = 0; j < D; j += LANES)
                    store(to + j, fmadd(load(from + j) * config.embedding_scale, dropout_mask(rng), load(to + j)));
            }
            free_grad(x);
        });
        return x;
    }

    // x Wᵀ + b
    Tensor linear(Tensor x, const Linear<Scalar>& layer) { return linears(x, {&layer})[0]; }

    // Several linear layers of one input, whose operands are packed once.
    std::vector<Tensor> linears(Tensor x, const std::vector<const Linear<Scalar>*>& layers) {
        const Scalar* rows = packer.persistent_rows(x);
        std::vector<Tensor> outputs;
        for (const Linear<Scalar>* layer : layers) {
            outputs.push_back(new_tensor(x.rows, layer->out));
            gemm<false>(rows, layer->in, x.rows, layer->in, layer->forward.get(), layer->out, outputs.back().value,
                        layer->out, trainer.weights[layer->bias]);
        }
        steps.push_back([=] {
            const Scalar* panels = packer.panels(rows, x.rows, x.width);
            for (size_t i = 0; i < layers.size(); ++i) {
                const Tensor& y = outputs[i];
                const int in = x.width, out = y.width;
                const Scalar *weight = layers[i]->backward.get(), *dy = packer.temporary_rows(grad(y), y);
                if (*x.grad)
                    gemm<true>(dy, out, y.rows, out, weight, in, *x.grad, in);
                else
                    gemm<false>(dy, out, y.rows, out, weight, in, *x.grad = grads.allocate(x.padded_size()), in);
                gemm_tn_add(dy, out, y.rows, out, panels, in, weight_grad(layers[i]->weight), packer.transposed);
                add_rows(grad(y), y.rows, out, weight_grad(layers[i]->bias));
                free_grad(y);
            }
        });
        return outputs;
    }

    // In place.
    Tensor relu(Tensor x) {
        for (size_t i = 0; i < x.size(); ++i) x.value[i] = std::max(x.value[i], 0.0f);
        steps.push_back([=] {
            float* dx = grad(x);
            for (size_t i = 0; i < x.size(); ++i) dx[i] = x.value[i] > 0 ? dx[i] : 0.0f;
        });
        return x;
    }

    // Layer normalization; the bias is the weight after `weight`.
    Tensor layer_norm(Tensor x, int weight) {
        const Tensor y = new_tensor(x.rows, D);
        float* stats = arena.allocate(2 * size_t(x.rows));  // mean and 1 / standard deviation of each row
        const float *scale = trainer.weights[weight], *bias = trainer.weights[weight + 1];
        for (int r = 0; r < x.rows; ++r) {
            const float* row = x.value + size_t(r) * D;
            VecF32 total{}, squares{};
            for (int j = 0; j < D; j += LANES) total += load(row + j);
            const float mean = reduce_sum(total) / D;
            for (int j = 0; j < D; j += LANES) {
                const VecF32 centered = load(row + j) - mean;
                squares = fmadd(centered, centered, squares);
            }
            const float inverse = 1 / std::sqrt(reduce_sum(squares) / D + trainer.config.norm_epsilon);
            stats[2 * r] = mean, stats[2 * r + 1] = inverse;
            for (int j = 0; j < D; j += LANES)
                store(y.value + size_t(r) * D + j,
                      fmadd((load(row + j) - mean) * inverse, load(scale + j), load(bias + j)));
        }
        steps.push_back([=] {
            float *d_scale = weight_grad(weight), *d_bias = weight_grad(weight + 1);
            float *dx = grad(x), *dy = grad(y);
            for (int r = 0; r < x.rows; ++r) {
                const float *row = x.value + size_t(r) * D, *from = dy + size_t(r) * D;
                const float mean = stats[2 * r], inverse = stats[2 * r + 1];
                VecF32 sum_dy{}, sum_dy_x{};
                for (int j = 0; j < D; j += LANES) {
                    const VecF32 normalized = (load(row + j) - mean) * inverse, d = load(from + j);
                    store(d_scale + j, fmadd(d, normalized, load(d_scale + j)));
                    store(d_bias + j, load(d_bias + j) + d);
                    sum_dy += d * load(scale + j);
                    sum_dy_x = fmadd(d * load(scale + j), normalized, sum_dy_x);
                }
                const float mean_dy = reduce_sum(sum_dy) / D, mean_dy_x = reduce_sum(sum_dy_x) / D;
                float* to = dx + size_t(r) * D;
                for (int j = 0; j < D; j += LANES) {
                    const VecF32 normalized = (load(row + j) - mean) * inverse;
                    const VecF32 centered = load(from + j) * load(scale + j) - mean_dy - normalized * mean_dy_x;
                    store(to + j, fmadd(centered, broadcast(inverse), load(to + j)));
                }
            }
            free_grad(y);
        });
        return y;
    }

    // x + dropout(y), in the memory of y.
    Tensor dropout_add(Tensor x, Tensor y) {
        const Tensor z{y.value, grads.new_slot(), y.rows, y.width};
        const uint64_t this_site = site++;
        DropoutRng rng(batch.seed, group, this_site);
        for (size_t i = 0; i < z.size(); i += LANES)
            store(z.value + i, fmadd(load(y.value + i), dropout_mask(rng), load(x.value + i)));
        steps.push_back([=] {
            DropoutRng rng(batch.seed, group, this_site);
            const float* dz = grad(z);
            float *dx = *x.grad, *dy = *y.grad = grads.allocate(y.padded_size());
            for (size_t i = 0; i < z.size(); i += LANES) {
                store(dy + i, load(dz + i) * dropout_mask(rng));
                if (dx) store(dx + i, load(dx + i) + load(dz + i));
            }
            if (dx)
                free_grad(z);
            else
                std::swap(*x.grad, *z.grad);
        });
        return z;
    }

    // softmax(Q Kᵀ / √d) V in each head of each sentence. The attention weights are kept for the backward pass.
    Tensor attention(Tensor query, Tensor key, Tensor value, const std::vector<Span>& queries,
                     const std::vector<Span>& keys, bool causal) {
        const Tensor output = new_tensor(query.rows, D);
        steps.push_back([=] { free_grad(output); });
        const int heads = trainer.config.heads, d = D / heads;
        const float scale = 1 / std::sqrt(float(d));
        for (size_t s = 0; s < queries.size(); ++s) {
            const int T = queries[s].count, S = keys[s].count, P = int(round_up_lanes(S));
            float* panels = workspace(std::max(round_up_panel(S) * d, round_up_panel(d) * S));
            for (int head = 0; head < heads; ++head) {
                const size_t q = size_t(queries[s].first) * D + head * d, k = size_t(keys[s].first) * D + head * d;
                float* weights = arena.allocate(size_t(T) * P);
                pack(key.value + k, D, 1, S, d, panels);
                gemm<false>(query.value + q, D, 1, T, d, panels, S, weights, P);
                for (int t = 0; t < T; ++t) {
                    float* row = weights + size_t(t) * P;
                    const int visible = causal ? t + 1 : S;
                    for (int i = 0; i < visible; ++i) row[i] *= scale;
                    const float inverse = 1 / sum_exp<false>(row, visible, max_value(row, visible));
                    for (int i = 0; i < visible; ++i) row[i] *= inverse;
                    std::fill(row + visible, row + P, 0.0f);
                }
                pack(value.value + k, 1, D, d, S, panels);
                gemm<false>(weights, P, 1, T, S, panels, d, output.value + q, D);
                steps.push_back([=] {
                    const int longest = std::max(S, T);
                    const size_t panel_size = std::max(round_up_panel(longest) * d, round_up_panel(d) * longest);
                    float* panels = workspace(panel_size + size_t(T) * P);
                    float* d_weights = panels + panel_size;  // (T, P)
                    pack(value.value + k, D, 1, S, d, panels);
                    gemm<false>(grad(output) + q, D, 1, T, d, panels, S, d_weights, P);
                    pack(grad(output) + q, 1, D, d, T, panels);
                    gemm<true>(weights, 1, P, S, T, panels, d, grad(value) + k, D);
                    for (int t = 0; t < T; ++t) {
                        float *row = d_weights + size_t(t) * P, *weight = weights + size_t(t) * P;
                        const float mean = dot(row, weight, P);
                        for (int i = 0; i < P; ++i) row[i] = (row[i] - mean) * weight[i] * scale;
                    }
                    pack(key.value + k, 1, D, d, S, panels);
                    gemm<true>(d_weights, P, 1, T, S, panels, d, grad(query) + q, D);
                    pack(query.value + q, 1, D, d, T, panels);
                    gemm<true>(d_weights, 1, P, S, T, panels, d, grad(key) + k, D);
                });
            }
        }
        return output;
    }

    // The loss of the hidden states x, and their gradient; see losses.h.
    void loss(Tensor x, const int32_t* labels, const std::vector<Span>& spans) { losses.add(x, grad(x), labels, spans); }

  private:
    const TransformerTrainer<Scalar>& trainer;
    const Batch& batch;
    const int D;
    Arena& arena;
    GradPool grads;
    OperandPacker<Scalar> packer;
    float* weight_grads;
    uint64_t group = 0, site = 0;  // with the seed, they determine the dropout masks
    std::vector<std::function<void()>> steps;
    Buffer<float> scratch;

    float* weight_grad(int weight) const { return weight_grads + trainer.offsets[weight]; }
    float* workspace(size_t count) { return scratch.ensure(count); }

    Tensor new_tensor(int rows, int width) {
        return {arena.allocate(round_up_tile(rows) * width), grads.new_slot(), rows, width};
    }

    // The gradient of x, zeros if there is none yet.
    float* grad(const Tensor& x) {
        if (!*x.grad) std::fill_n(*x.grad = grads.allocate(x.padded_size()), x.size(), 0.0f);
        return *x.grad;
    }
    void free_grad(const Tensor& x) { grads.release(*x.grad, x.padded_size()); }

    VecF32 dropout_mask(DropoutRng& rng) const {
        const float rate = trainer.config.dropout;
        return rate > 0 ? rng.mask(int32_t(rate * 2147483648.0), 1 / (1 - rate)) : broadcast(1.0f);
    }

    static void add_rows(const float* x, int rows, int width, float* to) {
        for (int r = 0; r < rows; ++r)
            for (int j = 0; j < width; j += LANES) store(to + j, load(to + j) + load(x + size_t(r) * width + j));
    }
};

}  // namespace heedful::train
