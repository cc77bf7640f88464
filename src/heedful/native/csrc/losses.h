// The loss of a group of sentences, with its gradients at once, so that few logits are held.
#pragma once

#include "flows.h"
#include "learner.h"

namespace heedful::learning {

constexpr size_t LOGITS_AT_ONCE = 1 << 17;  // numbers
constexpr int ROWS_AT_ONCE = 32;            // of logits, at least
constexpr int CANDIDATES_AT_ONCE = 512;     // of all rows

// Cross-entropy of the labels among the candidates, and, where sentences come twice, how far what is said of both is apart.
template <typename Number>
class Losses {
  public:
    // Gradients of the candidates, (C, D), are added to what is there.
    Losses(const Learner<Number>& model, const Lesson& batch, Arena& memory, float* of_the_candidates)
        : hidden_sum(model.outline.width), learner(model), lesson(batch), D(model.outline.width), arena(memory),
          layout(memory), of_candidates(of_the_candidates) {}

    std::vector<double> hidden_sum;  // (D): of all hidden states, which smoothing pushes all embeddings away from
    double smoothed = 0, likelihood = 0;

    // x: hidden states; dx: (N, D) to add to.
    void add(const Flow& x, float* dx, const int32_t* labels, const std::vector<Span>& spans) {
        if (lesson.consistency > 0)
            of_twins(x, dx, labels, spans);
        else if constexpr (std::is_same_v<Number, Half>)
            by_candidates(x, dx, labels);
        else
            by_rows(x, dx, labels);
    }

  private:
    const Learner<Number>& learner;
    const Lesson& lesson;
    const int D;
    Arena& arena;
    Layout<Number> layout;
    Room<float> part;  // logits of some candidates
    float* of_candidates;

    // All logits of a few rows at once.
    void by_rows(const Flow& x, float* dx, const int32_t* labels) {
        const int C = lesson.candidate_count, P = int(panelled(C));
        const int most = std::max(ROWS_AT_ONCE, int(LOGITS_AT_ONCE / P));
        float* logits = arena.take(size_t(std::min(most, x.rows)) * P);
        for (int first = 0; first < x.rows; first += most) {
            const int rows = std::min(most, x.rows - first);
            const float* hidden = x.value + size_t(first) * D;
            float* slope = dx + size_t(first) * D;
            multiply<false>(hidden, D, rows, D, learner.candidates[0].get(), P, logits, P, lesson.shifts);
            for (int r = 0; r < rows; ++r) {
                float* row = logits + size_t(r) * P;
                const int label = labels[first + r];
                const float most_likely = maximum(row, C), right = row[label];
                const float total = exponentials<false>(row, C, most_likely);
                count(hidden + size_t(r) * D, slope + size_t(r) * D, most_likely + std::log(total), right, 1);
                const float inverse = 1 / total;
                for (int i = 0; i < C; ++i) row[i] *= inverse;
                std::fill(row + C, row + P, 0.0f);
                row[label] -= 1 - lesson.smoothing;
            }
            multiply<true>(logits, P, rows, P, learner.candidates[1].get(), D, slope, D);
            add_products(logits, P, rows, C, layout.panels(hidden, rows, D), D, of_candidates, layout.turned);
        }
    }

    // Some logits of all rows at once: gradients of the candidates are many, and are read and written once. Logits are
    // computed twice, at first to find the largest of each row; what is kept of them is e^(logit - largest).
    void by_candidates(const Flow& x, float* dx, const int32_t* labels) {
        const int P = int(panelled(lesson.candidate_count)), N = x.rows;
        const Number* hidden = layout.rows(x);
        Number* likely = arena.template take<Number>(stacked(N) * P);
        float* pulled = arena.take(stacked(N) * D);
        std::vector<float> right(N), total(N);
        const std::vector<float> most = largest(hidden, N, labels, right);
        std::fill_n(pulled, size_t(N) * D, 0.0f);
        each_part(hidden, N, [&](int first, int width, const float* logits, long apart) {
            for (int r = 0; r < N; ++r)
                total[r] += exponentials_of(logits + r * apart, width, most[r], likely + size_t(r) * P + first);
            leave_out(labels, first, width, N, likely);
            pull(likely, first, width, N, pulled);
        });
        for (int r = 0; r < N; ++r) {
            const float *row = x.value + size_t(r) * D, inverse = 1 / total[r];
            float *slope = dx + size_t(r) * D, *from = pulled + size_t(r) * D;
            count(row, slope, most[r] + std::log(total[r]), right[r], 1);
            add_scaled(slope, from, inverse, D);
            push(labels[r], row, slope, std::exp(right[r] - most[r]) * inverse - (1 - lesson.smoothing));
            for (int j = 0; j < D; ++j) from[j] = row[j] * inverse;
        }
        add_candidates(likely, layout.rows_for_now(pulled, x), N);
    }

    // Sentences stand there twice, one beside the other, with other numbers dropped: half of the cross-entropy of both, and
    // a quarter of `consistency` times the divergences of what is said of each token, KL(p, q) + KL(q, p) (R-Drop; Liang et
    // al., 2021). The first depends on the logits of p by p (log p - log q - KL), the second by p - q.
    void of_twins(const Flow& x, float* dx, const int32_t* labels, const std::vector<Span>& spans) {
        const int P = int(panelled(lesson.candidate_count)), N = x.rows;
        const float weight = lesson.consistency / 4;
        const Number* hidden = layout.rows(x);
        Number* slopes = arena.template take<Number>(stacked(N) * P);
        float* pulled = arena.take(stacked(N) * D);
        std::vector<int> twin(N);
        for (size_t s = 0; s < spans.size(); s += 2)
            for (int i = 0; i < spans[s].count; ++i) {
                const int one = spans[s].first + i, other = spans[s + 1].first + i;
                twin[one] = other, twin[other] = one;
            }
        std::vector<float> right(N), total(N), lead(N), level(N), apart_by(N);
        const std::vector<float> most = largest(hidden, N, labels, right);
        each_part(hidden, N, [&](int, int width, const float* logits, long apart) {
            for (int r = 0; r < N; ++r) {
                const float *row = logits + r * apart, *other = logits + twin[r] * apart;
                Floats sums{}, leads{};
                for (int i = 0; i < width; i += LANES) {
                    const Floats e = exponential(load(row + i) - most[r]);
                    sums += e;
                    leads = fused(e, load(row + i) - load(other + i), leads);
                }
                total[r] += sum(sums), lead[r] += sum(leads);
            }
        });
        for (int r = 0; r < N; ++r) level[r] = most[r] + std::log(total[r]);
        for (int r = 0; r < N; ++r) apart_by[r] = lead[r] / total[r] - (level[r] - level[twin[r]]);  // KL
        std::fill_n(pulled, size_t(N) * D, 0.0f);
        each_part(hidden, N, [&](int first, int width, const float* logits, long apart) {
            for (int r = 0; r < N; ++r)
                for (int i = 0; i < width; i += PANEL) {
                    Floats slope[2];
                    for (int half = 0; half < 2; ++half) {
                        const int at = i + half * LANES;
                        const Floats log_p = load(logits + r * apart + at) - level[r];
                        const Floats log_q = load(logits + twin[r] * apart + at) - level[twin[r]];
                        const Floats p = exponential(log_p), q = exponential(log_q);
                        slope[half] = p * 0.5f + weight * (p * (log_p - log_q - apart_by[r]) + p - q);
                    }
                    put(slopes + size_t(r) * P + first + i, slope[0], slope[1]);
                }
            leave_out(labels, first, width, N, slopes);
            pull(slopes, first, width, N, pulled);
        });
        for (int r = 0; r < N; ++r) {
            const float* row = x.value + size_t(r) * D;
            float* slope = dx + size_t(r) * D;
            count(row, slope, level[r], right[r], 0.5f);
            smoothed += double(weight) * apart_by[r];
            add_scaled(slope, pulled + size_t(r) * D, 1, D);
            const float log_p = right[r] - level[r], log_q = right[twin[r]] - level[twin[r]];
            const float p = std::exp(log_p), q = std::exp(log_q);
            push(labels[r], row, slope,
                 0.5f * (p - (1 - lesson.smoothing)) + weight * (p * (log_p - log_q - apart_by[r]) + p - q));
        }
        add_candidates(slopes, hidden, N);
    }

    // Logits of some candidates after the other; they stay until the next.
    template <typename Work>
    void each_part(const Number* hidden, int N, Work work) {
        const int P = int(panelled(lesson.candidate_count)), W = std::min(CANDIDATES_AT_ONCE, P);
        float* logits = part.at_least(stacked(N) * W);
        for (int first = 0; first < P; first += W) {
            const int width = std::min(W, P - first);
            multiply<false>(hidden, D, N, D, learner.candidates[0].get() + size_t(first) * D, width, logits, W,
                            lesson.shifts + first);
            work(first, width, logits, W);
        }
    }

    // Of each row, the largest logit, and that of its label.
    std::vector<float> largest(const Number* hidden, int N, const int32_t* labels, std::vector<float>& right) {
        std::vector<float> most(N, -INFINITE);
        each_part(hidden, N, [&](int first, int width, const float* logits, long apart) {
            for (int r = 0; r < N; ++r) {
                const float* row = logits + r * apart;
                most[r] = std::max(most[r], maximum(row, width));
                if (labels[r] >= first && labels[r] < first + width) right[r] = row[labels[r] - first];
            }
        });
        return most;
    }

    // to += slopes of some logits times the embeddings of their candidates
    void pull(const Number* slopes, int first, int width, int N, float* to) {
        const int P = int(panelled(lesson.candidate_count));
        multiply<true>(slopes + first, P, N, width, learner.candidates[1].get() + size_t(first) * PANEL, D, to, D, nullptr,
                       size_t(P) * PANEL);
    }

    // Gradients of the candidates, of all slopes and rows.
    void add_candidates(const Number* slopes, const Number* rows, int N) {
        const int P = int(panelled(lesson.candidate_count));
        const Number* panels = layout.panels(rows, N, D);
        for (int first = 0; first < P; first += CANDIDATES_AT_ONCE)
            add_products(slopes + first, P, N, std::min(CANDIDATES_AT_ONCE, P - first), panels, D,
                         of_candidates + size_t(first) * D, layout.turned);
    }

    // The loss of one token, and what smoothing does to its hidden state.
    void count(const float* hidden, float* slope, float level, float right, float share) {
        const double loss = double(level) - right;
        const float mean = dot(hidden, learner.mean.data(), D);
        likelihood += share * loss;
        smoothed += share * (loss + double(lesson.smoothing) * (double(right) - mean));
        add_scaled(slope, learner.mean.data(), -share * lesson.smoothing, D);
        for (int j = 0; j < D; ++j) hidden_sum[j] += share * hidden[j];
    }

    // No slopes of the right tokens among those of some candidates: where a model is sure of a token, its slope is a small
    // difference of large numbers, which are not to be rounded before. `push` has it.
    void leave_out(const int32_t* labels, int first, int width, int N, Number* slopes) const {
        const int P = int(panelled(lesson.candidate_count));
        for (int r = 0; r < N; ++r)
            if (labels[r] >= first && labels[r] < first + width) slopes[size_t(r) * P + labels[r]] = Number{};
    }

    // What the right token does to the hidden state, by the slope of its logit, and this to the embedding of the token.
    void push(int label, const float* hidden, float* slope, float by) {
        add_scaled(slope, learner.weights[0] + size_t(lesson.candidates[label]) * D, by, D);
        add_scaled(of_candidates + size_t(label) * D, hidden, by, D);
    }

    // e^(x[i] - shift), and the sum of all.
    static float exponentials_of(const float* x, int n, float shift, Number* to) {
        Floats sums{};
        for (int i = 0; i < n; i += PANEL) {
            const Floats first = exponential(load(x + i) - shift), second = exponential(load(x + i + LANES) - shift);
            sums += first + second;
            put(to + i, first, second);
        }
        return sum(sums);
    }
};

}  // namespace heedful::learning
