// Learning: the loss of a batch and the gradients of all weights, for the encoder-decoder of heedful/model.
//
// A batch is worked through in groups of a few sentences, whose numbers stay near the CPU from their embeddings to their
// gradients. Each thread has groups and gradients of its own, which are added up in the end, always in the same order.
// Sentences stand one after the other, so there is no padding.
#pragma once

#include <exception>

#include "tape.h"

namespace heedful::learning {

constexpr int TOGETHER = 256;  // tokens of both sides that are worked on at once, at least

// A group of sentences through the whole model and back.
class Passage {
  public:
    Passage(const Learner& model, Tape& through) : learner(model), tape(through) {}

    void run(const int32_t* source, const std::vector<Span>& sources, const int32_t* input,
             const std::vector<Span>& targets, const int32_t* labels) {
        Flow memory = stack(tape.embed(source, sources), learner.encoder, sources, nullptr, sources);
        Flow hidden = stack(tape.embed(input, targets), learner.decoder, targets, &memory, sources);
        tape.lose(hidden, labels);
        tape.back();
    }

  private:
    const Learner& learner;
    Tape& tape;

    Flow stack(Flow x, const Stack& stack, const std::vector<Span>& spans, const Flow* memory,
               const std::vector<Span>& memory_spans) {
        for (const Layer& layer : stack.layers) {
            x = residual(x, layer.self_norm, [&](Flow x) { return attend(x, x, layer.self, spans, spans, memory); });
            if (memory)
                x = residual(x, layer.cross_norm,
                             [&](Flow x) { return attend(x, *memory, layer.cross, spans, memory_spans, false); });
            x = residual(x, layer.feed_norm,
                         [&](Flow x) { return tape.linear(tape.linear(x, layer.up, true), layer.down); });
        }
        return stack.norm < 0 ? x : tape.norm(x, stack.norm);
    }

    template <typename Sublayer>
    Flow residual(Flow x, int norm, Sublayer sublayer) {
        if (learner.outline.norm_first) return tape.add_dropped(x, sublayer(tape.norm(x, norm)));
        return tape.norm(tape.add_dropped(x, sublayer(x)), norm);
    }

    Flow attend(Flow x, Flow memory, const Attending& by, const std::vector<Span>& queries,
                const std::vector<Span>& keys, bool causal) {
        Flow query = tape.linear(x, by.query), key = tape.linear(memory, by.key), value = tape.linear(memory, by.value);
        return tape.linear(tape.attend(query, key, value, queries, keys, causal), by.output);
    }
};

struct Learner::Worker {
    Arena arena;
    Room<float> gradients, of_candidates;
};

inline void Learner::prepare(const Lesson& lesson, int threads) {
    const int D = outline.width, C = lesson.candidate_count;
    const std::vector<Linear*> all = linears();
    float* forward = candidates[0].at_least(panelled(C) * D);
    float* backward = candidates[1].at_least(panelled(D) * C);
    for (Linear* each : all)
        each->forward.at_least(panelled(each->out) * each->in), each->backward.at_least(panelled(each->in) * each->out);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(dynamic) nowait
        for (size_t i = 0; i < all.size(); ++i) {
            const Linear& each = *all[i];
            pack(weights[each.weight], each.in, 1, each.out, each.in, each.forward.get());
            pack(weights[each.weight], 1, each.in, each.in, each.out, each.backward.get());
        }
#pragma omp for
        for (int c = 0; c < int(panelled(C)); ++c) {
            const float* row = c < C ? weights[0] + size_t(lesson.candidates[c]) * D : nullptr;
            float* column = forward + size_t(c / PANEL) * D * PANEL + c % PANEL;
            for (int j = 0; j < D; ++j) column[size_t(j) * PANEL] = row ? row[j] : 0.0f;
            if (row)
                for (int j = 0; j < D; j += PANEL)
                    std::memcpy(backward + (size_t(j / PANEL) * C + c) * PANEL, row + j, PANEL * sizeof(float));
        }
    }
    std::vector<double> total(D);
    for (int v = 0; v < outline.vocabulary; ++v)
        for (int j = 0; j < D; ++j) total[j] += weights[0][size_t(v) * D + j];
    for (int j = 0; j < D; ++j) mean[j] = float(total[j] / outline.vocabulary);
}

struct Group {
    size_t source, target;  // where its tokens begin
    std::vector<Span> sources, targets;
};

inline std::vector<Group> grouped(const Lesson& lesson) {
    std::vector<Group> groups;
    size_t source = 0, target = 0;
    for (int s = 0; s < lesson.sentences; ++s) {
        if (groups.empty() || int(source - groups.back().source + target - groups.back().target) >= TOGETHER)
            groups.push_back({source, target, {}, {}});
        Group& group = groups.back();
        group.sources.push_back({int(source - group.source), lesson.source_lengths[s]});
        group.targets.push_back({int(target - group.target), lesson.target_lengths[s]});
        source += lesson.source_lengths[s], target += lesson.target_lengths[s];
    }
    return groups;
}

inline void Learner::learn(const Lesson& lesson, int threads, float* gradients, double* sums) {
    const int D = outline.width, C = lesson.candidate_count;
    prepare(lesson, threads);
    const std::vector<Group> groups = grouped(lesson);
    threads = std::max(1, std::min(threads, int(groups.size())));
    while (int(workers.size()) < threads) workers.push_back(std::make_unique<Worker>());
    std::vector<std::unique_ptr<Tape>> tapes;
    for (int i = 0; i < threads; ++i) {
        Worker& worker = *workers[i];
        float* own = i ? worker.gradients.at_least(total) : gradients;
        float* of_candidates = worker.of_candidates.at_least(size_t(C) * D);
        tapes.push_back(std::make_unique<Tape>(*this, lesson, worker.arena, own, of_candidates));
    }
    std::exception_ptr problem;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; ++i) {
        try {
            Tape& tape = *tapes[i];
            std::fill_n(i ? workers[i]->gradients.get() : gradients, total, 0.0f);
            std::fill_n(workers[i]->of_candidates.get(), size_t(C) * D, 0.0f);
            for (size_t g = groups.size() * i / threads; g < groups.size() * (i + 1) / threads; ++g) {
                tape.begin(g);
                Passage(*this, tape).run(lesson.sources + groups[g].source, groups[g].sources,
                                         lesson.inputs + groups[g].target, groups[g].targets,
                                         lesson.labels + groups[g].target);
            }
        } catch (...) {
#pragma omp critical
            problem = std::current_exception();
        }
    }
    if (problem) std::rethrow_exception(problem);
    for (int i = 1; i < threads; ++i) {
#pragma omp parallel for num_threads(threads)
        for (int64_t at = 0; at < total; ++at) gradients[at] += workers[i]->gradients.get()[at];
    }
    std::vector<float> push(D);
    for (int j = 0; j < D; ++j)
        for (const auto& tape : tapes)
            push[j] -= float(double(lesson.smoothing) / outline.vocabulary * tape->hidden_sum[j]);
#pragma omp parallel for num_threads(threads)
    for (int v = 0; v < outline.vocabulary; ++v) add_scaled(gradients + size_t(v) * D, push.data(), 1.0f, D);
    for (int i = 0; i < threads; ++i) {
        const float* of_candidates = workers[i]->of_candidates.get();
#pragma omp parallel for num_threads(threads)
        for (int c = 0; c < C; ++c)
            add_scaled(gradients + size_t(lesson.candidates[c]) * D, of_candidates + size_t(c) * D, 1.0f, D);
    }
    sums[0] = sums[1] = 0;
    for (const auto& tape : tapes) sums[0] += tape->smoothed, sums[1] += tape->likelihood;
}

}  // namespace heedful::learning
