// The tape of reverse-mode differentiation: each operation computes its forward pass and records its backward pass.
#pragma once

#include <functional>

#include "losses.h"
#include "ops.h"
#include "trainer.h"

namespace heedful::train {

// Records one group of sentences after another. GEMMs with weights are computed in Scalar, everything else in float32.
template <typename Scalar>
class Tape {
  public:
    // weight_grads, all weights concatenated, and candidate_grads, (C, D), are accumulated into.
    Tape(const TransformerTrainer<Scalar>& trainer, const Batch& batch, Workspace<Scalar>& workspace, float* weight_grads,
         float* candidate_grads)
        : losses(trainer.candidates, batch, workspace, candidate_grads), trainer(trainer), config(trainer.config),
          batch(batch), D(trainer.config.width), workspace(workspace), arena(workspace.arena), grads(arena),
          packer(workspace), weight_grads(weight_grads) {}

    Losses<Scalar> losses;

    void start_group(uint64_t number) {
        group = number, site = 0;
        arena.reset(), grads.clear(), steps.clear();
    }
    void backward() {
        for (size_t i = steps.size(); i--;) steps[i]();
    }

    // Embeddings with token types (unless null) and positions, after the embedding norm and dropout.
    Tensor embed(const EmbeddingWeights& weights, const int32_t* ids, const int32_t* types,
                 const std::vector<Span>& spans) {
        const Tensor x = new_tensor(spans.back().first + spans.back().count, D);
        const EmbeddingTables tables{trainer.weights[weights.tokens],
                                     weights.types < 0 ? nullptr : trainer.weights[weights.types],
                                     weights.positions < 0 ? trainer.added_positions() : trainer.weights[weights.positions],
                                     config.embedding_scale, D};
        const bool normed = weights.norm >= 0;
        const DropoutRng rng = next_rng(normed ? 0.0f : config.dropout);
        auto for_each_sentence = [=](auto embed) {
            for (const Span& span : spans)
                embed(ids + span.first, tables.types ? types + span.first : nullptr, span.count, size_t(span.first) * D);
        };
        DropoutRng draws = rng;
        for_each_sentence([&](const int32_t* ids, const int32_t* types, int count, size_t at) {
            embedding_forward(tables, ids, types, count, draws, x.value + at);
        });
        steps.push_back([=] {
            DropoutRng draws = rng;
            const EmbeddingGrads d_tables{weight_grad(weights.tokens),
                                          weights.types < 0 ? nullptr : weight_grad(weights.types),
                                          weights.positions < 0 ? nullptr : weight_grad(weights.positions)};
            for_each_sentence([&](const int32_t* ids, const int32_t* types, int count, size_t at) {
                embedding_backward(tables, ids, types, count, draws, grad(x) + at, d_tables);
            });
            free_grad(x);
        });
        return normed ? dropout(layer_norm(x, weights.norm), config.dropout) : x;
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
                        layer->out, layer->bias < 0 ? nullptr : trainer.weights[layer->bias]);
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
                gemm_tn_add(dy, out, y.rows, out, panels, in, weight_grad(layers[i]->weight), workspace.transposed);
                if (layers[i]->bias >= 0) add_rows(grad(y), y.rows, out, weight_grad(layers[i]->bias));
                free_grad(y);
            }
        });
        return outputs;
    }

    // f(x). ReLU is computed in place, and its output shows where it has a derivative; the derivatives of the others
    // overwrite x.
    Tensor activation(Tensor x, int kind) {
        if (kind == RELU) {
            activation_forward(RELU, x.value, x.size(), x.value, nullptr);
            steps.push_back([=] {
                float* dx = grad(x);
                for (size_t i = 0; i < x.size(); ++i) dx[i] = x.value[i] > 0 ? dx[i] : 0.0f;
            });
            return x;
        }
        const Tensor y = new_tensor(x.rows, x.width);
        activation_forward(kind, x.value, x.size(), y.value, x.value);
        steps.push_back([=] {
            float* dy = grad(y);
            for (size_t i = 0; i < x.size(); ++i) dy[i] *= x.value[i];
            std::swap(*x.grad, *y.grad);
        });
        return y;
    }

    // SwiGLU: silu(gate) up. The derivatives overwrite both.
    Tensor silu_mul(Tensor gate, Tensor up) {
        const Tensor y = new_tensor(up.rows, up.width);
        silu_mul_forward<true>(gate.value, up.value, up.size(), y.value);
        steps.push_back([=] {
            silu_mul_backward(gate.value, up.value, grad(y), y.size(), grad(up), grad(gate));
            free_grad(y);
        });
        return y;
    }

    Tensor layer_norm(Tensor x, int weight) {  // the bias is the weight after `weight`
        const Tensor y = new_tensor(x.rows, x.width);
        RowStats* stats = arena.template allocate<RowStats>(x.rows);
        const float* scale = trainer.weights[weight];
        layer_norm_forward(x.value, x.rows, x.width, scale, trainer.weights[weight + 1], config.norm_epsilon, y.value,
                           stats);
        steps.push_back([=] {
            layer_norm_backward(x.value, stats, grad(y), x.rows, x.width, scale, grad(x), weight_grad(weight),
                                weight_grad(weight + 1));
            free_grad(y);
        });
        return y;
    }

    // In place.
    Tensor dropout(Tensor x, float rate) {
        if (rate <= 0) return x;
        const DropoutRng rng = next_rng(rate);
        dropout_apply(x.value, x.size(), rng);
        steps.push_back([=] { dropout_apply(grad(x), x.size(), rng); });
        return x;
    }

    // x + dropout(y), in the memory of y.
    Tensor dropout_add(Tensor x, Tensor y) {
        const Tensor z{y.value, grads.new_slot(), y.rows, y.width};
        const DropoutRng rng = next_rng(config.dropout);
        dropout_add_forward(x.value, y.value, y.size(), rng);
        steps.push_back([=] {
            float* dx = *x.grad;
            dropout_add_backward(grad(z), z.size(), rng, dx, *y.grad = grads.allocate(y.padded_size()));
            if (dx)
                free_grad(z);
            else
                std::swap(*x.grad, *z.grad);
        });
        return z;
    }

    // Rotary position embedding of queries or keys, in place.
    void rotary(Tensor x, const std::vector<Span>& spans) {
        const int heads = config.heads, d = config.head_width();
        auto rotate = [=](float* rows, auto apply) {
            for (const Span& span : spans)
                for (int i = 0; i < span.count; ++i)
                    apply(rows + size_t(span.first + i) * D, heads, d, trainer.positions + size_t(i) * d);
        };
        rotate(x.value, apply_rotary<false>);
        steps.push_back([=] { rotate(grad(x), apply_rotary<true>); });
    }

    // Attention of each head of each sentence; `positioned` adds ALiBi's bias. The weights are kept for the backward pass.
    Tensor attention(Tensor query, Tensor key, Tensor value, const std::vector<Span>& queries,
                     const std::vector<Span>& keys, bool causal, bool positioned) {
        const Tensor output = new_tensor(query.rows, D);
        steps.push_back([=] { free_grad(output); });
        const int d = config.head_width();
        for (size_t s = 0; s < queries.size(); ++s)
            for (int head = 0; head < config.heads; ++head) {
                const float slope = positioned && config.positions == ALIBI ? trainer.positions[head] : 0.0f;
                const AttentionShape shape{queries[s].count, keys[s].count, d,    D, causal,
                                           slope,            config.attention_dropout};
                const size_t q = size_t(queries[s].first) * D + head * d, k = size_t(keys[s].first) * D + head * d;
                const DropoutRng rng =
                    config.attention_dropout > 0 ? next_rng(config.attention_dropout) : DropoutRng(0, 0, 0, 0);
                float* weights = arena.allocate(shape.weights_size());
                attention_forward(shape, query.value + q, key.value + k, value.value + k, rng, weights,
                                  output.value + q, workspace.attention);
                steps.push_back([=] {
                    attention_backward(shape, query.value + q, key.value + k, value.value + k, weights, rng,
                                       grad(output) + q, grad(query) + q, grad(key) + k, grad(value) + k, workspace.attention);
                });
            }
        return output;
    }

    // Some rows of x.
    Tensor gather(Tensor x, const std::vector<int>& rows) {
        const Tensor y = new_tensor(int(rows.size()), x.width);
        for (size_t r = 0; r < rows.size(); ++r)
            std::copy_n(x.value + size_t(rows[r]) * x.width, x.width, y.value + r * x.width);
        steps.push_back([=] {
            float *dx = grad(x), *dy = grad(y);
            for (size_t r = 0; r < rows.size(); ++r)
                axpy(dx + size_t(rows[r]) * x.width, dy + r * x.width, 1, x.width);
            free_grad(y);
        });
        return y;
    }

    // The mean over the tokens of each sentence.
    Tensor mean_pool(Tensor x, const std::vector<Span>& spans) {
        const Tensor y = new_tensor(int(spans.size()), x.width);
        for (size_t s = 0; s < spans.size(); ++s) {
            float* to = y.value + s * x.width;
            std::fill_n(to, x.width, 0.0f);
            for (int i = 0; i < spans[s].count; ++i)
                axpy(to, x.value + size_t(spans[s].first + i) * x.width, 1.0f / spans[s].count, x.width);
        }
        steps.push_back([=] {
            float *dx = grad(x), *dy = grad(y);
            for (size_t s = 0; s < spans.size(); ++s)
                for (int i = 0; i < spans[s].count; ++i)
                    axpy(dx + size_t(spans[s].first + i) * x.width, dy + s * x.width, 1.0f / spans[s].count, x.width);
            free_grad(y);
        });
        return y;
    }

    // The loss of the hidden states x, and their gradient; see losses.h.
    void loss(Tensor x, const int32_t* labels, const std::vector<Span>& spans) { losses.add(x, grad(x), labels, spans); }

    // The loss of a pointer-generator: the attention of its queries to its keys, one head, is the copy distribution over
    // the source ids.
    void pointer_loss(Tensor x, Tensor query, Tensor key, const PointerWeights<Scalar>& pointer, const int32_t* source_ids,
                      const int32_t* labels, const std::vector<Span>& targets, const std::vector<Span>& sources) {
        const float scale = 1 / std::sqrt(float(D)), learned = 1 - batch.label_smoothing;
        const float* gate = trainer.weights[pointer.gate];
        CopyMixture mixture;
        for (auto* values : {&mixture.gate, &mixture.copied, &mixture.share}) values->resize(x.rows);
        std::vector<float*> weights(x.rows);
        for (size_t s = 0; s < targets.size(); ++s)
            for (int row = targets[s].first; row < targets[s].first + targets[s].count; ++row) {
                const int n = sources[s].count, first = sources[s].first, label = batch.candidate(labels[row]);
                float* a = weights[row] = arena.allocate(n);
                for (int i = 0; i < n; ++i) a[i] = scale * dot(query.row(row), key.row(first + i), D);
                const float inverse = 1 / sum_exp<false>(a, n, max_value(a, n));
                for (int i = 0; i < n; ++i) {
                    a[i] *= inverse;
                    if (source_ids[first + i] == label) mixture.copied[row] += a[i];
                }
                mixture.gate[row] = dot(x.row(row), gate, D) + *trainer.weights[pointer.gate + 1];
            }
        losses.add(x, grad(x), labels, targets, &mixture);
        float *dx = grad(x), *d_query = grad(query), *d_key = grad(key);
        for (size_t s = 0; s < targets.size(); ++s)
            for (int row = targets[s].first; row < targets[s].first + targets[s].count; ++row) {
                const int first = sources[s].first, label = batch.candidate(labels[row]);
                const float d_gate = learned * (std::exp(mixture.log_p_gen(row)) - mixture.share[row]);
                axpy(dx + size_t(row) * D, gate, d_gate, D);
                axpy(weight_grad(pointer.gate), x.row(row), d_gate, D);
                *weight_grad(pointer.gate + 1) += d_gate;
                const float d_copy = learned * (1 - mixture.share[row]) * scale;
                if (d_copy <= 0) continue;  // the label is not in the source
                for (int i = 0; i < sources[s].count; ++i) {
                    const float match = source_ids[first + i] == label ? 1 / mixture.copied[row] : 0.0f;
                    const float d_score = d_copy * weights[row][i] * (1 - match);
                    axpy(d_query + size_t(row) * D, key.row(first + i), d_score, D);
                    axpy(d_key + size_t(first + i) * D, query.row(row), d_score, D);
                }
            }
    }

  private:
    const TransformerTrainer<Scalar>& trainer;
    const ModelConfig& config;
    const Batch& batch;
    const int D;
    Workspace<Scalar>& workspace;
    Arena& arena;
    GradPool grads;
    OperandPacker<Scalar> packer;
    float* weight_grads;
    uint64_t group = 0, site = 0;  // with the seed, they determine the dropout masks
    std::vector<std::function<void()>> steps;

    float* weight_grad(int weight) const { return weight_grads + trainer.offsets[weight]; }
    DropoutRng next_rng(float rate) { return DropoutRng(batch.seed, group, site++, rate); }

    Tensor new_tensor(int rows, int width) {
        return {arena.allocate(round_up_tile(rows) * width), grads.new_slot(), rows, width};
    }

    // The gradient of x, zeros if there is none yet.
    float* grad(const Tensor& x) {
        if (!*x.grad) std::fill_n(*x.grad = grads.allocate(x.padded_size()), x.size(), 0.0f);
        return *x.grad;
    }
    void free_grad(const Tensor& x) { grads.release(*x.grad, x.padded_size()); }
};

}  // namespace heedful::train
