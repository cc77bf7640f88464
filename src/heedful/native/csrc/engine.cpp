// The C interface of the engine. A function that fails returns a negative number or a null pointer, and `heedful_error`
// returns the reason: no exception leaves this file. Functions and structures change together with native/capi.py and ABI.

#include <cstdio>

#include "adam.h"
#include "cpu.h"
#include "forced_decoding.h"
#include "newton_schulz.h"
#include "search.h"
#include "train.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

using namespace heedful;

namespace {

constexpr int ABI = 12;

thread_local char error[256];  // a fixed size: the message may be that memory is exhausted

template <typename Work>
int32_t guarded(Work work) noexcept {
    const char* message = "an unknown exception";
    try {
        return work();
    } catch (const std::bad_alloc&) {
        message = "there is not enough memory";
    } catch (const std::exception& exception) {
        std::snprintf(error, sizeof error, "%s", exception.what());
        return -1;
    } catch (...) {
    }
    std::snprintf(error, sizeof error, "%s", message);
    return -1;
}

struct DecoderSession {  // a decoder whose search runs in Python
    Decoder decoder;
    std::map<int32_t, std::unique_ptr<Sentence>> sentences;
    int32_t next;  // number of the next sentence
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The version of this interface, and the sizes of all structures that Python passes, in the order of native/capi.py.
int32_t heedful_abi(int64_t* sizes, int32_t count) {
    const size_t own[] = {sizeof(ModelConfig),         sizeof(WeightTensor), sizeof(SearchOptions), sizeof(ForcedPairs),
                          sizeof(train::NamedWeights), sizeof(train::Batch), sizeof(Quintic),       sizeof(AdamTensors),
                          sizeof(AdamOptions)};
    if (count != int32_t(sizeof own / sizeof *own)) return -1;
    std::copy(std::begin(own), std::end(own), sizes);
    return ABI;
}

// The highest instruction set that this machine supports, and why the next one is not supported.
int32_t heedful_supported_isa(const char** why_not_higher) {
    const Supported highest = supported();
    *why_not_higher = highest.why_not_higher;
    return highest.set;
}

const char* heedful_error() { return error; }

Model* heedful_model_new(const ModelConfig* config) {
    Model* model = nullptr;
    guarded([&] { return model = new Model(*config), 0; });
    return model;
}
int32_t heedful_model_load(Model* model, const char* name, const WeightTensor* tensor) {
    return guarded([&] { return model->loader.load(name, *tensor), 0; });
}
// Call it after the last tensor. It also returns the memory of temporary copies to the operating system.
int32_t heedful_model_check_complete(const Model* model) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    return guarded([&] { return model->loader.check_complete(), 0; });
}
void heedful_model_free(Model* model) { delete model; }

Search* heedful_search_new(const Model* model, int32_t threads) {
    Search* search = nullptr;
    guarded([&] { return search = new Search(*model, threads), 0; });
    return search;
}
void heedful_search_free(Search* search) { delete search; }

// Queues a sentence of ids or of audio frames -> its number. `phrases` and `constraint` may be null; `continues` is borrowed
// until the sentence is removed.
int32_t heedful_search_add(Search* search, const int32_t* ids, const float* frames, int32_t length,
                           const SearchOptions* options, const int32_t* prefix, int32_t prefix_length,
                           const int32_t* shortlist, int32_t shortlist_length, const int32_t* phrases,
                           const uint8_t* continues, Constraint constraint) {
    return guarded([&] {
        return search->add(SourceArrays{ids, frames}.first(search->config(), length), *options, {prefix, prefix + prefix_length},
                           {shortlist, shortlist + shortlist_length},
                           phrases ? Phrases(phrases, continues) : Phrases(), constraint);
    });
}

// -> how many sentences ended; their numbers are written to `ended`, which has space for all that were added.
int32_t heedful_search_run(Search* search, int32_t steps, int32_t enough, int32_t max_rows, int32_t* ended) {
    return guarded([&] {
        std::vector<int32_t> numbers = search->run(steps, enough, max_rows);
        std::copy(numbers.begin(), numbers.end(), ended);
        return int32_t(numbers.size());
    });
}

// -> the number of hypotheses of a sentence.
int32_t heedful_search_count(const Search* search, int32_t number) {
    return guarded([&] { return int32_t(search->job(number).hypotheses.size()); });
}
// The i-th hypothesis -> its length; ids and log-probabilities are borrowed until the sentence is removed.
int32_t heedful_search_hypothesis(const Search* search, int32_t number, int32_t i, const int32_t** ids,
                                  const float** log_probs, int32_t* finished) {
    return guarded([&] {
        const Hypothesis& hypothesis = search->job(number).hypotheses.at(i);
        *ids = hypothesis.ids.data(), *log_probs = hypothesis.log_probs.data(), *finished = hypothesis.finished;
        return int32_t(hypothesis.ids.size());
    });
}
int32_t heedful_search_remove(Search* search, int32_t number) {
    return guarded([&] { return search->remove(number), 0; });
}

// A decoder without sentences.
DecoderSession* heedful_decoder_new(const Model* model, int32_t threads) {
    DecoderSession* session = nullptr;
    guarded([&] { return session = new DecoderSession{Decoder(*model, threads), {}, 0}, 0; });
    return session;
}
void heedful_decoder_free(DecoderSession* session) { delete session; }

// Encodes `count` concatenated sources, ids or audio frames, or adds `count` sequences of a decoder-only model if both are
// null -> the number of the first; the others follow.
int32_t heedful_decoder_add(DecoderSession* session, const int32_t* ids, const float* frames, const int32_t* lengths,
                            int32_t count) {
    return guarded([&] {
        const ModelConfig& config = session->decoder.model.config;
        SourceArrays sources{ids, frames};
        std::vector<std::unique_ptr<Sentence>> added;
        std::vector<Sentence*> all;
        for (int32_t s = 0; s < count; ++s) {
            all.push_back(added.emplace_back(std::make_unique<Sentence>()).get());
            all.back()->self_kv.resize(session->decoder.model.decoder.size());
            all.back()->source = sources.first(config, lengths[s]);
            sources = sources.rest(config, lengths[s]);
        }
        if (ids || frames) session->decoder.encode(all);
        for (int32_t s = 0; s < count; ++s) session->sentences[session->next + s] = std::move(added[s]);
        session->next += count;
        return session->next - count;
    });
}
int32_t heedful_decoder_drop(DecoderSession* session, int32_t number) {
    return guarded([&] { return int32_t(session->sentences.erase(number)); });
}

// (R) sentences, the node that each row extends (-1 at first) and its token -> (R) its new node, and log-probabilities of the
// next token, (W, V), of the rows that are wanted; all rows if `wanted` is null.
int32_t heedful_decoder_step(DecoderSession* session, int32_t rows, const int32_t* sentences, int32_t* nodes,
                             const int32_t* ids, const uint8_t* wanted, float* log_probs) {
    return guarded([&] {
        std::vector<Row> all;
        std::map<int32_t, int32_t> next_node;  // of each sentence
        for (int32_t r = 0; r < rows; ++r) {
            Sentence* sentence = session->sentences.at(sentences[r]).get();
            next_node.emplace(sentences[r], int32_t(sentence->nodes.size()));
            all.push_back({sentence, nodes[r], ids[r], 0, !wanted || wanted[r]});
        }
        session->decoder.step(all);
        std::vector<float*> logits;
        for (int32_t r = 0; r < rows; ++r) {
            nodes[r] = next_node[sentences[r]]++;
            if (all[r].wants_logits) logits.push_back(all[r].logits);
        }
        const size_t V = session->decoder.model.config.vocabulary;
        session->decoder.for_each_row(int(logits.size()), [&](int r) {
            const float normalizer = logsumexp(logits[r], int(V));
            for (size_t i = 0; i < V; ++i) log_probs[r * V + i] = logits[r][i] - normalizer;
        });
        return 0;
    });
}

// Forced decoding: the log-probability of each label of all pairs, and attention weights (heads, T, S) of each pair.
int32_t heedful_force(const Model* model, int32_t threads, const ForcedPairs* pairs, float* log_probs, float* weights) {
    return guarded([&] { return force(*model, threads, *pairs, log_probs, weights), 0; });
}

// Hidden states (N, D) of an encoder over `count` concatenated texts; types may be null.
int32_t heedful_encode(const Model* model, int32_t threads, const int32_t* ids, const int32_t* types,
                       const int32_t* lengths, int32_t count, float* hidden) {
    return guarded([&] { return Decoder(*model, threads).hidden_states(ids, types, lengths, count, hidden), 0; });
}
// The heads of an encoder over rows of hidden states: logits of the vocabulary, pooled states, logits of the labels.
int32_t heedful_encoder_logits(const Model* model, int32_t threads, const float* hidden, int32_t rows, float* logits) {
    return guarded([&] { return Decoder(*model, threads).token_logits(hidden, rows, logits), 0; });
}
int32_t heedful_encoder_pool(const Model* model, int32_t threads, const float* hidden, int32_t rows, float* pooled) {
    return guarded([&] { return Decoder(*model, threads).pool(hidden, rows, pooled), 0; });
}
int32_t heedful_encoder_classify(const Model* model, int32_t threads, const float* pooled, int32_t rows, float* logits) {
    return guarded([&] { return Decoder(*model, threads).class_logits(pooled, rows, logits), 0; });
}

// To be trained, a model needs layer widths that are multiples of this, and head widths that are multiples of half of it.
int32_t heedful_panel_width() { return PANEL; }

// Whether bf16 GEMMs are faster than float32 GEMMs.
int32_t heedful_prefers_bf16() { return prefers_bf16(); }

// A trainer whose GEMMs with weights are computed in bf16 if `bf16`, else in float32.
train::Trainer* heedful_trainer_new(const ModelConfig* config, const train::NamedWeights* weights, int32_t bf16) {
    train::Trainer* trainer = nullptr;
    guarded([&] {
        if (bf16)
            trainer = new train::TransformerTrainer<BF16>(*config, *weights);
        else
            trainer = new train::TransformerTrainer<float>(*config, *weights);
        return 0;
    });
    return trainer;
}
void heedful_trainer_free(train::Trainer* trainer) { delete trainer; }

int32_t heedful_train_step(train::Trainer* trainer, const train::Batch* batch, int32_t threads, float* gradients,
                           double* sums) {
    return guarded([&] { return trainer->train_step(*batch, threads, gradients, sums); });
}
int32_t heedful_add_gradients(const float* parts, int32_t count, int64_t size, float scale, float* to, int32_t threads) {
    return guarded([&] { return train::add_gradients(parts, count, size, scale, to, threads), 0; });
}
int32_t heedful_adam_step(const AdamTensors* tensors, const AdamOptions* options, int32_t threads) {
    return guarded([&] { return adam_step(*tensors, *options, threads), 0; });
}

int32_t heedful_newton_schulz(float* matrices, int32_t count, int32_t rows, int32_t columns, const Quintic* quintic,
                              int32_t threads, int32_t bf16) {
    return guarded([&] {
        const auto orthogonalize = bf16 ? orthogonalize_all<NewtonSchulzBF16> : orthogonalize_all<NewtonSchulzF32>;
        return orthogonalize(matrices, count, rows, columns, *quintic, threads), 0;
    });
}
}
#pragma GCC visibility pop
