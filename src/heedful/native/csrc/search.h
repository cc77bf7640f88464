// Beam search with continuous batching: sentences join the running batch at any step and leave it when they are done.
//
// The rules are those of heedful/search/beam.py. Sentences share the GEMMs of a step and nothing else, so the result of a
// sentence does not depend on the rest of the batch or on the step at which it joined.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "decoder.h"
#include "phrases.h"
#include "repetition.h"

namespace heedful {

struct SearchOptions {  // of one sentence; native/capi.py mirrors it
    int32_t beam, n_best, limit;  // limit: the most tokens of the output, eos included
    int32_t bos, eos, pad;
    int32_t min_length, no_repeat_ngram, loop_guard;
    int32_t kept;  // finished hypotheses whose worst a live row must beat
    int32_t stops_at_full_beam, power_of_length;
    double length_penalty;

    // The length penalty: GNMT's (Wu et al., 2016), or a power of the length.
    double length_norm(int length) const { return std::pow(power_of_length ? length : (5.0 + length) / 6.0, length_penalty); }
};

// A constraint of the caller: sets logits (V) of a search's row to minus infinity, given the n ids of its output so far.
using Constraint = void (*)(int32_t search, float* logits, const int32_t* ids, int32_t n);

struct Hypothesis {
    std::vector<int32_t> ids;  // with eos if finished
    std::vector<float> log_probs;
    bool finished;
};

struct Candidate {
    double score;  // sum of log-probabilities
    int row;       // index among the sentence's live rows; once chosen, its node
    int32_t id;
    float log_prob;

    bool operator<(const Candidate& other) const {  // better first; ties to the lowest row, then the lowest id
        if (score != other.score) return score > other.score;
        return row != other.row ? row < other.row : id < other.id;
    }
};

// The distribution of the next token of one row: log-softmax and top-k over blocks of logits.
class Distribution {
  public:
    // bos, eos and pad are columns of the row, which is modified: bos and pad are banned unless they are eos, by setting
    // their logits to minus infinity after the softmax's normalizer has been computed.
    void set(float* row, int size, int32_t bos, int32_t eos, int32_t pad) {
        logits = row, width = size;
        maxima.resize((size + BLOCK - 1) / BLOCK);
        float max_logit = -INF;
        for (size_t b = 0; b < maxima.size(); ++b) max_logit = std::max(max_logit, maxima[b] = block_max(b));
        logsumexp = max_logit + std::log(sum_exp<true>(row, size, max_logit));
        if (!std::isfinite(logsumexp)) throw std::domain_error("the model's probabilities are not numbers");
        banned[0] = {bos, row[bos]}, banned[1] = {pad, row[pad]};
        for (int32_t id : {bos, pad})
            if (id != eos) ban(id);
    }

    // Lets `constrain` change the logits.
    template <typename Constrain>
    void change(Constrain constrain) {
        constrain(logits);
        for (size_t b = 0; b < maxima.size(); ++b) maxima[b] = block_max(b);
    }

    void ban(int32_t column) { logits[column] = -INF, maxima[column / BLOCK] = block_max(column / BLOCK); }

    float log_prob(int32_t column) const {  // banned tokens included
        for (auto& [id, logit] : banned)
            if (column == id) return logit - logsumexp;
        return logits[column] - logsumexp;
    }

    // Top-k: the k best columns, best first, ties to the lowest; fewer if the row has fewer.
    //
    // None is below the k-th largest block maximum, so most blocks are skipped.
    void top_k(size_t k, std::vector<int32_t>& columns) const {
        columns.clear();
        float least = std::numeric_limits<float>::lowest();  // above the banned logits
        if (maxima.size() > k) {
            largest.resize(k);
            std::partial_sort_copy(maxima.begin(), maxima.end(), largest.begin(), largest.end(), std::greater<float>());
            least = std::max(least, largest.back());
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
    float logsumexp = 0;
    std::pair<int32_t, float> banned[2];
    std::vector<float> maxima;
    mutable std::vector<float> largest;

    float block_max(size_t b) const {
        return max_value(logits + b * BLOCK, std::min(BLOCK, width - int(b) * BLOCK));
    }
};

struct Job {  // the beam search of one sentence
    int32_t number;
    Constraint constraint = nullptr;
    Sentence sentence;
    SearchOptions options;
    std::vector<int32_t> prefix;  // forced first tokens of the output
    Phrases phrases;              // that the output must contain
    std::vector<PhraseState> states;  // of the live rows, if there are phrases
    std::vector<Candidate> live;  // the beam: unfinished hypotheses; `row` is the node that each extends
    std::vector<Hypothesis> hypotheses;
    std::vector<double> best;     // scores of the finished hypotheses, best first, options.kept at most
    std::vector<int32_t> nodes;   // of the live rows in the current step
    bool admitted = false, done = false;
    int max_copies = 0;           // of an n-gram in a row, in the second search of a sentence with a loop; 0: no limit

    // Token id -> its column in a row of logits, and back.
    int32_t column(int32_t id) const {
        const std::vector<int32_t>& shortlist = sentence.shortlist;
        if (shortlist.empty()) return id;
        return int32_t(std::lower_bound(shortlist.begin(), shortlist.end(), id) - shortlist.begin());
    }
    int32_t token(int32_t column) const { return sentence.shortlist.empty() ? column : sentence.shortlist[column]; }

    int rows() const { return int(phrases.empty() ? options.beam : phrases.filled_rows(options.beam)); }  // as a rule
};

class Search {
  public:
    Search(const Model& model, int threads) : decoder(model, threads) {}

    // Queues a sentence -> its number.
    int32_t add(Source source, const SearchOptions& options, std::vector<int32_t> prefix,
                std::vector<int32_t> shortlist, Phrases phrases, Constraint constraint) {
        auto job = std::make_unique<Job>();
        job->sentence.source = std::move(source), job->options = options, job->prefix = std::move(prefix);
        job->sentence.shortlist = std::move(shortlist), job->phrases = std::move(phrases);
        job->constraint = constraint, job->number = last_number + 1;
        if (!job->phrases.empty()) job->states.resize(1);
        check(*job);
        job->live = {{0.0, -1, options.bos, 0.0f}};
        jobs[++last_number] = std::move(job);
        waiting.push_back(last_number);
        return last_number;
    }

    void remove(int32_t number) {
        const Job& job = *jobs.at(number);
        if (!job.admitted) waiting.erase(std::remove(waiting.begin(), waiting.end(), number), waiting.end());
        if (job.admitted && !job.done) live -= job.rows();
        ended.erase(std::remove(ended.begin(), ended.end(), number), ended.end());
        jobs.erase(number);
    }

    const ModelConfig& config() const { return decoder.model.config; }
    const Job& job(int32_t number) const { return *jobs.at(number); }

    // Runs `steps` steps, or fewer if `enough` sentences end or none is left -> the numbers of those that ended, which stay
    // until they are removed. Queued sentences join, in order, while the batch has fewer than `max_rows` rows. If a step
    // throws, the sentences that ended in it are in the result of the next call.
    std::vector<int32_t> run(int steps, size_t enough, int max_rows) {
        for (; steps > 0 && ended.size() < enough; --steps)
            if (!step(max_rows)) break;
        return std::exchange(ended, {});
    }

  private:
    // Extends all running sentences by one token -> whether there were any.
    bool step(int max_rows) {
        admit(max_rows);
        std::vector<Row> rows;
        std::vector<std::pair<int32_t, int>> order;  // a job and its first row
        for (auto& [number, job] : jobs) {
            if (job->done || !job->admitted) continue;
            order.push_back({number, int(rows.size())});
            job->nodes.clear();
            for (const Candidate& candidate : job->live) {
                job->nodes.push_back(int32_t(job->sentence.nodes.size() + job->nodes.size()));
                rows.push_back({&job->sentence, candidate.row, candidate.id, candidate.log_prob});
            }
        }
        if (rows.empty()) return false;
        decoder.step(rows);
        distributions.resize(rows.size());
        candidates.resize(rows.size());
        ended.reserve(ended.size() + order.size());
        std::exception_ptr exception;
        try {
            for_each_job(order, [&](Job& job, int first) { extend(job, &rows[first], first); });
        } catch (...) {  // by one sentence; the others have taken the step, and may have ended in it
            exception = std::current_exception();
        }
        for (auto& [number, first] : order) {
            Job& job = *jobs[number];
            if (!job.done) continue;
            ended.push_back(number), live -= job.rows();
            job.sentence = {};  // frees its KV cache; only the hypotheses are needed now
        }
        if (exception) std::rethrow_exception(exception);
        return true;
    }

    // Moves queued sentences into the batch. They stay queued if encoding them throws.
    void admit(int max_rows) {
        std::vector<Sentence*> fresh;
        size_t count = 0;
        for (int rows = live; count < waiting.size() && rows < max_rows; ++count) {
            Job& job = *jobs.at(waiting[count]);
            rows += job.rows();
            fresh.push_back(&job.sentence);
        }
        decoder.encode(fresh);
        for (; count; --count, waiting.pop_front()) {
            Job& job = *jobs.at(waiting.front());
            job.admitted = true, live += job.rows();
        }
    }

    Decoder decoder;
    std::map<int32_t, std::unique_ptr<Job>> jobs;
    std::deque<int32_t> waiting;
    std::vector<int32_t> ended;  // not yet returned by `run`
    int live = 0;                // rows of the batch if all beams are filled
    std::vector<Distribution> distributions;
    std::vector<std::vector<int32_t>> candidates;
    int32_t last_number = 0;

    template <typename Work>
    void for_each_job(const std::vector<std::pair<int32_t, int>>& order, Work work) {
        std::vector<Job*> in_order;
        for (auto& [number, first] : order) in_order.push_back(jobs[number].get());
        decoder.for_each_row(int(order.size()), [&](int i) { work(*in_order[i], order[i].second); });
    }

    void check(const Job& job) const {
        const std::vector<int32_t>& shortlist = job.sentence.shortlist;
        const ModelConfig& config = decoder.model.config;
        if (job.constraint && !shortlist.empty()) throw std::invalid_argument("a constraint cannot have a shortlist");
        if (!job.phrases.all_tokens([&](int32_t id) { return id >= 0 && id < config.vocabulary; }))
            throw std::invalid_argument("a phrase has a token that is not in the vocabulary");
        if (shortlist.empty()) return;
        if (config.pointer) throw std::invalid_argument("a pointer-generator copies tokens that a shortlist may lack");
        bool valid = config.shortlists && shortlist.front() >= 0 && shortlist.back() < config.vocabulary;
        for (size_t i = 1; i < shortlist.size(); ++i) valid &= shortlist[i - 1] < shortlist[i];
        auto has = [&](int32_t id) { return std::binary_search(shortlist.begin(), shortlist.end(), id); };
        for (int32_t id : {job.options.bos, job.options.eos, job.options.pad}) valid &= has(id);
        for (int32_t id : job.prefix) valid &= has(id);
        valid &= job.phrases.all_tokens(has);
        if (!valid) throw std::invalid_argument("a shortlist is not in order, or lacks a token that is needed");
    }

    // One step of beam search for one sentence.
    void extend(Job& job, const Row* rows, int first) {
        const SearchOptions& options = job.options;
        const size_t beam = options.beam;
        const int length = job.sentence.nodes[job.nodes[0]].depth;  // of the output so far
        const int32_t bos = job.column(options.bos), eos = job.column(options.eos), pad = job.column(options.pad);
        if (!job.phrases.empty()) return extend_constrained(job, rows, first, length);
        std::vector<Candidate> all;
        for (size_t r = 0; r < job.live.size(); ++r) {
            Distribution& distribution = distributions[first + r];
            distribution.set(rows[r].logits, int(decoder.logit_count(job.sentence)), bos, eos, pad);
            std::vector<int32_t>& columns = candidates[first + r];
            if (size_t(length) < job.prefix.size())
                columns.assign(1, job.column(job.prefix[length]));
            else {
                ban_tokens(job, int(r), length, distribution);
                distribution.top_k(2 * beam, columns);
            }
            for (int32_t column : columns) {
                float log_prob = distribution.log_prob(column);
                all.push_back({job.live[r].score + log_prob, int(r), job.token(column), log_prob});
            }
        }
        std::sort(all.begin(), all.end());
        if (all.size() > 2 * beam) all.resize(2 * beam);
        std::vector<Candidate> live;
        for (size_t i = 0; i < all.size() && live.size() < beam; ++i) {
            if (all[i].id != options.eos)
                live.push_back(all[i]);
            else if (i < beam)
                add_finished(job, all[i], length + 1);
        }
        check_done(job, live, length);
        for (Candidate& candidate : live) candidate.row = job.nodes[candidate.row];
        job.live = std::move(live);
        if (job.done && options.loop_guard && !job.max_copies) search_again_without_loop(job);
    }

    // Bans the tokens that may not follow a live row.
    void ban_tokens(const Job& job, int row, int length, Distribution& distribution) const {
        if (length < job.options.min_length) distribution.ban(job.column(job.options.eos));
        if (!job.options.no_repeat_ngram && !job.max_copies && !job.constraint) return;
        std::vector<int32_t> tokens;
        const std::vector<int32_t> ids = trace_back(job, row, nullptr, false).ids;
        if (job.constraint)
            distribution.change([&](float* logits) { job.constraint(job.number, logits, ids.data(), int32_t(ids.size())); });
        add_ngram_ends(ids, job.options.no_repeat_ngram, tokens);
        if (job.max_copies) add_loop_tokens(ids, job.max_copies, tokens);
        for (int32_t id : tokens) distribution.ban(job.column(id));
    }

    // Starts the search anew if its best hypothesis has a loop that the source does not have (heedful/search/loops.py).
    void search_again_without_loop(Job& job) const {
        auto rank = [&](const Hypothesis& hypothesis) {
            const double sum = std::accumulate(hypothesis.log_probs.begin(), hypothesis.log_probs.end(), 0.0);
            return std::pair(hypothesis.finished, sum / job.options.length_norm(int(hypothesis.ids.size())));
        };
        if (job.hypotheses.empty()) return;
        const Hypothesis& best = *std::max_element(job.hypotheses.begin(), job.hypotheses.end(),
                                                   [&](auto& a, auto& b) { return rank(a) < rank(b); });
        const std::vector<int32_t> output(best.ids.begin(), best.ids.end() - best.finished);
        if (decoder.model.config.features && best.finished) return;  // audio may repeat itself: only without an end is it a loop
        const int copies = max_copies(output), of_source = copies > MAX_COPIES ? max_copies(job.sentence.source.ids) : 0;
        if (copies <= std::max(MAX_COPIES, of_source)) return;
        job.max_copies = std::max(GUARDED_COPIES, of_source);
        job.live = {{0.0, -1, job.options.bos, 0.0f}};
        job.hypotheses.clear(), job.best.clear(), job.sentence.nodes.clear();
        for (std::vector<float>& kv : job.sentence.self_kv) kv.clear();
        job.done = false;
    }

    // The same for a sentence with phrases (dynamic beam allocation): hypotheses that have come equally far with their phrases
    // form a bank, and banks share the beam. A hypothesis ends only with all phrases; if its most probable token is eos before
    // that, it is extended by the phrases alone, or dropped if another hypothesis has all of them. If only the phrases fit before
    // the limit, it is extended by them alone, too.
    void extend_constrained(Job& job, const Row* rows, int first, int length) {
        const SearchOptions& options = job.options;
        const Phrases& phrases = job.phrases;
        const int32_t bos = job.column(options.bos), eos = job.column(options.eos), pad = job.column(options.pad);
        std::vector<Candidate> all;
        std::vector<int32_t> wanted;
        bool complete = !job.hypotheses.empty();  // whether a hypothesis has all phrases: others then need not be closed
        for (const PhraseState& state : job.states) complete |= phrases.complete(state);
        for (size_t r = 0; r < job.live.size(); ++r) {
            PhraseState& state = job.states[r];
            Distribution& distribution = distributions[first + r];
            distribution.set(rows[r].logits, int(decoder.logit_count(job.sentence)), bos, eos, pad);
            std::vector<int32_t>& columns = candidates[first + r];
            auto add = [&](int32_t id) {
                float log_prob = distribution.log_prob(job.column(id));
                if (log_prob > -INF) all.push_back({job.live[r].score + log_prob, int(r), id, log_prob});
            };
            if (size_t(length) < job.prefix.size()) {
                add(job.prefix[length]);
                continue;
            }
            ban_tokens(job, int(r), length, distribution);
            phrases.wanted(state, wanted);
            distribution.top_k(2 * options.beam + phrases.reserved_tokens().size() + wanted.size(), columns);
            if (!phrases.complete(state) && !columns.empty() && columns[0] == eos) state.closing = true;
            const bool at_limit = options.limit - length <= phrases.missing(state) + 1;
            const bool only_phrases = !phrases.complete(state) && (state.closing || at_limit);
            if (only_phrases && state.closing && complete) continue;
            for (int32_t id : wanted) add(id);
            if (only_phrases) continue;
            for (int32_t column : columns) {
                const int32_t id = job.token(column);
                if (std::find(wanted.begin(), wanted.end(), id) != wanted.end() || phrases.forbidden(state, id)) continue;
                if (id != options.eos || phrases.complete(state)) add(id);
            }
        }
        std::sort(all.begin(), all.end());
        std::vector<std::vector<Candidate>> banks(phrases.banks());
        auto after = [&](const Candidate& candidate) { return phrases.next(job.states[candidate.row], candidate.id); };
        size_t better = 0;  // candidates with all phrases
        for (const Candidate& candidate : all) {
            const PhraseState state = after(candidate);
            const bool ends = candidate.id == options.eos;
            if (ends && better < size_t(options.beam)) add_finished(job, candidate, length + 1);
            if (!ends) banks[phrases.bank(state)].push_back(candidate);
            better += phrases.complete(state);
        }
        drop_incomplete(job, banks, length, after);
        std::vector<Candidate> live = share_beam(banks, phrases.filled_rows(options.beam), options.beam);
        check_done(job, live, length);
        std::vector<PhraseState> states;
        for (const Candidate& candidate : live) states.push_back(after(candidate));
        for (Candidate& candidate : live) candidate.row = job.nodes[candidate.row];
        job.live = std::move(live), job.states = std::move(states);
    }

    // Drops candidates without all phrases that cannot enter the n best, by the rule of `check_done`: more of them once as many
    // hypotheses as rows are finished.
    template <typename After>
    void drop_incomplete(const Job& job, std::vector<std::vector<Candidate>>& banks, int length, After after) const {
        if (job.best.size() < size_t(job.options.kept)) return;
        const int longest = job.hypotheses.size() >= size_t(job.rows()) ? length + 1 : job.options.limit;
        const double norm = job.options.length_norm(longest);
        auto hopeless = [&](const Candidate& candidate) {
            return !job.phrases.complete(after(candidate)) && candidate.score / norm <= job.best.back();
        };
        for (std::vector<Candidate>& bank : banks)
            bank.erase(std::remove_if(bank.begin(), bank.end(), hopeless), bank.end());
    }

    // The best candidate of every bank, then the second best of every bank, and so on, until `filled` rows have one. If there are
    // more banks than rows of the beam, the first one and the last ones have a row.
    static std::vector<Candidate> share_beam(const std::vector<std::vector<Candidate>>& banks, size_t filled, size_t beam) {
        std::vector<Candidate> live;
        for (const std::vector<Candidate>& bank : banks)
            if (!bank.empty()) live.push_back(bank[0]);
        if (live.size() > beam) live.erase(live.begin() + 1, live.end() - (beam - 1));
        beam = std::max(filled, live.size());
        for (size_t rank = 1, before = 0; live.size() != before && live.size() < beam; ++rank) {
            before = live.size();
            for (const std::vector<Candidate>& bank : banks)
                if (rank < bank.size()) live.push_back(bank[rank]);
            std::sort(live.begin() + before, live.end());
        }
        if (live.size() > beam) live.resize(beam);
        std::sort(live.begin(), live.end());
        return live;
    }

    void add_finished(Job& job, const Candidate& last, int length) {
        job.hypotheses.push_back(trace_back(job, last.row, &last, true));
        job.best.push_back(last.score / job.options.length_norm(length));
        std::sort(job.best.rbegin(), job.best.rend());
        if (job.best.size() > size_t(job.options.kept)) job.best.resize(job.options.kept);
    }

    // A sentence is done at its limit, or when no live row can still enter the kept best: log-probabilities only decrease and
    // the length norm only grows, so a row's best possible score is its current sum over the norm of the longest output.
    // Once as many hypotheses as the beam are finished, only a row whose current score is better continues the search, or none.
    void check_done(Job& job, const std::vector<Candidate>& live, int length) {
        const SearchOptions& options = job.options;
        const size_t finished = job.hypotheses.size();
        const int longest = finished >= size_t(options.beam) ? length + 1 : options.limit;
        const double worst = job.best.size() < size_t(options.kept) ? -std::numeric_limits<double>::infinity()
                                                                  : job.best.back();
        job.done = live.empty() || live[0].score / options.length_norm(longest) <= worst ||
                   (options.stops_at_full_beam && finished >= size_t(options.beam)) || options.limit <= length + 1;
        if (!job.done || finished >= size_t(options.n_best)) return;
        for (const Candidate& candidate : live)
            job.hypotheses.push_back(trace_back(job, candidate.row, &candidate, false));
        if (live.empty() && !finished)
            for (size_t r = 0; r < job.live.size(); ++r)
                job.hypotheses.push_back(trace_back(job, int(r), nullptr, false));
    }

    // The hypothesis of a live row, extended by `next` if given.
    Hypothesis trace_back(const Job& job, int row, const Candidate* next, bool finished) const {
        Hypothesis hypothesis{{}, {}, finished};
        const std::vector<Node>& nodes = job.sentence.nodes;
        for (int32_t i = job.nodes[row]; nodes[i].depth > 0; i = nodes[i].parent) {
            hypothesis.ids.push_back(nodes[i].id);
            hypothesis.log_probs.push_back(nodes[i].log_prob);
        }
        std::reverse(hypothesis.ids.begin(), hypothesis.ids.end());
        std::reverse(hypothesis.log_probs.begin(), hypothesis.log_probs.end());
        if (next) {
            hypothesis.ids.push_back(next->id);
            hypothesis.log_probs.push_back(next->log_prob);
        }
        return hypothesis;
    }
};

}  // namespace heedful
