// Learning: the loss of a batch and the gradients of all weights, for the encoder-decoder of heedful/model.
//
// A batch is worked through in groups of a few sentences, whose numbers stay near the CPU from their embeddings to their
// gradients. Each thread has groups and gradients of its own, which are added up in the end, always in the same order.
// Sentences stand one after the other, so there is no padding.
#pragma once

#include "parallel.h"
#include "tape.h"

namespace heedful::learning {

// Tokens of both sides that are worked on at once, at least: the wider a model, the more have to share its weights and
// gradients, which are read and written for every group.
inline int together(int width) { return std::max(256, width); }

// A group of sentences through the whole model and back.
template <typename Number>
class Passage {
  public:
    Passage(const Learner<Number>& model, Tape<Number>& through) : learner(model), tape(through) {}

    void run(const int32_t* source, const std::vector<Span>& sources, const int32_t* input,
             const std::vector<Span>& targets, const int32_t* labels) {
        Flow memory = stack(tape.embed(source, sources), learner.encoder, sources, nullptr, sources);
        Flow hidden = stack(tape.embed(input, targets), learner.decoder, targets, &memory, sources);
        tape.lose(hidden, labels, targets);
        tape.back();
    }

  private:
    const Learner<Number>& learner;
    Tape<Number>& tape;

    Flow stack(Flow x, const Stack<Number>& stack, const std::vector<Span>& spans, const Flow* memory,
               const std::vector<Span>& memory_spans) {
        for (const Layer<Number>& layer : stack.layers) {
            x = residual(x, layer.self_norm, [&](Flow x) {
                const std::vector<Flow> by = tape.linears(x, {&layer.self.query, &layer.self.key, &layer.self.value});
                return attend(by[0], by[1], by[2], layer.self.output, spans, spans, memory);
            });
            if (memory)
                x = residual(x, layer.cross_norm, [&](Flow x) {
                    const std::vector<Flow> by = tape.linears(*memory, {&layer.cross.key, &layer.cross.value});
                    const Flow query = tape.linear(x, layer.cross.query);
                    return attend(query, by[0], by[1], layer.cross.output, spans, memory_spans, false);
                });
            x = residual(x, layer.feed_norm,
                         [&](Flow x) { return tape.linear(tape.positive(tape.linear(x, layer.up)), layer.down); });
        }
        return stack.norm < 0 ? x : tape.norm(x, stack.norm);
    }

    template <typename Sublayer>
    Flow residual(Flow x, int norm, Sublayer sublayer) {
        if (learner.outline.norm_first) return tape.add_dropped(x, sublayer(tape.norm(x, norm)));
        return tape.norm(tape.add_dropped(x, sublayer(x)), norm);
    }

    Flow attend(Flow query, Flow key, Flow value, const Linear<Number>& output, const std::vector<Span>& queries,
                const std::vector<Span>& keys, bool causal) {
        return tape.linear(tape.attend(query, key, value, queries, keys, causal), output);
    }
};

template <typename Number>
struct Learner<Number>::Worker {
    Arena arena;
    Room<float> gradients, of_candidates;
};

template <typename Number>
void Learner<Number>::prepare(const Lesson& lesson, int threads) {
    const int D = outline.width, C = lesson.candidate_count, P = int(panelled(C));
    const std::vector<Linear<Number>*> all = linears();
    Number* forward = candidates[0].at_least(size_t(P) * D);
    Number* backward = candidates[1].at_least(panelled(D) * P);
    for (Linear<Number>* each : all) {
        each->forward.at_least(panelled(each->out) * each->in);
        each->backward.at_least(panelled(each->in) * each->out);
    }
    Caught caught;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Room<Number> room;
        Room<float> gathered;
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < all.size(); ++i) {
            const Linear<Number>& each = *all[i];
            const size_t size = size_t(each.in) * each.out;
            caught.run([&] {
                const Number* rows = as<Number>(weights[each.weight], size, room.at_least(size));
                pack_columns(rows, each.in, each.out, each.in, each.forward.get());
                pack_rows(rows, each.in, each.out, each.in, each.backward.get(), size_t(each.out) * PANEL);
            });
        }
#pragma omp for
        for (int first = 0; first < P; first += PANEL)
            caught.run([&] {
                float* panel = gathered.at_least(size_t(PANEL) * D);
                for (int c = first; c < first + PANEL; ++c, panel += D)
                    if (c < C)
                        std::memcpy(panel, weights[0] + size_t(lesson.candidates[c]) * D, D * sizeof(float));
                    else
                        std::fill_n(panel, D, 0.0f);
                const Number* rows = as<Number>(gathered.get(), size_t(PANEL) * D, room.at_least(size_t(PANEL) * D));
                pack_columns(rows, D, PANEL, D, forward + size_t(first) * D);
                pack_rows(rows, D, PANEL, D, backward + size_t(first) * PANEL, size_t(P) * PANEL);
            });
    }
    caught.rethrow();
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int first = 0; first < D; first += LANES) {
        double total[LANES] = {};
        for (int v = 0; v < outline.vocabulary; ++v)
            for (int j = 0; j < LANES; ++j) total[j] += weights[0][size_t(v) * D + first + j];
        for (int j = 0; j < LANES; ++j) mean[first + j] = float(total[j] / outline.vocabulary);
    }
}

struct Group {
    size_t source, target;  // where its tokens begin
    std::vector<Span> sources, targets;
};

inline std::vector<Group> grouped(const Lesson& lesson, int tokens) {
    std::vector<Group> groups;
    size_t source = 0, target = 0;
    for (int s = 0; s < lesson.sentences; ++s) {
        const bool second = lesson.consistency > 0 && s % 2;  // twins stay together
        const bool full = !groups.empty() && int(source - groups.back().source + target - groups.back().target) >= tokens;
        if (groups.empty() || (full && !second))
            groups.push_back({source, target, {}, {}});
        Group& group = groups.back();
        group.sources.push_back({int(source - group.source), lesson.source_lengths[s]});
        group.targets.push_back({int(target - group.target), lesson.target_lengths[s]});
        source += lesson.source_lengths[s], target += lesson.target_lengths[s];
    }
    return groups;
}

template <typename Number>
void Learner<Number>::learn(const Lesson& lesson, int threads, float* gradients, double* sums) {
    const int D = outline.width, C = lesson.candidate_count;
    prepare(lesson, threads);
    const std::vector<Group> groups = grouped(lesson, together(D));
    threads = std::max(1, std::min(threads, int(groups.size())));
    while (int(workers.size()) < threads) workers.push_back(std::make_unique<Worker>());
    std::vector<std::unique_ptr<Tape<Number>>> tapes;
    for (int i = 0; i < threads; ++i) {
        Worker& worker = *workers[i];
        float* own = i ? worker.gradients.at_least(total) : gradients;
        float* of_candidates = worker.of_candidates.at_least(panelled(C) * D);
        tapes.push_back(std::make_unique<Tape<Number>>(*this, lesson, worker.arena, own, of_candidates));
    }
    Caught caught;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; ++i)
        caught.run([&] {
            const Tiles tiles;
            Tape<Number>& tape = *tapes[i];
            std::fill_n(i ? workers[i]->gradients.get() : gradients, total, 0.0f);
            std::fill_n(workers[i]->of_candidates.get(), size_t(C) * D, 0.0f);
            for (size_t g = groups.size() * i / threads; g < groups.size() * (i + 1) / threads; ++g) {
                tape.begin(g);
                const auto& [source, target, sources, targets] = groups[g];
                Passage<Number>(*this, tape).run(lesson.sources + source, sources, lesson.inputs + target, targets,
                                                 lesson.labels + target);
            }
        });
    caught.rethrow();
    for (int i = 1; i < threads; ++i) {
#pragma omp parallel for num_threads(threads)
        for (int64_t at = 0; at < total; ++at) gradients[at] += workers[i]->gradients.get()[at];
    }
    std::vector<float> push(D);
    for (int j = 0; j < D; ++j)
        for (const auto& tape : tapes)
            push[j] -= float(double(lesson.smoothing) / outline.vocabulary * tape->losses.hidden_sum[j]);
#pragma omp parallel for num_threads(threads)
    for (int v = 0; v < outline.vocabulary; ++v) add_scaled(gradients + size_t(v) * D, push.data(), 1.0f, D);
    for (int i = 0; i < threads; ++i) {
        const float* of_candidates = workers[i]->of_candidates.get();
#pragma omp parallel for num_threads(threads)
        for (int c = 0; c < C; ++c)
            add_scaled(gradients + size_t(lesson.candidates[c]) * D, of_candidates + size_t(c) * D, 1.0f, D);
    }
    sums[0] = sums[1] = 0;
    for (const auto& tape : tapes) sums[0] += tape->losses.smoothed, sums[1] += tape->losses.likelihood;
}

}  // namespace heedful::learning
