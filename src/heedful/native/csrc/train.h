// A training step: the loss of a batch and the gradients of all weights, for the encoder-decoder of heedful/model.
//
// A batch is computed in groups of a few sentences, whose activations stay in the cache from the embedding to the gradients.
// Each thread has its own groups and gradients; the gradients are summed at the end, always in the same order. Sentences
// are concatenated, so there is no padding.
#pragma once

#include "parallel.h"
#include "tape.h"

namespace heedful::train {

// The least number of source and target tokens of a group. Weights are read and gradients written once per group, so wider
// models need more tokens to amortize that.
inline int min_group_tokens(int width) { return std::max(256, width); }

// The forward and the backward pass of one group of sentences.
template <typename Scalar>
class ForwardBackward {
  public:
    ForwardBackward(const TransformerTrainer<Scalar>& trainer, Tape<Scalar>& tape) : trainer(trainer), tape(tape) {}

    void run(const int32_t* source, const std::vector<Span>& sources, const int32_t* input,
             const std::vector<Span>& targets, const int32_t* labels) {
        Tensor memory = stack(tape.embed(source, sources), trainer.encoder, sources, nullptr, sources);
        Tensor hidden = stack(tape.embed(input, targets), trainer.decoder, targets, &memory, sources);
        tape.loss(hidden, labels, targets);
        tape.backward();
    }

  private:
    const TransformerTrainer<Scalar>& trainer;
    Tape<Scalar>& tape;

    Tensor stack(Tensor x, const Stack<Scalar>& stack, const std::vector<Span>& spans, const Tensor* memory,
                 const std::vector<Span>& memory_spans) {
        for (const Layer<Scalar>& layer : stack.layers) {
            x = residual(x, layer.self_norm, [&](Tensor x) {
                const auto qkv = tape.linears(x, {&layer.self.query, &layer.self.key, &layer.self.value});
                return attend(qkv[0], qkv[1], qkv[2], layer.self.output, spans, spans, memory);
            });
            if (memory)
                x = residual(x, layer.cross_norm, [&](Tensor x) {
                    const auto kv = tape.linears(*memory, {&layer.cross.key, &layer.cross.value});
                    const Tensor query = tape.linear(x, layer.cross.query);
                    return attend(query, kv[0], kv[1], layer.cross.output, spans, memory_spans, false);
                });
            x = residual(x, layer.feed_norm,
                         [&](Tensor x) { return tape.linear(tape.relu(tape.linear(x, layer.up)), layer.down); });
        }
        return stack.norm < 0 ? x : tape.layer_norm(x, stack.norm);
    }

    template <typename Sublayer>
    Tensor residual(Tensor x, int norm, Sublayer sublayer) {
        if (trainer.config.pre_norm) return tape.dropout_add(x, sublayer(tape.layer_norm(x, norm)));
        return tape.layer_norm(tape.dropout_add(x, sublayer(x)), norm);
    }

    Tensor attend(Tensor query, Tensor key, Tensor value, const Linear<Scalar>& output, const std::vector<Span>& queries,
                  const std::vector<Span>& keys, bool causal) {
        return tape.linear(tape.attention(query, key, value, queries, keys, causal), output);
    }
};

template <typename Scalar>
struct TransformerTrainer<Scalar>::Worker {
    Arena arena;
    Buffer<float> gradients, candidate_grads;
};

template <typename Scalar>
void TransformerTrainer<Scalar>::pack_weights(const Batch& batch, int threads) {
    const int D = config.width, C = batch.candidate_count, P = int(round_up_panel(C));
    const std::vector<Linear<Scalar>*> all = linears();
    Scalar* forward = candidates[0].ensure(size_t(P) * D);
    Scalar* backward = candidates[1].ensure(round_up_panel(D) * P);
    for (Linear<Scalar>* linear : all) {
        linear->forward.ensure(round_up_panel(linear->out) * linear->in);
        linear->backward.ensure(round_up_panel(linear->in) * linear->out);
    }
    ExceptionCollector exceptions;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Buffer<Scalar> buffer;
        Buffer<float> embeddings;
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < all.size(); ++i) {
            const Linear<Scalar>& linear = *all[i];
            const size_t size = size_t(linear.in) * linear.out;
            exceptions.run([&] {
                const Scalar* rows = as_operand<Scalar>(weights[linear.weight], size, buffer.ensure(size));
                pack_columns(rows, linear.in, linear.out, linear.in, linear.forward.get());
                pack_rows(rows, linear.in, linear.out, linear.in, linear.backward.get(), size_t(linear.out) * PANEL);
            });
        }
#pragma omp for
        for (int first = 0; first < P; first += PANEL)
            exceptions.run([&] {
                float* panel = embeddings.ensure(size_t(PANEL) * D);
                for (int c = first; c < first + PANEL; ++c, panel += D)
                    if (c < C)
                        std::memcpy(panel, weights[0] + size_t(batch.candidates[c]) * D, D * sizeof(float));
                    else
                        std::fill_n(panel, D, 0.0f);
                const size_t size = size_t(PANEL) * D;
                const Scalar* rows = as_operand<Scalar>(embeddings.get(), size, buffer.ensure(size));
                pack_columns(rows, D, PANEL, D, forward + size_t(first) * D);
                pack_rows(rows, D, PANEL, D, backward + size_t(first) * PANEL, size_t(P) * PANEL);
            });
    }
    exceptions.rethrow();
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int first = 0; first < D; first += LANES) {
        double total[LANES] = {};
        for (int v = 0; v < config.vocabulary; ++v)
            for (int j = 0; j < LANES; ++j) total[j] += weights[0][size_t(v) * D + first + j];
        for (int j = 0; j < LANES; ++j) mean[first + j] = float(total[j] / config.vocabulary);
    }
}

struct Group {  // sentences that are computed together
    size_t source, target;  // offsets of its first tokens
    std::vector<Span> sources, targets;
};

inline std::vector<Group> group_sentences(const Batch& batch, int tokens) {
    std::vector<Group> groups;
    size_t source = 0, target = 0;
    for (int s = 0; s < batch.sentences; ++s) {
        const bool second_pass = batch.rdrop > 0 && s % 2;  // both passes of R-Drop stay in one group
        const bool full = !groups.empty() && int(source - groups.back().source + target - groups.back().target) >= tokens;
        if (groups.empty() || (full && !second_pass))
            groups.push_back({source, target, {}, {}});
        Group& group = groups.back();
        group.sources.push_back({int(source - group.source), batch.source_lengths[s]});
        group.targets.push_back({int(target - group.target), batch.target_lengths[s]});
        source += batch.source_lengths[s], target += batch.target_lengths[s];
    }
    return groups;
}

template <typename Scalar>
void TransformerTrainer<Scalar>::train_step(const Batch& batch, int threads, float* gradients, double* sums) {
    const int D = config.width, C = batch.candidate_count;
    pack_weights(batch, threads);
    const std::vector<Group> groups = group_sentences(batch, min_group_tokens(D));
    threads = std::max(1, std::min(threads, int(groups.size())));
    while (int(workers.size()) < threads) workers.push_back(std::make_unique<Worker>());
    std::vector<std::unique_ptr<Tape<Scalar>>> tapes;
    for (int i = 0; i < threads; ++i) {
        Worker& worker = *workers[i];
        float* own = i ? worker.gradients.ensure(total) : gradients;
        float* candidate_grads = worker.candidate_grads.ensure(round_up_panel(C) * D);
        tapes.push_back(std::make_unique<Tape<Scalar>>(*this, batch, worker.arena, own, candidate_grads));
    }
    ExceptionCollector exceptions;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; ++i)
        exceptions.run([&] {
            const AmxTileScope amx;
            Tape<Scalar>& tape = *tapes[i];
            std::fill_n(i ? workers[i]->gradients.get() : gradients, total, 0.0f);
            std::fill_n(workers[i]->candidate_grads.get(), size_t(C) * D, 0.0f);
            for (size_t g = groups.size() * i / threads; g < groups.size() * (i + 1) / threads; ++g) {
                tape.start_group(g);
                const auto& [source, target, sources, targets] = groups[g];
                ForwardBackward<Scalar>(*this, tape).run(batch.sources + source, sources, batch.inputs + target, targets,
                                                         batch.labels + target);
            }
        });
    exceptions.rethrow();
    for (int i = 1; i < threads; ++i) {
#pragma omp parallel for num_threads(threads)
        for (int64_t at = 0; at < total; ++at) gradients[at] += workers[i]->gradients.get()[at];
    }
    std::vector<float> smoothing_grad(D);
    for (int j = 0; j < D; ++j)
        for (const auto& tape : tapes)
            smoothing_grad[j] -= float(double(batch.label_smoothing) / config.vocabulary * tape->losses.hidden_sum[j]);
#pragma omp parallel for num_threads(threads)
    for (int v = 0; v < config.vocabulary; ++v) axpy(gradients + size_t(v) * D, smoothing_grad.data(), 1.0f, D);
    for (int i = 0; i < threads; ++i) {
        const float* candidate_grads = workers[i]->candidate_grads.get();
#pragma omp parallel for num_threads(threads)
        for (int c = 0; c < C; ++c)
            axpy(gradients + size_t(batch.candidates[c]) * D, candidate_grads + size_t(c) * D, 1.0f, D);
    }
    sums[0] = sums[1] = 0;
    for (const auto& tape : tapes) sums[0] += tape->losses.smoothed_loss, sums[1] += tape->losses.nll;
}

}  // namespace heedful::train
