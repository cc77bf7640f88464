// A model that learns: its weights, where they are and how products want them.
//
// Legend: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V vocabulary, N
// tokens of a group, C candidates among which the right token is to be found.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "halves.h"

namespace heedful::learning {

struct Outline {  // what a model looks like; Python fills it in
    int32_t width, inner, heads, encoder_layers, decoder_layers, vocabulary, norm_first;
    float norm_epsilon, embedding_scale, dropout;
};

struct Lesson {  // a batch; Python fills it in
    const int32_t *sources, *source_lengths;  // ids one after the other, and how many are of each sentence
    const int32_t *inputs, *target_lengths;   // what the decoder reads
    const int32_t* labels;                    // what it has to find there: places among the candidates
    const int32_t* candidates;                // their ids
    const float* shifts;                      // added to their logits
    int32_t sentences, candidate_count;
    float smoothing;
    float consistency;  // if it is more than 0, sentences 2 i and 2 i + 1 are the same; see losses.h
    uint64_t seed;
};

template <typename Number>
struct Linear {  // W: (out, in), and b: (out)
    int weight, bias, in, out;
    Room<Number> forward, backward;  // panels of Wᵀ, for y = x Wᵀ, and of W, for dx = dy W
};

template <typename Number>
struct Attending {
    Linear<Number> query, key, value, output;
};

template <typename Number>
struct Layer {
    Attending<Number> self, cross;
    Linear<Number> up, down;
    int self_norm, cross_norm, feed_norm;  // their weights; biases follow
};

template <typename Number>
struct Stack {
    std::vector<Layer<Number>> layers;
    int norm = -1;  // at the end, if norms come first
};

// A model that learns, in whatever numbers.
class Learning {
  public:
    virtual ~Learning() = default;
    // The gradients of a batch, all in one row, and the sums of the smoothed loss and of the negative log-likelihood.
    virtual void learn(const Lesson& lesson, int threads, float* gradients, double* sums) = 0;
};

// All weights, where they are and how products want them. They are numbered in the order in which a batch meets them.
template <typename Number>
class Learner : public Learning {
  public:
    const Outline outline;
    std::vector<const float*> weights;
    std::vector<int64_t> offsets;  // where the gradient of each weight is
    int64_t total;
    Stack<Number> encoder, decoder;
    const float* positions;        // (longest, D)
    std::vector<float> mean;       // (D): the mean of all embeddings
    Room<Number> candidates[2];    // panels of the candidates' embeddings, forward and backward

    Learner(const Outline& shape, const float* const* given, const int64_t* sizes, int count, const float* table)
        : outline(shape), weights(given, given + count), total(0), positions(table), mean(shape.width) {
        for (int i = 0; i < count; ++i) offsets.push_back(total), total += sizes[i];
        int next = 1;  // 0 is the embedding
        build(encoder, shape.encoder_layers, false, next);
        build(decoder, shape.decoder_layers, true, next);
        if (next != count) throw std::invalid_argument("the model has another number of weights");
    }

    void learn(const Lesson& lesson, int threads, float* gradients, double* sums) override;

  private:
    struct Worker;
    std::vector<std::unique_ptr<Worker>> workers;

    Linear<Number> linear(int in, int out, int& next) const {
        return next += 2, Linear<Number>{next - 2, next - 1, in, out, {}, {}};
    }
    Attending<Number> attending(int& next) const {
        const int D = outline.width;
        Linear<Number> query = linear(D, D, next), key = linear(D, D, next), value = linear(D, D, next);
        return {std::move(query), std::move(key), std::move(value), linear(D, D, next)};
    }
    void build(Stack<Number>& stack, int count, bool cross, int& next) const {
        for (int i = 0; i < count; ++i) {
            Layer<Number> layer{};
            layer.self = attending(next);
            layer.self_norm = next, next += 2;
            if (cross) layer.cross = attending(next), layer.cross_norm = next, next += 2;
            layer.up = linear(outline.width, outline.inner, next);
            layer.down = linear(outline.inner, outline.width, next);
            layer.feed_norm = next, next += 2;
            stack.layers.push_back(std::move(layer));
        }
        if (outline.norm_first) stack.norm = next, next += 2;
    }
    std::vector<Linear<Number>*> linears() {
        std::vector<Linear<Number>*> found;
        for (Stack<Number>* stack : {&encoder, &decoder})
            for (Layer<Number>& layer : stack->layers) {
                for (Attending<Number>* each : {&layer.self, &layer.cross})
                    if (each->query.out)
                        for (Linear<Number>* one : {&each->query, &each->key, &each->value, &each->output}) found.push_back(one);
                found.push_back(&layer.up), found.push_back(&layer.down);
            }
        return found;
    }
    void prepare(const Lesson& lesson, int threads);
};

}  // namespace heedful::learning
