// Beam search over sentences that come and go: the rules of heedful/search/beam.py, a sentence at a time.
//
// Nothing passes between sentences but the products that their rows share, so a sentence has the same result alone or
// beside any others, from whichever step it joined.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "decoder.h"

namespace heedful {

struct Options {  // of one sentence; Python fills it in
    int32_t beam, n_best, limit;  // limit: most tokens of the output, its end included
    int32_t bos, eos, pad;
    double alpha;
};

struct Found {
    std::vector<int32_t> ids;  // with eos, if it is finished
    std::vector<float> log_probs;
    bool finished;
};

struct Candidate {
    double score;  // sum of log-probabilities
    int row;       // of the sentence
    int32_t id;
    float log_prob;

    bool operator<(const Candidate& other) const {  // better first; ties to the lowest row, then the lowest id
        if (score != other.score) return score > other.score;
        return row != other.row ? row < other.row : id < other.id;
    }
};

// One row of logits, read once in blocks, and only then asked for what is best in it.
class Distribution {
  public:
    // All tokens are columns of the row, which may be changed: what is banned, bos and pad if they are not eos, goes to
    // minus infinity, after it had its share of the probability.
    void set(float* row, int size, int32_t bos, int32_t eos, int32_t pad) {
        logits = row, width = size;
        maxima.resize((size + BLOCK - 1) / BLOCK);
        float most = -INFINITE;
        for (size_t b = 0; b < maxima.size(); ++b) most = std::max(most, maxima[b] = of_block(b));
        normaliser = most + std::log(exponentials<true>(row, size, most));
        if (!std::isfinite(normaliser)) throw std::domain_error("the model's probabilities are not numbers");
        banned[0] = {bos, row[bos]}, banned[1] = {pad, row[pad]};
        for (int32_t never : {bos, pad})
            if (never != eos) logits[never] = -INFINITE, maxima[never / BLOCK] = of_block(never / BLOCK);
    }

    float log_prob(int32_t column) const {  // also of what is banned
        for (auto& [never, logit] : banned)
            if (column == never) return logit - normaliser;
        return logits[column] - normaliser;
    }

    // The k best columns, best first, ties to the lowest; fewer if there are not so many.
    //
    // They are all as large as the k-th largest maximum of a block, so few numbers are looked at.
    void best(size_t k, std::vector<int32_t>& columns) const {
        columns.clear();
        float least = std::numeric_limits<float>::lowest();  // what is banned is below it
        if (maxima.size() > k) {
            sorted = maxima;
            std::nth_element(sorted.begin(), sorted.begin() + k - 1, sorted.end(), std::greater<float>());
            least = std::max(least, sorted[k - 1]);
        }
        for (size_t b = 0; b < maxima.size(); ++b) {
            if (maxima[b] < least) continue;
            const int end = std::min(width, int(b + 1) * BLOCK);
            for (int32_t i = int32_t(b) * BLOCK; i < end; ++i) {
                if (!(logits[i] >= least) || (columns.size() == k && !(logits[i] > logits[columns.back()]))) continue;
                if (columns.size() == k) columns.pop_back();
                auto at = columns.end();
                while (at != columns.begin() && logits[i] > logits[*(at - 1)]) --at;
                columns.insert(at, i);
            }
        }
    }

  private:
    static constexpr int BLOCK = 64;
    float* logits = nullptr;
    int width = 0;
    float normaliser = 0;
    std::pair<int32_t, float> banned[2];
    std::vector<float> maxima;
    mutable std::vector<float> sorted;

    float of_block(size_t b) const {
        return maximum(logits + b * BLOCK, std::min(BLOCK, width - int(b) * BLOCK));
    }
};

struct Job {  // one sentence that is searched
    Sentence sentence;
    Options options;
    std::vector<int32_t> prefix;  // what its output must begin with
    std::vector<Candidate> live;  // what goes on: `row` is the node that each follows
    std::vector<Found> found;
    std::vector<double> best;     // scores of what is finished, best first, n_best at most
    std::vector<int32_t> nodes;   // of the live rows, in this step
    bool joined = false, done = false;

    // Where a token stands in a row of logits, and the other way round.
    int32_t column(int32_t id) const {
        const std::vector<int32_t>& some = sentence.shortlist;
        return some.empty() ? id : int32_t(std::lower_bound(some.begin(), some.end(), id) - some.begin());
    }
    int32_t token(int32_t column) const { return sentence.shortlist.empty() ? column : sentence.shortlist[column]; }
};

inline double length_penalty(int length, double alpha) { return std::pow((5.0 + length) / 6.0, alpha); }

class Search {
  public:
    Search(const Model& model, int threads) : decoder(model, threads) {}

    // A sentence that joins as soon as there is room.
    int32_t add(std::vector<int32_t> source, const Options& options, std::vector<int32_t> prefix,
                std::vector<int32_t> shortlist) {
        auto job = std::make_unique<Job>();
        job->sentence.source = std::move(source), job->options = options, job->prefix = std::move(prefix);
        job->sentence.shortlist = std::move(shortlist);
        check(*job);
        job->live = {{0.0, -1, options.bos, 0.0f}};
        jobs[++last] = std::move(job);
        waiting.push_back(last);
        return last;
    }

    void drop(int32_t number) {
        const Job& job = *jobs.at(number);
        if (!job.joined) waiting.erase(std::remove(waiting.begin(), waiting.end(), number), waiting.end());
        if (job.joined && !job.done) live -= job.options.beam;
        ended.erase(std::remove(ended.begin(), ended.end(), number), ended.end());
        jobs.erase(number);
    }

    const Job& job(int32_t number) const { return *jobs.at(number); }

    // Some steps, until `enough` sentences are done or none is left; their numbers. They stay until they are dropped.
    // Sentences join, in the order they were added, while there are fewer than `most` rows. If a step throws, those that
    // ended in it are in the result of the next call.
    std::vector<int32_t> run(int steps, size_t enough, int most) {
        for (; steps > 0 && ended.size() < enough; --steps)
            if (!step(most)) break;
        return std::exchange(ended, {});
    }

  private:
    // All sentences grow by a token, and those that are done by it end; whether there were any.
    bool step(int most) {
        join(most);
        std::vector<Row> rows;
        std::vector<std::pair<int32_t, int>> order;  // a job and its first row
        for (auto& [number, job] : jobs) {
            if (job->done || !job->joined) continue;
            order.push_back({number, int(rows.size())});
            job->nodes.clear();
            for (const Candidate& each : job->live) {
                job->nodes.push_back(int32_t(job->sentence.nodes.size() + job->nodes.size()));
                rows.push_back({&job->sentence, each.row, each.id, each.log_prob});
            }
        }
        if (rows.empty()) return false;
        decoder.step(rows);
        distributions.resize(rows.size());
        candidates.resize(rows.size());
        ended.reserve(ended.size() + order.size());
        std::exception_ptr problem;
        try {
            each_job(order, [&](Job& job, int first) { grow(job, &rows[first], first); });
        } catch (...) {  // of one sentence; the others have taken the step, and may have ended by it
            problem = std::current_exception();
        }
        for (auto& [number, first] : order) {
            Job& job = *jobs[number];
            if (!job.done) continue;
            ended.push_back(number), live -= job.options.beam;
            job.sentence = {};  // only what was found is asked for now
        }
        if (problem) std::rethrow_exception(problem);
        return true;
    }

    // Sentences that cannot be read stay among those that wait.
    void join(int most) {
        std::vector<Sentence*> fresh;
        size_t count = 0;
        for (int rows = live; count < waiting.size() && rows < most; ++count) {
            Job& job = *jobs.at(waiting[count]);
            rows += job.options.beam;
            fresh.push_back(&job.sentence);
        }
        decoder.read(fresh);
        for (; count; --count, waiting.pop_front()) {
            Job& job = *jobs.at(waiting.front());
            job.joined = true, live += job.options.beam;
        }
    }

    Decoder decoder;
    std::map<int32_t, std::unique_ptr<Job>> jobs;
    std::deque<int32_t> waiting;
    std::vector<int32_t> ended;  // and not yet told
    int live = 0;  // rows, if all beams are full
    std::vector<Distribution> distributions;
    std::vector<std::vector<int32_t>> candidates;
    int32_t last = 0;

    template <typename Work>
    void each_job(const std::vector<std::pair<int32_t, int>>& order, Work work) {
        std::vector<Job*> in_order;
        for (auto& [number, first] : order) in_order.push_back(jobs[number].get());
        decoder.each_row(int(order.size()), [&](int i) { work(*in_order[i], order[i].second); });
    }

    void check(const Job& job) const {
        const std::vector<int32_t>& some = job.sentence.shortlist;
        if (some.empty()) return;
        const Shape& shape = decoder.model.shape;
        bool right = shape.shortlists && some.front() >= 0 && some.back() < shape.vocabulary;
        for (size_t i = 1; i < some.size(); ++i) right &= some[i - 1] < some[i];
        auto has = [&](int32_t id) { return std::binary_search(some.begin(), some.end(), id); };
        for (int32_t id : {job.options.bos, job.options.eos, job.options.pad}) right &= has(id);
        for (int32_t id : job.prefix) right &= has(id);
        if (!right) throw std::invalid_argument("a shortlist is not in order, or lacks a token that is needed");
    }

    void grow(Job& job, const Row* rows, int first) {
        const Options& asked = job.options;
        const size_t beam = asked.beam;
        const int length = job.sentence.nodes[job.nodes[0]].depth;  // tokens so far
        const int32_t bos = job.column(asked.bos), eos = job.column(asked.eos), pad = job.column(asked.pad);
        std::vector<Candidate> all;
        for (size_t r = 0; r < job.live.size(); ++r) {
            Distribution& distribution = distributions[first + r];
            distribution.set(rows[r].logits, int(decoder.width(job.sentence)), bos, eos, pad);
            std::vector<int32_t>& columns = candidates[first + r];
            if (size_t(length) < job.prefix.size())
                columns.assign(1, job.column(job.prefix[length]));
            else
                distribution.best(2 * beam, columns);
            for (int32_t column : columns) {
                float log_prob = distribution.log_prob(column);
                all.push_back({job.live[r].score + log_prob, int(r), job.token(column), log_prob});
            }
        }
        std::sort(all.begin(), all.end());
        if (all.size() > 2 * beam) all.resize(2 * beam);
        std::vector<Candidate> live;
        for (size_t i = 0; i < all.size() && live.size() < beam; ++i) {
            if (all[i].id != asked.eos)
                live.push_back(all[i]);
            else if (i < beam)
                end(job, all[i], length + 1);
        }
        finish(job, live, length);
        for (Candidate& each : live) each.row = job.nodes[each.row];
        job.live = std::move(live);
    }

    void end(Job& job, const Candidate& by, int length) {
        job.found.push_back(spelled(job, by.row, &by, true));
        job.best.push_back(by.score / length_penalty(length, job.options.alpha));
        std::sort(job.best.rbegin(), job.best.rend());
        if (job.best.size() > size_t(job.options.n_best)) job.best.resize(job.options.n_best);
    }

    // A sentence is done at its limit, or when no row has the prospect of joining the n best: log-probabilities only fall
    // and the penalty only grows, so no row can become better than it is now by the penalty of the longest output. With
    // as many endings as the beam is wide it goes on only for a row that is better than an ending as it stands.
    void finish(Job& job, const std::vector<Candidate>& live, int length) {
        const Options& asked = job.options;
        const size_t endings = job.found.size();
        const int longest = endings >= size_t(asked.beam) ? length + 1 : asked.limit;
        const double bar = job.best.size() < size_t(asked.n_best) ? -std::numeric_limits<double>::infinity()
                                                                  : job.best.back();
        job.done = live.empty() || live[0].score / length_penalty(longest, asked.alpha) <= bar ||
                   asked.limit <= length + 1;
        if (!job.done || endings >= size_t(asked.n_best)) return;
        for (const Candidate& each : live) job.found.push_back(spelled(job, each.row, &each, false));
        if (live.empty() && !endings)
            for (size_t r = 0; r < job.live.size(); ++r) job.found.push_back(spelled(job, int(r), nullptr, false));
    }

    // The tokens of a live row, and one more.
    Found spelled(const Job& job, int row, const Candidate* next, bool finished) const {
        Found found{{}, {}, finished};
        const std::vector<Node>& nodes = job.sentence.nodes;
        for (int32_t i = job.nodes[row]; nodes[i].depth > 0; i = nodes[i].parent) {
            found.ids.push_back(nodes[i].id);
            found.log_probs.push_back(nodes[i].log_prob);
        }
        std::reverse(found.ids.begin(), found.ids.end());
        std::reverse(found.log_probs.begin(), found.log_probs.end());
        if (next) {
            found.ids.push_back(next->id);
            found.log_probs.push_back(next->log_prob);
        }
        return found;
    }
};

}  // namespace heedful
