// The encoder-decoder Transformer for decoding: the same numbers as heedful/model, without a batch's padding.
//
// Legend: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V vocabulary, N
// tokens of several sentences one after the other, R rows that grow by one token each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "columns.h"

namespace heedful {

enum Activation { RELU, GELU, GELU_TANH, SILU, SWIGLU };
enum Positions { ADDED, ROTARY, ALIBI };

struct Shape {  // what a model looks like; Python fills it in
    int32_t width, inner, heads, encoder_layers, decoder_layers, vocabulary;
    int32_t source_vocabulary;  // 0 if the source shares the embeddings of the target
    int32_t longest, activation, positions, norm_first, embedding_norm, tied, small, shortlists;
    float norm_epsilon, embedding_scale;
};

// Where each tensor of a model goes, by its name in a model folder; what is a bias may be left out.
class Places {
  public:
    using Place = std::function<void(const Tensor&)>;

    void set(const std::string& name, int64_t count, Place place) { known[name] = {count, {std::move(place)}}; }

    // A second place for the same tensor.
    void also(const std::string& name, Place place) { known.at(name).all.push_back(std::move(place)); }

    void fill(const std::string& name, const Tensor& tensor) {
        auto found = known.find(name);
        if (found == known.end()) throw std::invalid_argument("there is no place for " + name);
        if (found->second.count != tensor.count) throw std::invalid_argument(name + " has another size");
        for (const Place& place : found->second.all) place(tensor);
        known.erase(found);
    }

    void check_filled() const {
        for (const auto& [name, place] : known)
            if (name.size() < 4 || name.compare(name.size() - 4, 4, "bias"))
                throw std::invalid_argument("there is no tensor " + name);
    }

  private:
    struct Wanted {
        int64_t count;
        std::vector<Place> all;
    };
    std::map<std::string, Wanted> known;
};

struct Norm {
    std::vector<float> weight, bias;
    float epsilon = 0;

    void set(Places& places, const std::string& name, const Shape& shape) {
        const int D = shape.width;
        weight.resize(D), bias.resize(D), epsilon = shape.norm_epsilon;
        places.set(name + ".weight", D, [this, D](const Tensor& t) { std::copy_n(t.floats, D, weight.data()); });
        places.set(name + ".bias", D, [this, D](const Tensor& t) { std::copy_n(t.floats, D, bias.data()); });
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
    const Shape shape;
    Places places;
    std::vector<Layer> encoder, decoder;
    Norm encoder_norm, decoder_norm, encoder_first, decoder_first;
    Matrix embedding, separate_source, separate_output;  // what is shared is kept once
    Columns some_output;                                 // the output again, if sentences have shortlists
    std::vector<float> encoder_table, decoder_table;     // (longest, D) to add, (longest, d / 2, 2) to turn by
    std::vector<float> slopes;                           // (H) of Alibi

    // A model of zeros, which `places` take the tensors of.
    explicit Model(const Shape& given) : shape(given) {
        const int D = shape.width, V = shape.vocabulary;
        set(embedding, "embedding.weight", V, "output_bias");
        if (shape.source_vocabulary) set(separate_source, "source_embedding.weight", shape.source_vocabulary);
        if (!shape.tied) set(separate_output, "output.weight", V, "output_bias");
        if (shape.shortlists) {
            some_output.set(V, D, shape.small);
            const char* weight = shape.tied ? "embedding.weight" : "output.weight";
            places.also(weight, [&](const Tensor& t) { some_output.place(t); });
            places.also("output_bias", [&](const Tensor& t) { some_output.add(t); });
        }
        if (shape.positions == ALIBI) {
            set(slopes, "encoder.position.slopes", shape.heads);
            set(slopes, "decoder.position.slopes", shape.heads);  // the same
        } else {
            const size_t width = shape.positions == ROTARY ? head_width() : D;
            set(encoder_table, "encoder.position.table", shape.longest * width);
            set(decoder_table, "decoder.position.table", shape.longest * width);
        }
        build(encoder, "encoder.", shape.encoder_layers, false);
        build(decoder, "decoder.", shape.decoder_layers, true);
        if (shape.embedding_norm) {
            encoder_first.set(places, "encoder.first_norm", shape);
            decoder_first.set(places, "decoder.first_norm", shape);
        }
        if (shape.norm_first) {
            encoder_norm.set(places, "encoder.norm", shape);
            decoder_norm.set(places, "decoder.norm", shape);
        }
    }
    Model(const Model&) = delete;  // places point into it

    const Matrix& source_embedding() const { return shape.source_vocabulary ? separate_source : embedding; }
    const Matrix& output() const { return shape.tied ? embedding : separate_output; }
    int head_width() const { return shape.width / shape.heads; }

    // A token's embedding with its position.
    void embed(const Matrix& tokens, const std::vector<float>& positions, const Norm& first, int id, int position,
               float* to) const {
        tokens.column(id, to);
        for (int i = 0; i < shape.width; ++i) to[i] *= shape.embedding_scale;
        if (shape.positions == ADDED)
            add_scaled(to, positions.data() + size_t(position) * shape.width, 1.0f, shape.width);
        if (shape.embedding_norm) first.row(to, to);
    }

    // Rotary positions turn each pair of neighbours in every head.
    void turn(float* x, const std::vector<float>& table, int position) const {
        if (shape.positions != ROTARY) return;
        int half = head_width() / 2;
        const float* angle = table.data() + size_t(position) * 2 * half;
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

    void set(Matrix& matrix, const std::string& weight, int rows, const std::string& bias = "") {
        matrix.set(rows, shape.width, shape.small);
        part(matrix, weight, bias, 0, rows);
    }

    void set(std::vector<float>& numbers, const std::string& name, size_t count) {
        numbers.resize(count);
        places.set(name, count, [&](const Tensor& t) { std::copy_n(t.floats, numbers.size(), numbers.data()); });
    }

    // Rows of a tensor are columns of a matrix, from the `first` on.
    void part(Matrix& matrix, const std::string& weight, const std::string& bias, int first, int rows) {
        places.set(weight, int64_t(rows) * matrix.in, [&matrix, first](const Tensor& t) { matrix.place(t, first); });
        if (!bias.empty()) places.set(bias, rows, [&matrix, first](const Tensor& t) { matrix.add(t, first); });
    }

    void build(std::vector<Layer>& layers, const std::string& side, int count, bool cross) {
        layers.resize(count);
        for (int i = 0; i < count; ++i) {
            const std::string at = side + std::to_string(i) + ".";
            // Several tensors of (rows, in) as one matrix, their columns side by side.
            auto join = [&](Matrix& matrix, const std::vector<std::string>& names, int rows, int in) {
                matrix.set(rows * int(names.size()), in, shape.small);
                for (size_t n = 0; n < names.size(); ++n)
                    part(matrix, at + names[n] + ".weight", at + names[n] + ".bias", int(n) * rows, rows);
            };
            Layer& layer = layers[i];
            const int D = shape.width, F = shape.inner;
            join(layer.look, {"self.query", "self.key", "self.value"}, D, D);
            join(layer.found, {"self.output"}, D, D);
            layer.self_norm.set(places, at + "self_residual.norm", shape);
            if (cross) {
                join(layer.ask, {"cross.query"}, D, D);
                join(layer.memory, {"cross.key", "cross.value"}, D, D);
                join(layer.answered, {"cross.output"}, D, D);
                layer.cross_norm.set(places, at + "cross_residual.norm", shape);
            }
            join(layer.up, {"feed.up"}, F, D);
            join(layer.down, {"feed.down"}, D, F);
            if (shape.activation == SWIGLU) join(layer.gate, {"feed.gate"}, F, D);
            layer.feed_norm.set(places, at + "feed_residual.norm", shape);
        }
    }
};

}  // namespace heedful
