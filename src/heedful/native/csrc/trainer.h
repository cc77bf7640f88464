// The model that is trained: its weights by name, the layout of their gradients, and their packed panels.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "candidates.h"
#include "config.h"

namespace heedful::train {

// The weights of a model, borrowed, as Python passes them; native/capi.py mirrors it.
struct NamedWeights {
    const char* const* names;  // as in model/spec.py
    const float* const* values;
    const int64_t* sizes;
    int32_t count;
    const float* positions;  // sinusoids (max_length, D), rotary angles (max_length, d / 2, 2), or ALiBi's slopes (H); or null
};

template <typename Scalar>
struct Linear {  // W: (out, in), and b: (out); the numbers of the weights, the bias may be -1
    int weight = -1, bias = -1, in = 0, out = 0;
    Buffer<Scalar> forward, backward;  // panels of Wᵀ, for y = x Wᵀ, and of W, for dx = dy W
};

template <typename Scalar>
struct Attention {
    Linear<Scalar> query, key, value, output;
};

template <typename Scalar>
struct Layer {
    Attention<Scalar> self, cross;
    Linear<Scalar> up, gate, down;
    int self_norm = -1, cross_norm = -1, feed_norm = -1;  // numbers of the norms' weights; their biases follow
};

struct EmbeddingWeights {  // numbers of the weights, -1 if there is none
    int tokens = -1, types = -1, positions = -1, norm = -1;
};

template <typename Scalar>
struct Stack {
    EmbeddingWeights embedding;
    std::vector<Layer<Scalar>> layers;
    int norm = -1;  // the final norm of a pre-norm stack
};

template <typename Scalar>
struct PointerWeights {  // of a pointer-generator
    Linear<Scalar> query, key;
    int gate = -1;  // the number of the gate's weight; its bias follows
};

struct OutputWeights {  // the matrix (count, D) and the bias (count) of logits; the bias may be -1
    int weight = -1, bias = -1, count = 0;
};

// Numbers the weights by name, and knows which ones were looked up.
class WeightNumbers {
  public:
    WeightNumbers(const NamedWeights& weights) {
        for (int i = 0; i < weights.count; ++i) numbers[weights.names[i]] = i, sizes.push_back(weights.sizes[i]);
    }
    int find(const std::string& name, int64_t size) {
        const auto entry = numbers.find(name);
        if (entry == numbers.end()) return -1;
        if (sizes[entry->second] != size) throw std::invalid_argument(name + " has another size");
        return used.insert(entry->second), entry->second;
    }
    int at(const std::string& name, int64_t size) {
        const int number = find(name, size);
        if (number < 0) throw std::invalid_argument("there is no weight " + name);
        return number;
    }
    int norm(const std::string& name, int64_t width) {
        const int weight = at(name + ".weight", width);
        if (at(name + ".bias", width) != weight + 1) throw std::invalid_argument(name + ".bias does not follow its weight");
        return weight;
    }
    void check_all_used() const {
        for (const auto& [name, number] : numbers)
            if (!used.count(number)) throw std::invalid_argument("the engine does not train the weight " + name);
    }

  private:
    std::map<std::string, int> numbers;
    std::vector<int64_t> sizes;
    std::set<int> used;
};

// Trains a model; GEMMs with weights are computed in float32 or bf16.
class Trainer {
  public:
    virtual ~Trainer() = default;
    // One forward and backward pass -> the number of threads that computed it. gradients: (threads, total), of which each of
    // these threads writes a row, the gradients of all weights by its sentences; sums: of the smoothed loss and of the
    // negative log-likelihood.
    virtual int train_step(const Batch& batch, int threads, float* gradients, double* sums) = 0;
};

// A trainer for GEMM operands of type Scalar.
template <typename Scalar>
class TransformerTrainer : public Trainer {
  public:
    const ModelConfig config;
    std::vector<const float*> weights;
    std::vector<int64_t> offsets;  // of each weight's gradient
    int64_t total = 0;
    Stack<Scalar> encoder, decoder;
    Linear<Scalar> transform, pooler;
    PointerWeights<Scalar> pointer;
    int transform_norm = -1;
    OutputWeights tokens, classes;  // of the vocabulary, and of a classifier
    const float* positions;         // as in NamedWeights
    Candidates<Scalar> candidates;  // of the current batch

    TransformerTrainer(const ModelConfig& config, const NamedWeights& named)
        : config(config), weights(named.values, named.values + named.count), positions(named.positions) {
        for (int i = 0; i < named.count; ++i) offsets.push_back(total), total += named.sizes[i];
        WeightNumbers numbers(named);
        const int64_t D = config.width, V = config.vocabulary;
        const int embedding = numbers.at("embedding.weight", V * D);
        tokens = {config.tied ? embedding : numbers.at("output.weight", V * D), numbers.find("output_bias", V), int(V)};
        if (config.family != DECODER) {
            build(encoder, "encoder", config.encoder_layers, false, numbers);
            encoder.embedding.tokens = embedding;
            if (const int S = config.source_vocabulary) encoder.embedding.tokens = numbers.at("source_embedding.weight", S * D);
            if (const int types = config.token_types) encoder.embedding.types = numbers.at("token_types.weight", types * D);
        }
        if (config.family != ENCODER) {
            build(decoder, "decoder", config.decoder_layers, config.family == ENCODER_DECODER, numbers);
            decoder.embedding.tokens = embedding;
        }
        if (config.pointer) {
            set(pointer.query, "pointer.query", D, D, numbers), set(pointer.key, "pointer.key", D, D, numbers);
            pointer.gate = numbers.at("pointer.gate.weight", D);
            if (numbers.at("pointer.gate.bias", 1) != pointer.gate + 1)
                throw std::invalid_argument("pointer.gate.bias does not follow its weight");
        }
        if (config.family == ENCODER && config.head == TRANSFORM_HEAD) {
            set(transform, "transform.dense", D, D, numbers);
            transform_norm = numbers.norm("transform.norm", D);
        }
        if (config.pooler) set(pooler, "pooler", D, D, numbers);
        if (const int L = config.labels) classes = {numbers.at("classifier.weight", L * D), numbers.find("classifier.bias", L), L};
        numbers.check_all_used();
    }

    int train_step(const Batch& batch, int threads, float* gradients, double* sums) override;

    // The table that is added to embeddings, unless it is learned.
    const float* added_positions() const { return config.positions == ADDED ? positions : nullptr; }
    const OutputWeights& output(const Batch& batch) const {
        return config.family == ENCODER && !batch.predicted ? classes : tokens;
    }
    OutputMatrix output_matrix(const Batch& batch) const {
        const OutputWeights& head = output(batch);
        return {weights[head.weight], head.bias < 0 ? nullptr : weights[head.bias], head.count, config.width};
    }

  private:
    struct Worker;
    std::vector<std::unique_ptr<Worker>> workers;

    void set(Linear<Scalar>& linear, const std::string& name, int64_t in, int64_t out, WeightNumbers& numbers) {
        linear.weight = numbers.at(name + ".weight", in * out), linear.bias = numbers.find(name + ".bias", out);
        linear.in = int(in), linear.out = int(out);
        all_linears.push_back(&linear);
    }
    void set(Attention<Scalar>& attention, const std::string& name, WeightNumbers& numbers) {
        const int64_t D = config.width;
        set(attention.query, name + ".query", D, D, numbers), set(attention.key, name + ".key", D, D, numbers);
        set(attention.value, name + ".value", D, D, numbers), set(attention.output, name + ".output", D, D, numbers);
    }
    void build(Stack<Scalar>& stack, const std::string& name, int layers, bool cross, WeightNumbers& numbers) {
        const int64_t D = config.width, F = config.inner;
        if (config.positions == ADDED)
            stack.embedding.positions = numbers.find(name + ".position.table", config.max_length * D);
        if (config.embedding_norm) stack.embedding.norm = numbers.norm(name + ".first_norm", D);
        stack.layers.resize(layers);  // never again: all_linears points into it
        for (int i = 0; i < layers; ++i) {
            Layer<Scalar>& layer = stack.layers[i];
            const std::string prefix = name + "." + std::to_string(i) + ".";
            set(layer.self, prefix + "self", numbers);
            layer.self_norm = numbers.norm(prefix + "self_residual.norm", D);
            if (cross) set(layer.cross, prefix + "cross", numbers);
            if (cross) layer.cross_norm = numbers.norm(prefix + "cross_residual.norm", D);
            set(layer.up, prefix + "feed.up", D, F, numbers);
            if (config.gated()) set(layer.gate, prefix + "feed.gate", D, F, numbers);
            set(layer.down, prefix + "feed.down", F, D, numbers);
            layer.feed_norm = numbers.norm(prefix + "feed_residual.norm", D);
        }
        if (config.pre_norm) stack.norm = numbers.norm(name + ".norm", D);
    }

    std::vector<Linear<Scalar>*> all_linears;
    void pack_weights(int threads);
};

}  // namespace heedful::train
