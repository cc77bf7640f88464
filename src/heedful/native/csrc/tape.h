// What is done to the numbers of a group of sentences: every operation once, forward and backward.
//
// Forward it computes, and leaves on the tape what is to be done backward.
#pragma once

#include <functional>

#include "losses.h"

namespace heedful::learning {

// What is done forward, with what is to be done backward for it; for one group after the other. Products with weights are
// computed in `Number`, all else in float32.
template <typename Number>
class Tape {
  public:
    // Gradients, of all weights in one row and of the candidates, (C, D), are added to what is there.
    Tape(const Learner<Number>& model, const Lesson& batch, Arena& memory, float* of_weights, float* of_the_candidates)
        : losses(model, batch, memory, of_the_candidates), learner(model), lesson(batch), D(model.outline.width),
          arena(memory), slopes(memory), layout(memory), gradients(of_weights) {}

    Losses<Number> losses;

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
        const Number* rows = layout.rows(x);
        std::vector<Flow> all;
        for (const Linear<Number>* layer : layers) {
            all.push_back(flow(x.rows, layer->out));
            multiply<false>(rows, layer->in, x.rows, layer->in, layer->forward.get(), layer->out, all.back().value,
                            layer->out, learner.weights[layer->bias]);
        }
        steps.push_back([=] {
            const Number* panels = layout.panels(rows, x.rows, x.width);
            for (size_t i = 0; i < layers.size(); ++i) {
                const Flow& y = all[i];
                const int in = x.width, out = y.width;
                const Number *weight = layers[i]->backward.get(), *dy = layout.rows_for_now(slope(y), y);
                if (*x.slope)
                    multiply<true>(dy, out, y.rows, out, weight, in, *x.slope, in);
                else
                    multiply<false>(dy, out, y.rows, out, weight, in, *x.slope = slopes.take(x.room()), in);
                add_products(dy, out, y.rows, out, panels, in, gradient(layers[i]->weight), layout.turned);
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

    // What the model is to do better; see losses.h.
    void lose(Flow x, const int32_t* labels, const std::vector<Span>& spans) { losses.add(x, slope(x), labels, spans); }

  private:
    const Learner<Number>& learner;
    const Lesson& lesson;
    const int D;
    Arena& arena;
    Slopes slopes;
    Layout<Number> layout;
    float* gradients;
    uint64_t group = 0, site = 0;  // random numbers follow from them and the seed
    std::vector<std::function<void()>> steps;
    Room<float> scratch;

    float* gradient(int weight) const { return gradients + learner.offsets[weight]; }
    float* space(size_t count) { return scratch.at_least(count); }

    Flow flow(int rows, int width) { return {arena.take(stacked(rows) * width), slopes.none(), rows, width}; }

    // What is known of it, or zeros to add to.
    float* slope(const Flow& x) {
        if (!*x.slope) std::fill_n(*x.slope = slopes.take(x.room()), x.size(), 0.0f);
        return *x.slope;
    }
    void spend(const Flow& x) { slopes.give_back(*x.slope, x.room()); }

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
