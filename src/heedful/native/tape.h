// What is done to the numbers of a group of sentences: every operation once, forward and backward.
//
// Forward it computes, and leaves on the tape what is to be done backward.
#pragma once

#include <functional>

#include "learner.h"

namespace heedful::learning {

constexpr size_t LOGITS_AT_ONCE = 1 << 17;  // numbers
constexpr int ROWS_AT_ONCE = 32;            // of logits, at least

// Random numbers in every lane (xoshiro128++, Blackman and Vigna, 2021); three numbers say where they begin.
class Random {
  public:
    Random(uint64_t seed, uint64_t group, uint64_t site) {
        uint64_t state = mixed(mixed(seed) + mixed(group * 0x10001 + site + 1));
        uint32_t words[4 * LANES];
        for (uint32_t& word : words) word = uint32_t(mixed(state += 0x9E3779B97F4A7C15) >> 32);
        std::memcpy(s, words, sizeof words);
    }

    // `scale` in the lanes that are kept, 0 in the others.
    Floats keep(int32_t limit, float scale) {
        const Words drawn = turned(s[0] + s[3], 7) + s[0];
        const Words carried = s[1] << 9;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
        s[2] ^= carried, s[3] = turned(s[3], 11);
        const Ints kept = Ints(drawn >> 1) >= limit;
        Ints bits;
        const Floats scales = all(scale);
        std::memcpy(&bits, &scales, sizeof bits);
        bits &= kept;
        Floats result;
        std::memcpy(&result, &bits, sizeof result);
        return result;
    }

  private:
    typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
    Words s[4];

    static Words turned(Words x, int bits) { return (x << bits) | (x >> (32 - bits)); }
    static uint64_t mixed(uint64_t x) {  // the finaliser of SplitMix64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
        return x ^ (x >> 31);
    }
};

// Memory that is taken piece by piece and given back all at once.
class Arena {
  public:
    float* take(size_t count) {
        count = (count + 15) / 16 * 16;
        while (block < blocks.size() && used + count > blocks[block].size) ++block, used = 0;
        if (block == blocks.size()) {
            blocks.emplace_back();
            blocks.back().size = std::max(count, size_t(1) << 20);
            blocks.back().room.at_least(blocks.back().size);
        }
        float* taken = blocks[block].room.get() + used;
        used += count;
        return taken;
    }
    void give_back() { block = used = 0; }

  private:
    struct Block {
        Room<float> room;
        size_t size = 0;
    };
    std::vector<Block> blocks;
    size_t block = 0, used = 0;
};

struct Span {  // the tokens of a sentence among those of its group
    int first, count;
};

struct Flow {  // (rows, width) numbers, and what the loss changes with each
    float *value, *slope;
    int rows, width;
    size_t size() const { return size_t(rows) * width; }
};

// What is done forward, with what is to be done backward for it; for one group after the other.
class Tape {
  public:
    // Gradients, of all weights in one row and of the candidates, (C, D), are added to what is there.
    Tape(const Learner& model, const Lesson& batch, Arena& memory, float* of_weights, float* of_the_candidates)
        : hidden_sum(model.outline.width), learner(model), lesson(batch), D(model.outline.width), arena(memory),
          gradients(of_weights), of_candidates(of_the_candidates) {}

    std::vector<double> hidden_sum;  // (D): of all hidden states, which smoothing pushes all embeddings away from
    double smoothed = 0, likelihood = 0;

    void begin(uint64_t number) { group = number, site = 0, arena.give_back(), steps.clear(); }
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
                const float* from = x.slope + size_t(i) * D;
                for (int j = 0; j < D; j += LANES)
                    store(to + j, fused(load(from + j) * shape.embedding_scale, kept(again), load(to + j)));
            }
        });
        return x;
    }

    // x Wᵀ + b, or what is positive of it.
    Flow linear(Flow x, const Linear& layer, bool positive = false) {
        const Flow y = flow(x.rows, layer.out);
        multiply<false>(x.value, layer.in, 1, x.rows, layer.in, layer.forward.get(), layer.out, y.value, layer.out,
                        learner.weights[layer.bias]);
        if (positive)
            for (size_t i = 0; i < y.size(); ++i) y.value[i] = std::max(y.value[i], 0.0f);
        const Linear* at = &layer;
        steps.push_back([=] {
            if (positive)
                for (size_t i = 0; i < y.size(); ++i) y.slope[i] = y.value[i] > 0 ? y.slope[i] : 0.0f;
            multiply<true>(y.slope, at->out, 1, y.rows, at->out, at->backward.get(), at->in, x.slope, at->in);
            add_products(y.slope, at->out, y.rows, at->out, x.value, at->in, gradient(at->weight), columns, turned);
            add_rows(y.slope, y.rows, at->out, gradient(at->bias));
        });
        return y;
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
            for (int r = 0; r < x.rows; ++r) {
                const float *row = x.value + size_t(r) * D, *slope = y.slope + size_t(r) * D;
                const float mean = deviations[2 * r], inverse = deviations[2 * r + 1];
                Floats plain{}, along{};
                for (int j = 0; j < D; j += LANES) {
                    const Floats unit = (load(row + j) - mean) * inverse, dy = load(slope + j);
                    store(of_scale + j, fused(dy, unit, load(of_scale + j)));
                    store(of_bias + j, load(of_bias + j) + dy);
                    plain += dy * load(scale + j);
                    along = fused(dy * load(scale + j), unit, along);
                }
                const float level = sum(plain) / D, lean = sum(along) / D;
                float* to = x.slope + size_t(r) * D;
                for (int j = 0; j < D; j += LANES) {
                    const Floats unit = (load(row + j) - mean) * inverse;
                    const Floats dx = load(slope + j) * load(scale + j) - level - unit * lean;
                    store(to + j, fused(dx, all(inverse), load(to + j)));
                }
            }
        });
        return y;
    }

    // x + dropout(y)
    Flow add_dropped(Flow x, Flow y) {
        const Flow z = flow(x.rows, D);
        const uint64_t here = site++;
        Random random(lesson.seed, group, here);
        for (size_t i = 0; i < z.size(); i += LANES)
            store(z.value + i, fused(load(y.value + i), kept(random), load(x.value + i)));
        steps.push_back([=] {
            Random again(lesson.seed, group, here);
            for (size_t i = 0; i < z.size(); i += LANES) {
                const Floats slope = load(z.slope + i);
                store(x.slope + i, load(x.slope + i) + slope);
                store(y.slope + i, fused(slope, kept(again), load(y.slope + i)));
            }
        });
        return z;
    }

    // softmax(Q Kᵀ / √d) V in each head of each sentence; if `causal`, only of what came before.
    Flow attend(Flow query, Flow key, Flow value, const std::vector<Span>& queries, const std::vector<Span>& keys,
                bool causal) {
        const Flow found = flow(query.rows, D);
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
                    float* slopes = room + std::max(panelled(most) * d, panelled(d) * most);  // (T, P)
                    pack(value.value + k, D, 1, S, d, room);
                    multiply<false>(found.slope + q, D, 1, T, d, room, S, slopes, P);
                    pack(found.slope + q, 1, D, d, T, room);
                    multiply<true>(weights, 1, P, S, T, room, d, value.slope + k, D);
                    for (int t = 0; t < T; ++t) {
                        float *row = slopes + size_t(t) * P, *weight = weights + size_t(t) * P;
                        const float level = dot(row, weight, P);
                        for (int i = 0; i < P; ++i) row[i] = (row[i] - level) * weight[i] * scale;
                    }
                    pack(key.value + k, 1, D, d, S, room);
                    multiply<true>(slopes, P, 1, T, S, room, d, query.slope + q, D);
                    pack(query.value + q, 1, D, d, T, room);
                    multiply<true>(slopes, 1, P, S, T, room, d, key.slope + k, D);
                });
            }
        }
        return found;
    }

    // Cross-entropy of the labels among the candidates, with its gradients at once, so that few logits are held.
    void lose(Flow x, const int32_t* labels) {
        const int C = lesson.candidate_count, P = int(panelled(C));
        const float smoothing = lesson.smoothing;
        const int most = std::max(ROWS_AT_ONCE, int(LOGITS_AT_ONCE / P));
        float* logits = arena.take(size_t(std::min(most, x.rows)) * P);
        for (int first = 0; first < x.rows; first += most) {
            const int rows = std::min(most, x.rows - first);
            const float* hidden = x.value + size_t(first) * D;
            float* slope = x.slope + size_t(first) * D;
            multiply<false>(hidden, D, 1, rows, D, learner.candidates[0].get(), C, logits, P, lesson.shifts);
            for (int r = 0; r < rows; ++r) {
                float* row = logits + size_t(r) * P;
                const int label = labels[first + r];
                const float most_likely = maximum(row, C), right = row[label];
                const float total = exponentials<false>(row, C, most_likely);
                const double loss = double(most_likely) + std::log(double(total)) - right;
                const float mean = dot(hidden + size_t(r) * D, learner.mean.data(), D);
                likelihood += loss;
                smoothed += loss + double(smoothing) * (double(right) - mean);
                const float inverse = 1 / total;
                for (int i = 0; i < C; ++i) row[i] *= inverse;
                std::fill(row + C, row + P, 0.0f);
                row[label] -= 1 - smoothing;
                add_scaled(slope + size_t(r) * D, learner.mean.data(), -smoothing, D);
                for (int j = 0; j < D; ++j) hidden_sum[j] += hidden[size_t(r) * D + j];
            }
            multiply<true>(logits, P, 1, rows, C, learner.candidates[1].get(), D, slope, D);
            add_products(logits, P, rows, C, hidden, D, of_candidates, columns, turned);
        }
    }

  private:
    const Learner& learner;
    const Lesson& lesson;
    const int D;
    Arena& arena;
    float *gradients, *of_candidates;
    uint64_t group = 0, site = 0;  // random numbers follow from them and the seed
    std::vector<std::function<void()>> steps;
    Room<float> scratch, columns, turned;

    float* gradient(int weight) const { return gradients + learner.offsets[weight]; }
    float* space(size_t count) { return scratch.at_least(count); }

    Flow flow(int rows, int width) {
        const size_t size = size_t(rows) * width;
        Flow made{arena.take(size), arena.take(size), rows, width};
        std::fill(made.slope, made.slope + size, 0.0f);
        return made;
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
