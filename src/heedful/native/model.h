// The encoder-decoder Transformer for decoding: the same numbers as heedful/model, without a batch's padding.
//
// Legend: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V vocabulary, N
// tokens of several sentences one after the other, R rows that grow by one token each.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

#include "columns.h"

namespace heedful {

enum Activation { RELU, GELU, GELU_TANH, SILU, SWIGLU };
enum Positions { ADDED, ROTARY, ALIBI };

struct Shape {  // what a model looks like; Python fills it in
    int32_t width, inner, heads, encoder_layers, decoder_layers, vocabulary;
    int32_t activation, positions, norm_first, small, shortlists;
    float norm_epsilon, embedding_scale;
};

// Tensors by their names in a model folder. They belong to the caller, who keeps them while the model is in use.
class Tensors {
  public:
    void set(const std::string& name, const float* data) { known[name] = data; }
    bool has(const std::string& name) const { return known.count(name) > 0; }
    const float* maybe(const std::string& name) const {
        auto found = known.find(name);
        return found == known.end() ? nullptr : found->second;
    }
    const float* operator[](const std::string& name) const {
        const float* found = maybe(name);
        if (!found) throw std::invalid_argument("there is no tensor " + name);
        return found;
    }

  private:
    std::map<std::string, const float*> known;
};

struct Norm {
    std::vector<float> weight, bias;
    float epsilon = 0;

    void set(const Tensors& tensors, const std::string& name, const Shape& shape) {
        const float *w = tensors[name + ".weight"], *b = tensors.maybe(name + ".bias");
        weight.assign(w, w + shape.width);
        bias.assign(shape.width, 0.0f);
        if (b) bias.assign(b, b + shape.width);
        epsilon = shape.norm_epsilon;
    }

    // One row; `to` may be `x`.
    void row(const float* x, float* to) const {
        int n = int(weight.size()), i;
        Floats total{};
        for (i = 0; i + LANES <= n; i += LANES) total += load(x + i);
        float mean = sum(total);
        for (; i < n; ++i) mean += x[i];
        mean /= n;
        Floats squares{};
        for (i = 0; i + LANES <= n; i += LANES) {
            Floats away = load(x + i) - mean;
            squares += away * away;
        }
        float variance = sum(squares);
        for (; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
        float factor = 1.0f / std::sqrt(variance / n + epsilon);
        for (i = 0; i + LANES <= n; i += LANES)
            store(to + i, (load(x + i) - mean) * factor * load(weight.data() + i) + load(bias.data() + i));
        for (; i < n; ++i) to[i] = (x[i] - mean) * factor * weight[i] + bias[i];
    }
};

struct Layer {
    Matrix look, found;            // queries, keys and values of self-attention; its output
    Matrix ask, memory, answered;  // queries to the source; its keys and values; the output of that attention
    Matrix up, gate, down;         // the feed-forward layer
    Norm self_norm, cross_norm, feed_norm;
};

// Where the keys and values of one attention stand: token i of head h is `stride` and `head` numbers apart from others, at
// its place in a path if there is one, and its value `value` numbers behind its key.
struct Kept {
    const float* first;
    size_t stride, head, value;
    const int32_t* path;

    const float* key(int h, int i) const { return first + h * head + (path ? path[i] : i) * stride; }
};

class Model {
  public:
    Shape shape;
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm, decoder_norm, encoder_first, decoder_first;
    Matrix output;
    Columns some_output;  // the same, if sentences have shortlists
    const float *embedding = nullptr, *source_embedding = nullptr;
    const float *encoder_table = nullptr, *decoder_table = nullptr;  // (longest, D) to add, (longest, d / 2, 2) to turn by
    const float* slopes = nullptr;  // (H) of Alibi
    bool embedding_norm = false;

    Model(const Shape& given, const Tensors& tensors) : shape(given) {
        embedding = tensors["embedding.weight"];
        source_embedding = tensors.has("source_embedding.weight") ? tensors["source_embedding.weight"] : embedding;
        const float* projection = tensors.has("output.weight") ? tensors["output.weight"] : embedding;
        output.set({{projection, tensors.maybe("output_bias"), shape.vocabulary}}, shape.width, shape.small);
        if (shape.shortlists)
            some_output.set(projection, tensors.maybe("output_bias"), shape.width, shape.vocabulary, shape.small);
        if (shape.positions == ALIBI)
            slopes = tensors["encoder.position.slopes"];
        else
            encoder_table = tensors["encoder.position.table"], decoder_table = tensors["decoder.position.table"];
        build(encoder, "encoder.", shape.encoder_layers, tensors, false);
        build(decoder, "decoder.", shape.decoder_layers, tensors, true);
        embedding_norm = tensors.has("encoder.first_norm.weight");
        if (embedding_norm) {
            encoder_first.set(tensors, "encoder.first_norm", shape);
            decoder_first.set(tensors, "decoder.first_norm", shape);
        }
        if (shape.norm_first) {
            encoder_norm.set(tensors, "encoder.norm", shape);
            decoder_norm.set(tensors, "decoder.norm", shape);
        }
    }

    int head_width() const { return shape.width / shape.heads; }

    // A token's embedding with its position.
    void embed(const float* table, const float* positions, const Norm& first, int id, int position, float* to) const {
        const float* from = table + size_t(id) * shape.width;
        for (int i = 0; i < shape.width; ++i) to[i] = from[i] * shape.embedding_scale;
        if (shape.positions == ADDED) add_scaled(to, positions + size_t(position) * shape.width, 1.0f, shape.width);
        if (embedding_norm) first.row(to, to);
    }

    // Rotary positions turn each pair of neighbours in every head.
    void turn(float* x, const float* table, int position) const {
        if (shape.positions != ROTARY) return;
        int half = head_width() / 2;
        const float* angle = table + size_t(position) * 2 * half;
        for (int h = 0; h < shape.heads; ++h, x += 2 * half)
            for (int i = 0; i < half; ++i) {
                float a = x[2 * i], b = x[2 * i + 1], c = angle[2 * i], s = angle[2 * i + 1];
                x[2 * i] = a * c - b * s, x[2 * i + 1] = a * s + b * c;
            }
    }

    // What H heads of one query (D) find among n keys and values: (D). Alibi lowers the scores of keys that are far from
    // `place`, unless there is none (-1).
    void attend(const float* query, int n, const Kept& kept, int place, float* to) const {
        const int d = head_width();
        const float scale = 1.0f / std::sqrt(float(d));
        thread_local Room<float> room;
        float* weights = room.at_least(n);
        for (int h = 0; h < shape.heads; ++h) {
            compare(query + h * d, kept, h, n, weights);
            for (int i = 0; i < n; ++i) weights[i] *= scale;
            if (shape.positions == ALIBI && place >= 0)
                for (int i = 0; i < n; ++i) weights[i] -= slopes[h] * std::abs(i - place);
            float total = exponentials<false>(weights, n, maximum(weights, n));
            gather(weights, kept, h, n, 1.0f / total, to + h * d);
        }
    }

    void activate(float* x, const float* gate) const {
        const int F = shape.inner;
        switch (shape.activation) {
            case RELU:
                for (int i = 0; i < F; ++i) x[i] = x[i] > 0 ? x[i] : 0;
                break;
            case GELU:
                for (int i = 0; i < F; ++i) x[i] *= 0.5f * (1 + std::erf(x[i] * 0.70710678f));
                break;
            case GELU_TANH:
                for (int i = 0; i < F; ++i)
                    x[i] *= 0.5f * (1 + std::tanh(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
                break;
            case SILU:
                for (int i = 0; i < F; ++i) x[i] /= 1 + std::exp(-x[i]);
                break;
            case SWIGLU:
                for (int i = 0; i < F; ++i) x[i] *= gate[i] / (1 + std::exp(-gate[i]));
                break;
        }
    }

  private:
    // The products of head h's query (d) with n keys.
    void compare(const float* query, const Kept& kept, int h, int n, float* scores) const {
        const int d = head_width();
        int i = 0;
        if (d % LANES == 0)
            for (; i + 4 <= n; i += 4) {
                const float *k0 = kept.key(h, i), *k1 = kept.key(h, i + 1), *k2 = kept.key(h, i + 2), *k3 = kept.key(h, i + 3);
                Floats s0{}, s1{}, s2{}, s3{};
                for (int j = 0; j < d; j += LANES) {
                    Floats q = load(query + j);
                    s0 = fused(q, load(k0 + j), s0), s1 = fused(q, load(k1 + j), s1);
                    s2 = fused(q, load(k2 + j), s2), s3 = fused(q, load(k3 + j), s3);
                }
                sums(s0, s1, s2, s3, scores + i);
            }
        for (; i < n; ++i) scores[i] = dot(query, kept.key(h, i), d);
    }

    // The mean of head h's n values by their weights: (d).
    void gather(const float* weights, const Kept& kept, int h, int n, float scale, float* to) const {
        const int d = head_width();
        int at = 0;
        for (; at + 4 * LANES <= d; at += 4 * LANES) columns<4>(weights, kept, h, at, n, scale, to);
        for (; at + LANES <= d; at += LANES) columns<1>(weights, kept, h, at, n, scale, to);
        for (; at < d; ++at) {
            to[at] = 0;
            for (int i = 0; i < n; ++i) to[at] += weights[i] * kept.key(h, i)[kept.value + at];
            to[at] *= scale;
        }
    }

    template <int COUNT>
    static void columns(const float* weights, const Kept& kept, int h, int at, int n, float scale, float* to) {
        Floats found[COUNT] = {};
        for (int i = 0; i < n; ++i) {
            const float* value = kept.key(h, i) + kept.value + at;
            for (int c = 0; c < COUNT; ++c) found[c] = fused(load(value + c * LANES), all(weights[i]), found[c]);
        }
        for (int c = 0; c < COUNT; ++c) store(to + at + c * LANES, found[c] * scale);
    }

    void build(std::vector<Layer>& layers, const std::string& side, int count, const Tensors& tensors, bool cross) {
        layers.resize(count);
        for (int i = 0; i < count; ++i) {
            const std::string at = side + std::to_string(i) + ".";
            Layer& layer = layers[i];
            auto part = [&](const std::string& name, int out) {
                return Matrix::Part{tensors[at + name + ".weight"], tensors.maybe(at + name + ".bias"), out};
            };
            const int D = shape.width, F = shape.inner;
            const bool small = shape.small;
            layer.look.set({part("self.query", D), part("self.key", D), part("self.value", D)}, D, small);
            layer.found.set({part("self.output", D)}, D, small);
            layer.self_norm.set(tensors, at + "self_residual.norm", shape);
            if (cross) {
                layer.ask.set({part("cross.query", D)}, D, small);
                layer.memory.set({part("cross.key", D), part("cross.value", D)}, D, small);
                layer.answered.set({part("cross.output", D)}, D, small);
                layer.cross_norm.set(tensors, at + "cross_residual.norm", shape);
            }
            layer.up.set({part("feed.up", F)}, D, small);
            layer.down.set({part("feed.down", D)}, F, small);
            if (shape.activation == SWIGLU) layer.gate.set({part("feed.gate", F)}, D, small);
            layer.feed_norm.set(tensors, at + "feed_residual.norm", shape);
        }
    }
};

}  // namespace heedful
