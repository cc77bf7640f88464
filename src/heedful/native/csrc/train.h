// A training step: the loss of a batch and the gradients of all weights, for the three families of heedful/model.
//
// A batch is computed in groups of a few sentences, whose activations stay in the cache from the embedding to the gradients.
// Each thread has its own groups and gradients; `add_gradients` sums them, always in the same order. Sentences
// are concatenated, so there is no padding.
#pragma once

#include "parallel.h"
#include "tape.h"

namespace heedful::train {

// The least number of tokens of a group. Weights are read and gradients written once per group, so wider models need more
// tokens to amortize that. `blocks`: all examples are about as long, so groups are of equal size (group_evenly).
inline int min_group_tokens(int width, bool blocks) { return std::max(blocks ? 128 : 256, width); }

struct Group {  // sentences that are computed together
    size_t source, target;  // offsets of its first tokens
    std::vector<Span> sources, targets;
};

// The forward and the backward pass of one group of sentences.
template <typename Scalar>
class ForwardBackward {
  public:
    ForwardBackward(const TransformerTrainer<Scalar>& trainer, Tape<Scalar>& tape) : trainer(trainer), tape(tape) {}

    void run(const Batch& batch, const Group& group) {
        const auto& [source, target, sources, targets] = group;
        const int32_t *ids = offset(batch.sources, source), *types = offset(batch.types, source);
        const int32_t *input = offset(batch.inputs, target), *labels = batch.labels + target;
        switch (trainer.config.family) {
            case ENCODER_DECODER: {
                const Tensor memory = stack(trainer.encoder, ids, types, sources, false);
                const Tensor rows = stack(trainer.decoder, input, nullptr, targets, true, &memory, &sources);
                if (!trainer.config.pointer) return finish(rows, labels, targets);
                const Tensor query = tape.linear(rows, trainer.pointer.query), key = tape.linear(memory, trainer.pointer.key);
                tape.pointer_loss(rows, query, key, trainer.pointer, ids, labels, targets, sources);
                return tape.backward();
            }
            case DECODER: return finish(stack(trainer.decoder, input, nullptr, targets, true), labels, targets);
            case ENCODER: {
                const Tensor hidden = stack(trainer.encoder, ids, types, sources, false);
                const Tensor rows = batch.predicted ? predictions(hidden, batch.predicted + target, group)
                                                    : pooled(hidden, sources);
                return finish(rows, labels, targets);
            }
            default: throw std::invalid_argument("there is no such family");
        }
    }

  private:
    const TransformerTrainer<Scalar>& trainer;
    Tape<Scalar>& tape;

    static const int32_t* offset(const int32_t* array, size_t by) { return array ? array + by : nullptr; }

    void finish(Tensor rows, const int32_t* labels, const std::vector<Span>& targets) {
        tape.loss(rows, labels, targets);
        tape.backward();
    }

    // The hidden states of a stack of layers; those of a decoder attend to a memory too, if there is one.
    Tensor stack(const Stack<Scalar>& stack, const int32_t* ids, const int32_t* types, const std::vector<Span>& spans,
                 bool causal, const Tensor* memory = nullptr, const std::vector<Span>* memory_spans = nullptr) {
        Tensor x = tape.embed(stack.embedding, ids, types, spans);
        for (const Layer<Scalar>& layer : stack.layers) {
            x = residual(x, layer.self_norm, [&](Tensor x) {
                const auto qkv = tape.linears(x, {&layer.self.query, &layer.self.key, &layer.self.value});
                if (trainer.config.positions == ROTARY) tape.rotary(qkv[0], spans), tape.rotary(qkv[1], spans);
                return tape.linear(tape.attention(qkv[0], qkv[1], qkv[2], spans, spans, causal, true), layer.self.output);
            });
            if (memory)
                x = residual(x, layer.cross_norm, [&](Tensor x) {
                    const auto kv = tape.linears(*memory, {&layer.cross.key, &layer.cross.value});
                    const Tensor query = tape.linear(x, layer.cross.query);
                    return tape.linear(tape.attention(query, kv[0], kv[1], spans, *memory_spans, false, false),
                                       layer.cross.output);
                });
            x = residual(x, layer.feed_norm, [&](Tensor x) { return feed_forward(x, layer); });
        }
        return stack.norm < 0 ? x : tape.layer_norm(x, stack.norm);
    }

    template <typename Sublayer>
    Tensor residual(Tensor x, int norm, Sublayer sublayer) {
        if (trainer.config.pre_norm) return tape.dropout_add(x, sublayer(tape.layer_norm(x, norm)));
        return tape.layer_norm(tape.dropout_add(x, sublayer(x)), norm);
    }

    Tensor feed_forward(Tensor x, const Layer<Scalar>& layer) {
        Tensor inner;
        if (trainer.config.gated()) {
            const auto both = tape.linears(x, {&layer.gate, &layer.up});
            inner = tape.silu_mul(both[0], both[1]);
        } else {
            inner = tape.activation(tape.linear(x, layer.up), trainer.config.activation);
        }
        return tape.linear(tape.dropout(inner, trainer.config.activation_dropout), layer.down);
    }

    // The hidden states of the tokens that a masked language model predicts, after the head's transform.
    Tensor predictions(Tensor hidden, const int32_t* positions, const Group& group) {
        std::vector<int> rows;
        for (size_t s = 0; s < group.sources.size(); ++s)
            for (int i = 0; i < group.targets[s].count; ++i) rows.push_back(group.sources[s].first + *positions++);
        const Tensor x = tape.gather(hidden, rows);
        if (trainer.config.head != TRANSFORM_HEAD) return x;
        return tape.layer_norm(tape.activation(tape.linear(x, trainer.transform), trainer.config.activation),
                               trainer.transform_norm);
    }

    // One vector per sentence for the classifier: from its first token by the pooler, or the mean of its tokens.
    Tensor pooled(Tensor hidden, const std::vector<Span>& sources) {
        if (!trainer.config.pooler) return tape.dropout(tape.mean_pool(hidden, sources), trainer.config.dropout);
        std::vector<int> first;
        for (const Span& span : sources) first.push_back(span.first);
        const Tensor x = tape.activation(tape.linear(tape.gather(hidden, first), trainer.pooler), TANH);
        return tape.dropout(x, trainer.config.dropout);
    }
};

template <typename Scalar>
struct TransformerTrainer<Scalar>::Worker {
    Workspace<Scalar> workspace;
    Buffer<float> candidate_grads;
};

template <typename Scalar>
void TransformerTrainer<Scalar>::pack_weights(int threads) {
    for (Linear<Scalar>* linear : all_linears) {
        linear->forward.ensure(round_up_panel(linear->out) * linear->in);
        linear->backward.ensure(round_up_panel(linear->in) * linear->out);
    }
    parallel_for_with(all_linears.size(), threads, [] { return Buffer<Scalar>(); }, [&](Buffer<Scalar>& buffer, size_t i) {
        const Linear<Scalar>& linear = *all_linears[i];
        const size_t size = size_t(linear.in) * linear.out;
        const Scalar* rows = as_operand<Scalar>(weights[linear.weight], size, buffer.ensure(size));
        pack_columns(rows, linear.in, linear.out, linear.in, linear.forward.get());
        pack_rows(rows, linear.in, linear.out, linear.in, linear.backward.get(), size_t(linear.out) * PANEL);
    });
}

// Groups of at least `tokens` tokens of an encoder-decoder, in order.
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

// Groups of about equal size of the one sequence per example that an encoder or a decoder has; an even number of them, so
// that two threads have as many.
inline std::vector<Group> group_evenly(const Batch& batch, int tokens) {
    const int32_t* lengths = batch.source_lengths ? batch.source_lengths : batch.target_lengths;
    size_t all = 0, count = 0;
    for (int s = 0; s < batch.sentences; ++s) all += lengths[s];
    size_t wanted = std::min(std::max<size_t>(1, (all + tokens / 2) / tokens), size_t(batch.sentences));
    if (wanted > 1) wanted = round_up(wanted, 2);
    std::vector<Group> groups;
    size_t source = 0, target = 0;
    for (int s = 0; s < batch.sentences; ++s) {
        if (groups.empty() || count * wanted >= all * groups.size()) groups.push_back({source, target, {}, {}});
        Group& group = groups.back();
        if (batch.source_lengths) group.sources.push_back({int(source - group.source), batch.source_lengths[s]});
        group.targets.push_back({int(target - group.target), batch.target_lengths[s]});
        if (batch.source_lengths) source += batch.source_lengths[s];
        target += batch.target_lengths[s], count += lengths[s];
    }
    return groups;
}

template <typename Scalar>
int TransformerTrainer<Scalar>::train_step(const Batch& batch, int threads, float* gradients, double* sums) {
    const int D = config.width, C = batch.candidate_count;
    const int tokens = min_group_tokens(D, config.family != ENCODER_DECODER);
    pack_weights(threads);
    candidates.pack(output_matrix(batch), batch, threads);
    const std::vector<Group> groups =
        config.family == ENCODER_DECODER ? group_sentences(batch, tokens) : group_evenly(batch, tokens);
    threads = std::max(1, std::min(threads, int(groups.size())));
    while (int(workers.size()) < threads) workers.push_back(std::make_unique<Worker>());
    std::vector<std::unique_ptr<Tape<Scalar>>> tapes;
    std::vector<const Losses<Scalar>*> losses;
    for (int i = 0; i < threads; ++i) {
        Worker& worker = *workers[i];
        float* candidate_grads = worker.candidate_grads.ensure(round_up_panel(C) * D);
        tapes.push_back(std::make_unique<Tape<Scalar>>(*this, batch, worker.workspace, gradients + i * total, candidate_grads));
        losses.push_back(&tapes.back()->losses);
    }
    ExceptionCollector exceptions;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; ++i)
        exceptions.run([&] {
            const AmxTileScope amx;
            std::fill_n(gradients + i * total, total, 0.0f);
            std::fill_n(workers[i]->candidate_grads.get(), size_t(C) * D, 0.0f);
            for (size_t g = groups.size() * i / threads; g < groups.size() * (i + 1) / threads; ++g) {
                tapes[i]->start_group(g);
                ForwardBackward<Scalar>(*this, *tapes[i]).run(batch, groups[g]);
            }
        });
    exceptions.rethrow();
    const OutputWeights& head = output(batch);
    add_output_gradients(candidates.matrix, batch, threads, losses, gradients + offsets[head.weight],
                         head.bias < 0 ? nullptr : gradients + offsets[head.bias]);
    sums[0] = sums[1] = 0;
    for (const Losses<Scalar>* loss : losses) sums[0] += loss->smoothed_loss, sums[1] += loss->nll;
    return threads;
}

// to += scale times the sum of `parts`: (count, size), the gradients that `train_step` wrote. The product is rounded before
// it is added: processes and micro-batches give the same sums, to the bit.
inline void add_gradients(const float* parts, int count, int64_t size, float scale, float* to, int threads) {
    constexpr int64_t BLOCK = 1 << 14;
    parallel_for((size + BLOCK - 1) / BLOCK, threads, [=](int64_t block) {
        const int64_t first = block * BLOCK;
        for_each_register(size_t(std::min(BLOCK, size - first)), [=](size_t at, size_t part) {
            const float* from = parts + first + at;
            VecF32 sum = load_part(from, part);
            for (int i = 1; i < count; ++i) sum += load_part(from + i * size, part);
            store_part(to + first + at, load_part(to + first + at, part) + sum * scale, part);
        });
    });
}

}  // namespace heedful::train
