// A Transformer of any family for inference: its weights, and what is computed for one token at a time. It computes what
// heedful/model computes, without padding.
#pragma once

#include "gemm_shortlist.h"
#include "kv_cache.h"
#include "ops.h"
#include "weight_loader.h"

namespace heedful {

struct Norm {
    std::vector<float> weight, bias;
    float epsilon = 0;

    void set(WeightLoader& loader, const std::string& name, const ModelConfig& config) {
        const int D = config.width;
        weight.resize(D), bias.resize(D), epsilon = config.norm_epsilon;
        loader.expect(name + ".weight", D, [this, D](const WeightTensor& t) { std::copy_n(t.floats, D, weight.data()); });
        loader.expect(name + ".bias", D, [this, D](const WeightTensor& t) { std::copy_n(t.floats, D, bias.data()); });
    }

    // One row; `to` may be `x`.
    void apply(const float* x, float* to) const {
        normalize_row(x, int(weight.size()), weight.data(), bias.data(), epsilon, to);
    }
};

struct Layer {
    PackedMatrix qkv, attn_out;                 // self-attention
    PackedMatrix cross_q, cross_kv, cross_out;  // cross-attention; cross_kv projects the source
    PackedMatrix up, gate, down;                // feed-forward layer; the gate is SwiGLU's
    Norm self_norm, cross_norm, feed_norm;
};

constexpr int CONV_KERNEL = 3;  // frames that a convolution over audio reads

struct FrontEnd {  // the convolutions that read audio, in float32: rows of CONV_KERNEL adjacent frames times a matrix
    PackedMatrix first, second;
};

struct StackNorms {  // after the embeddings, and at the end of a pre-norm stack
    Norm embedding, final;
};

class Model {
  public:
    const ModelConfig config;
    WeightLoader loader;
    std::vector<Layer> encoder, decoder;
    StackNorms encoder_norms, decoder_norms;
    FrontEnd front_end;
    PackedMatrix embedding, separate_source, separate_output;  // tied weights are stored once, as the embedding
    PackedMatrix token_types, transform, pooler, classifier;   // of an encoder
    Norm transform_norm;
    PackedMatrix pointer_query, pointer_key, pointer_gate;     // of a pointer-generator
    ShortlistMatrix shortlist_output;                          // a second layout of the output, for shortlists
    std::vector<float> encoder_table, decoder_table;  // positions to add (length, D), or rotary (length, d / 2, 2)
    std::vector<float> slopes;                        // ALiBi: (H)

    // Zero weights, which `loader` fills.
    explicit Model(const ModelConfig& config) : config(config) {
        const int D = config.width, V = config.vocabulary;
        set(embedding, "embedding.weight", V, "output_bias");
        if (config.features) {
            set_convolution(front_end.first, "front_end.first", config.features);
            set_convolution(front_end.second, "front_end.second", D);
        }
        if (config.source_vocabulary) set(separate_source, "source_embedding.weight", config.source_vocabulary);
        if (!config.tied) set(separate_output, "output.weight", V, "output_bias");
        if (config.shortlists) {
            shortlist_output.allocate(V, D, config.int8);
            const char* weight = config.tied ? "embedding.weight" : "output.weight";
            loader.expect_also(weight, [&](const WeightTensor& t) { shortlist_output.load_weight(t); });
            loader.expect_also("output_bias", [&](const WeightTensor& t) { shortlist_output.load_bias(t); });
        }
        if (config.family != DECODER) build(encoder, encoder_table, encoder_norms, "encoder.", config.encoder_layers);
        if (config.family != ENCODER) build(decoder, decoder_table, decoder_norms, "decoder.", config.decoder_layers);
        if (config.family == ENCODER) build_heads();
        if (config.pointer) {
            set(pointer_query, "pointer.query.weight", D, "pointer.query.bias");
            set(pointer_key, "pointer.key.weight", D, "pointer.key.bias");
            set(pointer_gate, "pointer.gate.weight", 1, "pointer.gate.bias");
        }
    }
    Model(const Model&) = delete;  // the loader holds pointers into it

    const PackedMatrix& source_embedding() const { return config.source_vocabulary ? separate_source : embedding; }
    const PackedMatrix& output() const { return config.tied ? embedding : separate_output; }
    int head_width() const { return config.head_width(); }

    // A token's embedding, with that of its type (unless -1), and with its position if positions are added.
    void embed(const PackedMatrix& tokens, const std::vector<float>& positions, const Norm& embedding_norm, int id,
               int type, int position, float* to) const {
        tokens.unpack_column(id, to);
        for (int i = 0; i < config.width; ++i) to[i] *= config.embedding_scale;
        if (type >= 0) {
            thread_local Buffer<float> buffer;
            token_types.unpack_column(type, buffer.ensure(config.width));
            axpy(to, buffer.get(), config.embedding_scale, config.width);
        }
        add_position(positions, embedding_norm, position, to);
    }

    // Adds a position to an embedding if positions are added, and normalizes it if the model does.
    void add_position(const std::vector<float>& positions, const Norm& embedding_norm, int position, float* to) const {
        if (config.positions == ADDED)
            axpy(to, positions.data() + size_t(position) * config.width, 1.0f, config.width);
        if (config.embedding_norm) embedding_norm.apply(to, to);
    }

    // Rotary position embedding of a query or key, if the model has it.
    void rotate(float* x, const std::vector<float>& table, int position) const {
        if (config.positions == ROTARY)
            apply_rotary(x, config.heads, head_width(), table.data() + size_t(position) * head_width());
    }

    // Multi-head attention of one query (D) over n keys and values -> (D). ALiBi subtracts the distance of each key from
    // `position`; -1 stands for no position (cross-attention). Key `hidden` is masked, unless it is -1. `kept` receives the
    // attention weights (H, n), unless it is null.
    void attend(const float* query, int n, const KVView& kv, int position, float* to, int hidden = -1,
                float* kept = nullptr) const {
        const int d = head_width();
        for (int h = 0; h < config.heads; ++h)
            attend_head(query + h * d, h, n, kv, position, to + h * d, hidden, kept ? kept + size_t(h) * n : nullptr);
    }

    // The same of head h alone: (d) -> (d), and the weights (n).
    void attend_head(const float* query, int h, int n, const KVView& kv, int position, float* to, int hidden = -1,
                     float* kept = nullptr) const {
        const float scale = 1.0f / std::sqrt(float(head_width()));
        thread_local Buffer<float> buffer;
        float* weights = buffer.ensure(n);
        dot_keys(query, kv, h, n, weights);
        for (int i = 0; i < n; ++i) weights[i] *= scale;
        if (config.positions == ALIBI && position >= 0) subtract_alibi(weights, n, position, slopes[h]);
        if (hidden >= 0) weights[hidden] = -INF;
        const float inverse = 1.0f / sum_exp<false>(weights, n, max_value(weights, n));
        weighted_sum(weights, kv, h, n, inverse, to);
        for (int i = 0; kept && i < n; ++i) kept[i] = weights[i] * inverse;
    }

    // The activation of one row of the feed-forward layer, in place; `gate` is SwiGLU's.
    void activate(float* x, float* gate) const {
        if (config.gated())
            silu_mul_forward<false>(gate, x, config.inner, x);
        else
            activation_forward(config.activation, x, config.inner, x, nullptr);
    }

  private:
    // The dot products of head h's query (d) with n keys.
    void dot_keys(const float* query, const KVView& kv, int h, int n, float* scores) const {
        const int d = head_width();
        int i = 0;
        if (d % LANES == 0)
            for (; i + 4 <= n; i += 4) {
                const float *k0 = kv.key(h, i), *k1 = kv.key(h, i + 1), *k2 = kv.key(h, i + 2), *k3 = kv.key(h, i + 3);
                VecF32 s0{}, s1{}, s2{}, s3{};
                for (int j = 0; j < d; j += LANES) {
                    VecF32 q = load(query + j);
                    s0 = fmadd(q, load(k0 + j), s0), s1 = fmadd(q, load(k1 + j), s1);
                    s2 = fmadd(q, load(k2 + j), s2), s3 = fmadd(q, load(k3 + j), s3);
                }
                reduce_sum4(s0, s1, s2, s3, scores + i);
            }
        for (; i < n; ++i) scores[i] = dot(query, kv.key(h, i), d);
    }

    // The sum of head h's n values, weighted and scaled: (d).
    void weighted_sum(const float* weights, const KVView& kv, int h, int n, float scale, float* to) const {
        const int d = head_width();
        int at = 0;
        for (; at + 4 * LANES <= d; at += 4 * LANES) sum_columns<4>(weights, kv, h, at, n, scale, to);
        for (; at + LANES <= d; at += LANES) sum_columns<1>(weights, kv, h, at, n, scale, to);
        for (; at < d; ++at) {
            to[at] = 0;
            for (int i = 0; i < n; ++i) to[at] += weights[i] * kv.key(h, i)[kv.value_offset + at];
            to[at] *= scale;
        }
    }

    template <int COUNT>
    static void sum_columns(const float* weights, const KVView& kv, int h, int at, int n, float scale, float* to) {
        VecF32 sums[COUNT] = {};
        for (int i = 0; i < n; ++i) {
            const float* value = kv.key(h, i) + kv.value_offset + at;
            for (int c = 0; c < COUNT; ++c) sums[c] = fmadd(load(value + c * LANES), broadcast(weights[i]), sums[c]);
        }
        for (int c = 0; c < COUNT; ++c) store(to + at + c * LANES, sums[c] * scale);
    }

    void set(PackedMatrix& matrix, const std::string& weight, int rows, const std::string& bias = "") {
        matrix.allocate(rows, config.width, config.int8);
        expect_columns(matrix, weight, bias, 0, rows);
    }

    // (out, in, CONV_KERNEL), as PyTorch stores it -> (out, CONV_KERNEL, in): the bins of a frame are adjacent.
    void set_convolution(PackedMatrix& matrix, const std::string& name, int bins) {
        matrix.allocate(config.width, CONV_KERNEL * bins, false);
        loader.expect(name + ".weight", int64_t(matrix.out) * matrix.in, [&matrix, bins](const WeightTensor& t) {
            std::vector<float> rows(t.count), buffer;
            for (int r = 0; r < matrix.out; ++r) {
                const float* row = t.row_f32(r, matrix.in, buffer);
                for (int b = 0; b < bins; ++b)
                    for (int k = 0; k < CONV_KERNEL; ++k)
                        rows[size_t(r) * matrix.in + k * bins + b] = row[b * CONV_KERNEL + k];
            }
            matrix.load_weight({rows.data(), nullptr, nullptr, t.count}, 0);
        });
        loader.expect(name + ".bias", matrix.out, [&matrix](const WeightTensor& t) { matrix.load_bias(t, 0); });
    }

    void set(std::vector<float>& values, const std::string& name, size_t count) {
        values.resize(count);
        loader.expect(name, count, [&](const WeightTensor& t) { std::copy_n(t.floats, values.size(), values.data()); });
    }

    // A tensor whose rows become columns `first`, `first` + 1, … of the matrix.
    void expect_columns(PackedMatrix& matrix, const std::string& weight, const std::string& bias, int first, int rows) {
        loader.expect(weight, int64_t(rows) * matrix.in,
                      [&matrix, first](const WeightTensor& t) { matrix.load_weight(t, first); });
        if (!bias.empty())
            loader.expect(bias, rows, [&matrix, first](const WeightTensor& t) { matrix.load_bias(t, first); });
    }

    void build(std::vector<Layer>& layers, std::vector<float>& table, StackNorms& norms, const std::string& prefix,
               int count) {
        const bool cross = config.family == ENCODER_DECODER && prefix == "decoder.";
        const size_t length = prefix == "encoder." ? config.source_length : config.max_length;
        if (config.positions == ALIBI)
            set(slopes, prefix + "position.slopes", config.heads);  // the same of both stacks
        else
            set(table, prefix + "position.table", length * (config.positions == ROTARY ? head_width() : config.width));
        if (config.embedding_norm) norms.embedding.set(loader, prefix + "first_norm", config);
        if (config.pre_norm) norms.final.set(loader, prefix + "norm", config);
        layers.resize(count);
        for (int i = 0; i < count; ++i) {
            const std::string name = prefix + std::to_string(i) + ".";
            // Several (rows, in) tensors as one matrix, concatenated along its columns.
            auto concatenate = [&](PackedMatrix& matrix, const std::vector<std::string>& names, int rows, int in) {
                matrix.allocate(rows * int(names.size()), in, config.int8);
                for (size_t n = 0; n < names.size(); ++n)
                    expect_columns(matrix, name + names[n] + ".weight", name + names[n] + ".bias", int(n) * rows, rows);
            };
            Layer& layer = layers[i];
            const int D = config.width, F = config.inner;
            concatenate(layer.qkv, {"self.query", "self.key", "self.value"}, D, D);
            concatenate(layer.attn_out, {"self.output"}, D, D);
            layer.self_norm.set(loader, name + "self_residual.norm", config);
            if (cross) {
                concatenate(layer.cross_q, {"cross.query"}, D, D);
                concatenate(layer.cross_kv, {"cross.key", "cross.value"}, D, D);
                concatenate(layer.cross_out, {"cross.output"}, D, D);
                layer.cross_norm.set(loader, name + "cross_residual.norm", config);
            }
            concatenate(layer.up, {"feed.up"}, F, D);
            concatenate(layer.down, {"feed.down"}, D, F);
            if (config.activation == SWIGLU) concatenate(layer.gate, {"feed.gate"}, F, D);
            layer.feed_norm.set(loader, name + "feed_residual.norm", config);
        }
    }

    void build_heads() {
        const int D = config.width;
        if (config.token_types) set(token_types, "token_types.weight", config.token_types);
        if (config.head == TRANSFORM_HEAD) {
            set(transform, "transform.dense.weight", D, "transform.dense.bias");
            transform_norm.set(loader, "transform.norm", config);
        }
        if (config.pooler) set(pooler, "pooler.weight", D, "pooler.bias");
        if (config.labels) set(classifier, "classifier.weight", config.labels, "classifier.bias");
    }
};


}  // namespace heedful
