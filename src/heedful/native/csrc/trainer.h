// The model that is trained: its weights, the layout of their gradients, and their packed panels.
//
// Legend: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V vocabulary, N
// tokens of a group, C candidates of the (sampled) softmax.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "gemm_bf16.h"

namespace heedful::train {

struct TrainConfig {  // native/capi.py mirrors it
    int32_t width, inner, heads, encoder_layers, decoder_layers, vocabulary, pre_norm;
    float norm_epsilon, embedding_scale, dropout;
};

struct Batch {  // without padding; native/capi.py mirrors it
    const int32_t *sources, *source_lengths;  // token ids of all sentences concatenated, and the length of each sentence
    const int32_t *inputs, *target_lengths;   // the same of the decoder's input
    const int32_t* labels;                    // indices of the target tokens among the candidates
    const int32_t* candidates;                // token ids
    const float* logit_bias;                  // added to the candidates' logits: the correction of the sampled softmax
    int32_t sentences, candidate_count;
    float label_smoothing;
    float rdrop;  // R-Drop's weight; if it is not 0, sentences 2 i and 2 i + 1 are two passes of one sentence
    uint64_t seed;
};

template <typename Scalar>
struct Linear {  // W: (out, in), and b: (out)
    int weight, bias, in, out;
    Buffer<Scalar> forward, backward;  // panels of Wᵀ, for y = x Wᵀ, and of W, for dx = dy W
};

template <typename Scalar>
struct Attention {
    Linear<Scalar> query, key, value, output;
};

template <typename Scalar>
struct Layer {
    Attention<Scalar> self, cross;
    Linear<Scalar> up, down;
    int self_norm, cross_norm, feed_norm;  // indices of the norms' weights; their biases follow
};

template <typename Scalar>
struct Stack {
    std::vector<Layer<Scalar>> layers;
    int norm = -1;  // the final norm of a pre-norm stack
};

// Trains a model; GEMMs with weights are computed in float32 or bf16.
class Trainer {
  public:
    virtual ~Trainer() = default;
    // One forward and backward pass -> the gradients of all weights, concatenated, and the sums of the smoothed loss and of
    // the negative log-likelihood.
    virtual void train_step(const Batch& batch, int threads, float* gradients, double* sums) = 0;
};

// A trainer for GEMM operands of type Scalar. Weights are numbered in the order in which a forward pass uses them.
template <typename Scalar>
class TransformerTrainer : public Trainer {
  public:
    const TrainConfig config;
    std::vector<const float*> weights;
    std::vector<int64_t> offsets;  // of each weight's gradient
    int64_t total;
    Stack<Scalar> encoder, decoder;
    const float* positions;        // (max_length, D)
    std::vector<float> mean;       // (D): the mean of all embeddings, for label smoothing
    Buffer<Scalar> candidates[2];  // panels of the candidates' embeddings, for the forward and the backward pass

    TransformerTrainer(const TrainConfig& config, const float* const* weights, const int64_t* sizes, int count,
                       const float* positions)
        : config(config), weights(weights, weights + count), total(0), positions(positions), mean(config.width) {
        for (int i = 0; i < count; ++i) offsets.push_back(total), total += sizes[i];
        int next = 1;  // 0 is the embedding
        build(encoder, config.encoder_layers, false, next);
        build(decoder, config.decoder_layers, true, next);
        if (next != count) throw std::invalid_argument("the model has another number of weights");
    }

    void train_step(const Batch& batch, int threads, float* gradients, double* sums) override;

  private:
    struct Worker;
    std::vector<std::unique_ptr<Worker>> workers;

    Linear<Scalar> linear(int in, int out, int& next) const {
        return next += 2, Linear<Scalar>{next - 2, next - 1, in, out, {}, {}};
    }
    Attention<Scalar> attention(int& next) const {
        const int D = config.width;
        Linear<Scalar> query = linear(D, D, next), key = linear(D, D, next), value = linear(D, D, next);
        return {std::move(query), std::move(key), std::move(value), linear(D, D, next)};
    }
    void build(Stack<Scalar>& stack, int count, bool cross, int& next) const {
        for (int i = 0; i < count; ++i) {
            Layer<Scalar> layer{};
            layer.self = attention(next);
            layer.self_norm = next, next += 2;
            if (cross) layer.cross = attention(next), layer.cross_norm = next, next += 2;
            layer.up = linear(config.width, config.inner, next);
            layer.down = linear(config.inner, config.width, next);
            layer.feed_norm = next, next += 2;
            stack.layers.push_back(std::move(layer));
        }
        if (config.pre_norm) stack.norm = next, next += 2;
    }
    std::vector<Linear<Scalar>*> linears() {
        std::vector<Linear<Scalar>*> all;
        for (Stack<Scalar>* stack : {&encoder, &decoder})
            for (Layer<Scalar>& layer : stack->layers) {
                for (Attention<Scalar>* attention : {&layer.self, &layer.cross})
                    if (attention->query.out)
                        for (Linear<Scalar>* linear :
                             {&attention->query, &attention->key, &attention->value, &attention->output})
                            all.push_back(linear);
                all.push_back(&layer.up), all.push_back(&layer.down);
            }
        return all;
    }
    void pack_weights(const Batch& batch, int threads);
};

}  // namespace heedful::train
