// What is done to the numbers of a group of sentences: every operation once, forward and backward.
//
// Forward it computes, and leaves on the tape what is to be done backward.
#pragma once

#include <functional>

#include "flows.h"
#include "learner.h"

namespace heedful::learning {

constexpr size_t LOGITS_AT_ONCE = 1 << 17;  // numbers
constexpr int ROWS_AT_ONCE = 32;            // of logits, at least
constexpr int CANDIDATES_AT_ONCE = 512;     // of all rows, in halves

// What is done forward, with what is to be done backward for it; for one group after the other. Products with weights are
// computed in `Number`, all else in float32.
template <typename Number>
class Tape {
  public:
    // Gradients, of all weights in one row and of the candidates, (C, D), are added to what is there.
    Tape(const Learner<Number>& model, const Lesson& batch, Arena& memory, float* of_weights, float* of_the_candidates)
        : hidden_sum(model.outline.width), learner(model), lesson(batch), D(model.outline.width), arena(memory),
          slopes(memory), gradients(of_weights), of_candidates(of_the_candidates) {}

    std::vector<double> hidden_sum;  // (D): of all hidden states, which smoothing pushes all embeddings away from
    double smoothed = 0, likelihood = 0;

    void begin(uint64_t number) {
        group = number, site = 0;
        arena.give_back(), slopes.forget(), steps.clear();
    }
    void back() {
        for (size_t i = steps.size(); i--;) steps[i]();
    }

    // Embeddings with positions, after dropout.
    Flow embed(const int32_t* ids, const std::vector<Span>& spans) {
        const Flow x = flow(spans.back().first + spans.back().count, D);
        const float* table = learner.weights[0];
        const Outline& shape = learner.outline;
        const uint64_t here = site++;
        Random random(lesson.seed, group, here);
        for (const Span& span : spans)
            for (int i = 0; i < span.count; ++i) {
                const float *from = table + size_t(ids[span.first + i]) * D, *position = learner.positions + size_t(i) * D;
                float* to = x.value + size_t(span.first + i) * D;
                for (int j = 0; j < D; j += LANES)
                    store(to + j, kept(random) * fused(load(from + j), all(shape.embedding_scale), load(position + j)));
            }
        steps.push_back([=] {
            Random again(lesson.seed, group, here);
            for (int i = 0; i < x.rows; ++i) {
                float* to = gradients + size_t(ids[i]) * D;
                const float* from = slope(x) + size_t(i) * D;
                for (int j = 0; j < D; j += LANES)
                    store(to + j, fused(load(from + j) * shape.embedding_scale, kept(again), load(to + j)));
            }
            spend(x);
        });
        return x;
    }

    // x Wᵀ + b
    Flow linear(Flow x, const Linear<Number>& layer) { return linears(x, {&layer})[0]; }

    // The same for several layers.
    std::vector<Flow> linears(Flow x, const std::vector<const Linear<Number>*>& layers) {
        const Number* rows = laid(x);
        std::vector<Flow> all;
        for (const Linear<Number>* layer : layers) {
            all.push_back(flow(x.rows, layer->out));
            multiply<false>(rows, layer->in, x.rows, layer->in, layer->forward.get(), layer->out, all.back().value,
                            layer->out, learner.weights[layer->bias]);
        }
        steps.push_back([=] {
            const Number* panels = panels_of(rows, x.rows, x.width);
            for (size_t i = 0; i < layers.size(); ++i) {
                const Flow& y = all[i];
                const int in = x.width, out = y.width;
                const Number *weight = layers[i]->backward.get(), *dy = laid_now(slope(y), y);
                if (*x.slope)
                    multiply<true>(dy, out, y.rows, out, weight, in, *x.slope, in);
                else
                    multiply<false>(dy, out, y.rows, out, weight, in, *x.slope = slopes.take(x.room()), in);
                add_products(dy, out, y.rows, out, panels, in, gradient(layers[i]->weight), turned);
                add_rows(slope(y), y.rows, out, gradient(layers[i]->bias));
                spend(y);
            }
        });
        return all;
    }

    // What is positive of it.
    Flow positive(Flow x) {
        for (size_t i = 0; i < x.size(); ++i) x.value[i] = std::max(x.value[i], 0.0f);
        steps.push_back([=] {
            float* dx = slope(x);
            for (size_t i = 0; i < x.size(); ++i) dx[i] = x.value[i] > 0 ? dx[i] : 0.0f;
        });
        return x;
    }

    // Rows of mean 0 and variance 1, times a weight, plus a bias.
    Flow norm(Flow x, int weight) {
        const Flow y = flow(x.rows, D);
        float* deviations = arena.take(2 * size_t(x.rows));  // mean and 1 / deviation of each row
        const float *scale = learner.weights[weight], *bias = learner.weights[weight + 1];
        for (int r = 0; r < x.rows; ++r) {
            const float* row = x.value + size_t(r) * D;
            Floats total{}, squares{};
            for (int j = 0; j < D; j += LANES) total += load(row + j);
            const float mean = sum(total) / D;
            for (int j = 0; j < D; j += LANES) {
                const Floats apart = load(row + j) - mean;
                squares = fused(apart, apart, squares);
            }
            const float inverse = 1 / std::sqrt(sum(squares) / D + learner.outline.norm_epsilon);
            deviations[2 * r] = mean, deviations[2 * r + 1] = inverse;
            for (int j = 0; j < D; j += LANES)
                store(y.value + size_t(r) * D + j,
                      fused((load(row + j) - mean) * inverse, load(scale + j), load(bias + j)));
        }
        steps.push_back([=] {
            float *of_scale = gradient(weight), *of_bias = gradient(weight + 1);
            float *dx = slope(x), *dy = slope(y);
            for (int r = 0; r < x.rows; ++r) {
                const float *row = x.value + size_t(r) * D, *from = dy + size_t(r) * D;
                const float mean = deviations[2 * r], inverse = deviations[2 * r + 1];
                Floats plain{}, along{};
                for (int j = 0; j < D; j += LANES) {
                    const Floats unit = (load(row + j) - mean) * inverse, each = load(from + j);
                    store(of_scale + j, fused(each, unit, load(of_scale + j)));
                    store(of_bias + j, load(of_bias + j) + each);
                    plain += each * load(scale + j);
                    along = fused(each * load(scale + j), unit, along);
                }
                const float level = sum(plain) / D, lean = sum(along) / D;
                float* to = dx + size_t(r) * D;
                for (int j = 0; j < D; j += LANES) {
                    const Floats unit = (load(row + j) - mean) * inverse;
                    const Floats apart = load(from + j) * load(scale + j) - level - unit * lean;
                    store(to + j, fused(apart, all(inverse), load(to + j)));
                }
            }
            spend(y);
        });
        return y;
    }

    // x + dropout(y), in the place of y.
    Flow add_dropped(Flow x, Flow y) {
        const Flow z{y.value, slopes.none(), y.rows, y.width};
        const uint64_t here = site++;
        Random random(lesson.seed, group, here);
        for (size_t i = 0; i < z.size(); i += LANES)
            store(z.value + i, fused(load(y.value + i), kept(random), load(x.value + i)));
        steps.push_back([=] {
            Random again(lesson.seed, group, here);
            const float* dz = slope(z);
            float *dx = *x.slope, *dy = *y.slope = slopes.take(y.room());
            for (size_t i = 0; i < z.size(); i += LANES) {
                store(dy + i, load(dz + i) * kept(again));
                if (dx) store(dx + i, load(dx + i) + load(dz + i));
            }
            if (dx)
                spend(z);
            else
                std::swap(*x.slope, *z.slope);
        });
        return z;
    }

    // softmax(Q Kᵀ / √d) V in each head of each sentence; if `causal`, only of what came before.
    Flow attend(Flow query, Flow key, Flow value, const std::vector<Span>& queries, const std::vector<Span>& keys,
                bool causal) {
        const Flow found = flow(query.rows, D);
        steps.push_back([=] { spend(found); });
        const int heads = learner.outline.heads, d = D / heads;
        const float scale = 1 / std::sqrt(float(d));
        for (size_t s = 0; s < queries.size(); ++s) {
            const int T = queries[s].count, S = keys[s].count, P = int(filled(S));
            float* panels = space(std::max(panelled(S) * d, panelled(d) * S));
            for (int head = 0; head < heads; ++head) {
                const size_t q = size_t(queries[s].first) * D + head * d, k = size_t(keys[s].first) * D + head * d;
                float* weights = arena.take(size_t(T) * P);
                pack(key.value + k, D, 1, S, d, panels);
                multiply<false>(query.value + q, D, 1, T, d, panels, S, weights, P);
                for (int t = 0; t < T; ++t) {
                    float* row = weights + size_t(t) * P;
                    const int seen = causal ? t + 1 : S;
                    for (int i = 0; i < seen; ++i) row[i] *= scale;
                    const float total = 1 / exponentials<false>(row, seen, maximum(row, seen));
                    for (int i = 0; i < seen; ++i) row[i] *= total;
                    std::fill(row + seen, row + P, 0.0f);
                }
                pack(value.value + k, 1, D, d, S, panels);
                multiply<false>(weights, P, 1, T, S, panels, d, found.value + q, D);
                steps.push_back([=] {
                    const int most = std::max(S, T);
                    float* room = space(std::max(panelled(most) * d, panelled(d) * most) + size_t(T) * P);
                    float* pulls = room + std::max(panelled(most) * d, panelled(d) * most);  // (T, P)
                    pack(value.value + k, D, 1, S, d, room);
                    multiply<false>(slope(found) + q, D, 1, T, d, room, S, pulls, P);
                    pack(slope(found) + q, 1, D, d, T, room);
                    multiply<true>(weights, 1, P, S, T, room, d, slope(value) + k, D);
                    for (int t = 0; t < T; ++t) {
                        float *row = pulls + size_t(t) * P, *weight = weights + size_t(t) * P;
                        const float level = dot(row, weight, P);
                        for (int i = 0; i < P; ++i) row[i] = (row[i] - level) * weight[i] * scale;
                    }
                    pack(key.value + k, 1, D, d, S, room);
                    multiply<true>(pulls, P, 1, T, S, room, d, slope(query) + q, D);
                    pack(query.value + q, 1, D, d, T, room);
                    multiply<true>(pulls, 1, P, S, T, room, d, slope(key) + k, D);
                });
            }
        }
        return found;
    }

    // Cross-entropy of the labels among the candidates, with its gradients at once, so that few logits are held.
    void lose(Flow x, const int32_t* labels) {
        if constexpr (std::is_same_v<Number, Half>)
            lose_by_candidates(x, labels);
        else
            lose_by_rows(x, labels);
    }

  private:
    const Learner<Number>& learner;
    const Lesson& lesson;
    const int D;
    Arena& arena;
    Slopes slopes;
    float *gradients, *of_candidates;
    uint64_t group = 0, site = 0;  // random numbers follow from them and the seed
    std::vector<std::function<void()>> steps;
    Room<float> scratch;
    Room<Number> columns, turned, laid_rows;

    float* gradient(int weight) const { return gradients + learner.offsets[weight]; }
    float* space(size_t count) { return scratch.at_least(count); }

    Flow flow(int rows, int width) { return {arena.take(stacked(rows) * width), slopes.none(), rows, width}; }

    // What is known of it, or zeros to add to.
    float* slope(const Flow& x) {
        if (!*x.slope) std::fill_n(*x.slope = slopes.take(x.room()), x.size(), 0.0f);
        return *x.slope;
    }
    void spend(const Flow& x) { slopes.give_back(*x.slope, x.room()); }

    // Its rows as products take them: for as long as the group is worked on, or until the next one is asked for.
    const Number* laid(const Flow& x) {
        Number* room = std::is_same_v<Number, Half> ? arena.template take<Number>(x.room()) : nullptr;
        return as<Number>(x.value, x.size(), room);
    }
    const Number* laid_now(const float* rows, const Flow& like) {
        return as<Number>(rows, like.size(), laid_rows.at_least(like.room()));
    }
    // Panels of these rows, until the next ones are asked for.
    const Number* panels_of(const Number* rows, int count, int width) {
        const size_t length = depth<Number>(count);
        pack_rows(rows, width, count, width, columns.at_least(panelled(width) * length), length * PANEL);
        return columns.get();
    }

    // All logits of a few rows at once.
    void lose_by_rows(Flow x, const int32_t* labels) {
        const int C = lesson.candidate_count, P = int(panelled(C));
        const int most = std::max(ROWS_AT_ONCE, int(LOGITS_AT_ONCE / P));
        float* logits = arena.take(size_t(std::min(most, x.rows)) * P);
        for (int first = 0; first < x.rows; first += most) {
            const int rows = std::min(most, x.rows - first);
            const float* hidden = x.value + size_t(first) * D;
            float* dx = slope(x) + size_t(first) * D;
            multiply<false>(hidden, D, rows, D, learner.candidates[0].get(), P, logits, P, lesson.shifts);
            for (int r = 0; r < rows; ++r) {
                float* row = logits + size_t(r) * P;
                const int label = labels[first + r];
                const float most_likely = maximum(row, C), right = row[label];
                const float total = exponentials<false>(row, C, most_likely);
                count_loss(hidden + size_t(r) * D, dx + size_t(r) * D, most_likely, total, right);
                const float inverse = 1 / total;
                for (int i = 0; i < C; ++i) row[i] *= inverse;
                std::fill(row + C, row + P, 0.0f);
                row[label] -= 1 - lesson.smoothing;
            }
            multiply<true>(logits, P, rows, P, learner.candidates[1].get(), D, dx, D);
            add_products(logits, P, rows, C, panels_of(hidden, rows, D), D, of_candidates, turned);
        }
    }

    // Some logits of all rows at once: gradients of the candidates are many, and are read and written once. Logits are
    // computed twice, at first to find the largest of each row; what is kept of them is e^(logit - largest), in halves.
    void lose_by_candidates(Flow x, const int32_t* labels) {
        const int P = int(panelled(lesson.candidate_count)), N = x.rows, W = std::min(CANDIDATES_AT_ONCE, P);
        const Half* hidden = laid(x);
        Half* likely = arena.template take<Half>(stacked(N) * P);
        float *logits = arena.take(stacked(N) * W), *pulled = arena.take(stacked(N) * D);
        std::vector<float> largest(N, -INFINITE), total(N), right(N);
        const auto each_part = [&](auto work) {
            for (int first = 0; first < P; first += W) {
                const int width = std::min(W, P - first);
                multiply<false>(hidden, D, N, D, learner.candidates[0].get() + size_t(first) * D, width, logits, W,
                                lesson.shifts + first);
                work(first, width);
            }
        };
        each_part([&](int, int width) {
            for (int r = 0; r < N; ++r) largest[r] = std::max(largest[r], maximum(logits + size_t(r) * W, width));
        });
        std::fill_n(pulled, size_t(N) * D, 0.0f);
        each_part([&](int first, int width) {
            for (int r = 0; r < N; ++r) {
                const float* row = logits + size_t(r) * W;
                if (labels[r] >= first && labels[r] < first + width) right[r] = row[labels[r] - first];
                total[r] += halved_exponentials(row, width, largest[r], likely + size_t(r) * P + first);
            }
            multiply<true>(likely + first, P, N, width, learner.candidates[1].get() + size_t(first) * PANEL, D, pulled, D,
                           nullptr, size_t(P) * PANEL);
        });
        for (int r = 0; r < N; ++r) {
            const float *row = x.value + size_t(r) * D, *label = embedding_of(labels[r]);
            float *dx = slope(x) + size_t(r) * D, inverse = 1 / total[r];
            count_loss(row, dx, largest[r], total[r], right[r]);
            add_scaled(dx, pulled + size_t(r) * D, inverse, D);
            add_scaled(dx, label, lesson.smoothing - 1, D);
            add_scaled(of_candidates + size_t(labels[r]) * D, row, lesson.smoothing - 1, D);
            for (int j = 0; j < D; ++j) pulled[size_t(r) * D + j] = row[j] * inverse;
        }
        const Half* panels = panels_of(laid_now(pulled, x), N, D);
        for (int first = 0; first < P; first += W)
            add_products(likely + first, P, N, std::min(W, P - first), panels, D, of_candidates + size_t(first) * D, turned);
    }

    const float* embedding_of(int candidate) const {
        return learner.weights[0] + size_t(lesson.candidates[candidate]) * D;
    }

    // The loss of one token, and what smoothing does to its hidden state.
    void count_loss(const float* hidden, float* dx, float largest, float total, float right) {
        const double loss = double(largest) + std::log(double(total)) - right;
        const float mean = dot(hidden, learner.mean.data(), D);
        likelihood += loss;
        smoothed += loss + double(lesson.smoothing) * (double(right) - mean);
        add_scaled(dx, learner.mean.data(), -lesson.smoothing, D);
        for (int j = 0; j < D; ++j) hidden_sum[j] += hidden[j];
    }

    // e^(x[i] - shift) in halves, and the sum of all before they were halved.
    static float halved_exponentials(const float* x, int n, float shift, Half* to) {
        Floats sums{};
        for (int i = 0; i < n; i += PANEL) {
            const Floats first = exponential(load(x + i) - shift);
            const Floats second = exponential(load(x + i + LANES) - shift);
            sums += first + second;
            store(to + i, halved(first, second));
        }
        return sum(sums);
    }

    Floats kept(Random& random) const {
        const float rate = learner.outline.dropout;
        return rate > 0 ? random.keep(int32_t(rate * 2147483648.0), 1 / (1 - rate)) : all(1.0f);
    }

    static void add_rows(const float* x, int rows, int width, float* to) {
        for (int r = 0; r < rows; ++r)
            for (int j = 0; j < width; j += LANES) store(to + j, load(to + j) + load(x + size_t(r) * width + j));
    }
};

}  // namespace heedful::learning
