// Learning: the loss of a batch and the gradients of all weights, for the encoder-decoder of heedful/model.
//
// A batch is worked through in groups of a few sentences, whose numbers stay near the CPU from their embeddings to their
// gradients. Each thread has groups and gradients of its own, which are added up in the end, always in the same order.
// Sentences stand one after the other, so there is no padding.
//
// Legend: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V vocabulary, N
// tokens of a group, C candidates among which the right token is to be found.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <vector>

#include "products.h"

namespace heedful::learning {

struct Outline {  // what a model looks like; Python fills it in
    int32_t width, inner, heads, encoder_layers, decoder_layers, vocabulary, norm_first, longest;
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
    uint64_t seed;
};

#if defined(__AVX512F__)
constexpr int TILE = 8;  // rows that are multiplied at once
#else
constexpr int TILE = 6;
#endif
constexpr int TOGETHER = 256;                 // tokens of both sides that are worked on at once, at least
constexpr size_t LOGITS_AT_ONCE = 1 << 17;   // numbers
constexpr int NEAR = 32;                     // rows that stay in the nearest memory while they are turned
constexpr int ROWS_AT_ONCE = 32;             // of logits, at least

inline size_t panelled(size_t n) { return (n + PANEL - 1) / PANEL * PANEL; }

// Lays (k, columns) out in panels; columns are `across` apart and rows `down`. What fills the last panel is zero.
inline void pack(const float* from, long across, long down, int columns, int k, float* to) {
    for (int first = 0; first < columns; first += PANEL) {
        const int count = std::min(PANEL, columns - first);
        for (int t = 0; t < k; ++t, to += PANEL) {
            const float* row = from + first * across + t * down;
            if (count < PANEL) std::fill(to, to + PANEL, 0.0f);
            if (across == 1)
                std::memcpy(to, row, count * sizeof(float));
            else
                for (int j = 0; j < count; ++j) to[j] = row[j * across];
        }
    }
}

template <int rows, bool add>
inline void tile(const float* a, long row, long step, int k, const float* panel, float* c, long to, const float* start) {
    Floats sums[rows][2];
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < 2; ++half)
            sums[r][half] = add     ? load(c + r * to + half * LANES)
                            : start ? load(start + half * LANES)
                                    : Floats{};
    const float* b = a + 3 * row;  // two places to count from, which leave enough registers
    const float* c3 = a + 6 * row;
    for (int t = 0; t < k; ++t, panel += PANEL, a += step, b += step, c3 += step) {
        const Floats left = load(panel), right = load(panel + LANES);
        for (int r = 0; r < rows; ++r) {
            const Floats x = all(r < 3 ? a[r * row] : r < 6 ? b[(r - 3) * row] : c3[(r - 6) * row]);
            sums[r][0] = fused(x, left, sums[r][0]);
            sums[r][1] = fused(x, right, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; ++r)
        for (int half = 0; half < 2; ++half) store(c + r * to + half * LANES, sums[r][half]);
}

template <int rows, bool add>
inline void last_tile(int left, const float* a, long row, long step, int k, const float* panel, float* c, long to,
                      const float* start) {
    if constexpr (rows > 0) {
        if (left == rows) return tile<rows, add>(a, row, step, k, panel, c, to, start);
        last_tile<rows - 1, add>(left, a, row, step, k, panel, c, to, start);
    }
}

// c = a b + start, or c += a b. a: (m, k), its rows `row` apart and its columns `step`; b: panels of (k, n); c: (m, n), its
// rows `to` apart, n filled up to whole panels; start: (n).
template <bool add>
void multiply(const float* a, long row, long step, int m, int k, const float* b, int n, float* c, long to,
              const float* start = nullptr) {
    for (int first = 0; first < n; first += PANEL, b += size_t(k) * PANEL) {
        const float* begin = start ? start + first : nullptr;
        int i = 0;
        for (; i + TILE <= m; i += TILE) tile<TILE, add>(a + i * row, row, step, k, b, c + i * to + first, to, begin);
        last_tile<TILE - 1, add>(m - i, a + i * row, row, step, k, b, c + i * to + first, to, begin);
    }
}

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

struct Linear {  // W: (out, in), and b: (out)
    int weight, bias, in, out;
    Room<float> forward, backward;  // panels of Wᵀ, for y = x Wᵀ, and of W, for dx = dy W
};

struct Attending {
    Linear query, key, value, output;
};

struct Layer {
    Attending self, cross;
    Linear up, down;
    int self_norm, cross_norm, feed_norm;  // their weights; biases follow
};

struct Stack {
    std::vector<Layer> layers;
    int norm = -1;  // at the end, if norms come first
};

// All weights, where they are and how products want them. They are numbered in the order in which a batch meets them.
class Learner {
  public:
    const Outline outline;
    std::vector<const float*> weights;
    std::vector<int64_t> offsets;  // where the gradient of each weight is
    int64_t total;
    Stack encoder, decoder;
    const float* positions;        // (longest, D)
    std::vector<float> mean;       // (D): the mean of all embeddings
    Room<float> candidates[2];     // panels of the candidates' embeddings, forward and backward

    Learner(const Outline& shape, const float* const* given, const int64_t* sizes, int count, const float* table)
        : outline(shape), weights(given, given + count), total(0), positions(table), mean(shape.width) {
        for (int i = 0; i < count; ++i) offsets.push_back(total), total += sizes[i];
        int next = 1;  // 0 is the embedding
        build(encoder, shape.encoder_layers, false, next);
        build(decoder, shape.decoder_layers, true, next);
        if (next != count) throw std::invalid_argument("the model has another number of weights");
    }

    // Adds the gradients of a batch to `gradients`; the sums of the smoothed loss and of the negative log-likelihood.
    void learn(const Lesson& lesson, int threads, float* gradients, double* sums);

  private:
    struct Worker;
    std::vector<std::unique_ptr<Worker>> workers;

    Linear linear(int in, int out, int& next) const { return next += 2, Linear{next - 2, next - 1, in, out, {}, {}}; }
    Attending attending(int& next) const {
        const int D = outline.width;
        Linear query = linear(D, D, next), key = linear(D, D, next), value = linear(D, D, next);
        return {std::move(query), std::move(key), std::move(value), linear(D, D, next)};
    }
    void build(Stack& stack, int count, bool cross, int& next) const {
        for (int i = 0; i < count; ++i) {
            Layer layer{};
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
    std::vector<Linear*> linears() {
        std::vector<Linear*> found;
        for (Stack* stack : {&encoder, &decoder})
            for (Layer& layer : stack->layers) {
                for (Attending* each : {&layer.self, &layer.cross})
                    if (each->query.out)
                        for (Linear* one : {&each->query, &each->key, &each->value, &each->output}) found.push_back(one);
                found.push_back(&layer.up), found.push_back(&layer.down);
            }
        return found;
    }
    void prepare(const Lesson& lesson, int threads);
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
    Tape(const Learner& model, const Lesson& batch) : learner(model), lesson(batch), D(model.outline.width) {}

    float* gradients = nullptr;       // of all weights
    float* of_candidates = nullptr;   // (C, D)
    std::vector<double> of_mean;      // (D): the sum of hidden states, which all embeddings are pushed away from
    double smoothed = 0, likelihood = 0;
    uint64_t group = 0;

    void begin(uint64_t number) { group = number, site = 0, arena->give_back(), steps.clear(); }
    void back() {
        for (size_t i = steps.size(); i--;) steps[i]();
    }
    Arena* arena = nullptr;

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
            add_products(y.slope, at->out, y.rows, at->out, x.value, at->in, gradient(at->weight));
            add_rows(y.slope, y.rows, at->out, gradient(at->bias));
        });
        return y;
    }

    // Rows of mean 0 and variance 1, times a weight, plus a bias.
    Flow norm(Flow x, int weight) {
        const Flow y = flow(x.rows, D);
        float* deviations = arena->take(2 * size_t(x.rows));  // mean and 1 / deviation of each row
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
            const int T = queries[s].count, S = keys[s].count, P = int(panelled(S));
            float* panels = space(std::max(size_t(P) * d, panelled(d) * S));
            for (int head = 0; head < heads; ++head) {
                const size_t q = size_t(queries[s].first) * D + head * d, k = size_t(keys[s].first) * D + head * d;
                float* weights = arena->take(size_t(T) * P);
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
        float* logits = arena->take(size_t(std::min(most, x.rows)) * P);
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
                for (int j = 0; j < D; ++j) of_mean[j] += hidden[size_t(r) * D + j];
            }
            multiply<true>(logits, P, 1, rows, C, learner.candidates[1].get(), D, slope, D);
            add_products(logits, P, rows, C, hidden, D, of_candidates);
        }
    }

  private:
    const Learner& learner;
    const Lesson& lesson;
    const int D;
    uint64_t site = 0;
    std::vector<std::function<void()>> steps;
    Room<float> scratch, rows_packed, columns_packed;

    float* gradient(int weight) const { return gradients + learner.offsets[weight]; }
    float* space(size_t count) { return scratch.at_least(count); }

    Flow flow(int rows, int width) {
        const size_t size = size_t(rows) * width;
        Flow made{arena->take(size), arena->take(size), rows, width};
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

    // to += yᵀ x: y (rows, n), its rows `apart`, and x (rows, k), its rows k apart, make (n, k).
    void add_products(const float* y, long apart, int rows, int n, const float* x, int k, float* to) {
        float* panels = columns_packed.at_least(panelled(k) * rows);
        pack(x, 1, k, k, rows, panels);
        float* turned = rows_packed.at_least(size_t(n + TILE) * rows);  // what a tile takes at once, side by side
        for (int first = 0; first < rows; first += NEAR)
            for (int i = 0; i < n; i += TILE) {
                float* to = turned + size_t(i) * rows;
                const int last = std::min(first + NEAR, rows);
                if (i + TILE <= n)
                    for (int t = first; t < last; ++t) std::memcpy(to + t * TILE, y + t * apart + i, TILE * sizeof(float));
                else
                    for (int t = first; t < last; ++t) std::copy_n(y + t * apart + i, n - i, to + t * TILE);
            }
        for (int first = 0; first < k; first += PANEL, panels += size_t(rows) * PANEL)
            for (int i = 0; i < n; i += TILE) {
                const float* a = turned + size_t(i) * rows;
                float* c = to + size_t(i) * k + first;
                if (i + TILE <= n)
                    tile<TILE, true>(a, 1, TILE, rows, panels, c, k, nullptr);
                else
                    last_tile<TILE - 1, true>(n - i, a, 1, TILE, rows, panels, c, k, nullptr);
            }
    }
};

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
        tapes.push_back(std::make_unique<Tape>(*this, lesson));
        Tape& tape = *tapes.back();
        tape.arena = &workers[i]->arena;
        tape.gradients = i ? workers[i]->gradients.at_least(total) : gradients;
        tape.of_candidates = workers[i]->of_candidates.at_least(size_t(C) * D);
        tape.of_mean.assign(D, 0.0);
    }
    std::exception_ptr problem;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int i = 0; i < threads; ++i) {
        try {
            Tape& tape = *tapes[i];
            std::fill(tape.gradients, tape.gradients + total, 0.0f);
            std::fill(tape.of_candidates, tape.of_candidates + size_t(C) * D, 0.0f);
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
        for (int64_t at = 0; at < total; ++at) gradients[at] += tapes[i]->gradients[at];
    }
    std::vector<float> push(D);
    for (int j = 0; j < D; ++j)
        for (const auto& tape : tapes)
            push[j] -= float(double(lesson.smoothing) / outline.vocabulary * tape->of_mean[j]);
#pragma omp parallel for num_threads(threads)
    for (int v = 0; v < outline.vocabulary; ++v) add_scaled(gradients + size_t(v) * D, push.data(), 1.0f, D);
    for (const auto& tape : tapes)
#pragma omp parallel for num_threads(threads)
        for (int c = 0; c < C; ++c)
            add_scaled(gradients + size_t(lesson.candidates[c]) * D, tape->of_candidates + size_t(c) * D, 1.0f, D);
    sums[0] = sums[1] = 0;
    for (const auto& tape : tapes) sums[0] += tape->smoothed, sums[1] += tape->likelihood;
}

}  // namespace heedful::learning
