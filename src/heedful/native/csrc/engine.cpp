// What Python calls. Every function that can fail returns a negative number or a null pointer then, and `heedful_error`
// says why: no exception leaves this file. Functions and structures change together with native/capi.py and its ABI.

#include <cstdio>

#include "cpu.h"
#include "learning.h"
#include "orthogonal.h"
#include "search.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

using namespace heedful;

namespace {

constexpr int ABI = 1;

thread_local char error[256];  // of a fixed size: it also has to say that there is no memory left

template <typename Work>
int32_t guarded(Work work) noexcept {
    const char* said = "an unknown exception";
    try {
        return work();
    } catch (const std::bad_alloc&) {
        said = "there is not enough memory";
    } catch (const std::exception& problem) {
        std::snprintf(error, sizeof error, "%s", problem.what());
        return -1;
    } catch (...) {
    }
    std::snprintf(error, sizeof error, "%s", said);
    return -1;
}

struct Steps {  // rows that Python searches by itself
    Decoder decoder;
    std::vector<std::unique_ptr<Sentence>> sentences;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// The version of this interface and the sizes of all structures that Python passes, in the order of native/capi.py.
int32_t heedful_abi(int64_t* sizes, int32_t count) {
    const size_t own[] = {sizeof(Shape),   sizeof(Tensor),           sizeof(Options),
                          sizeof(learning::Outline), sizeof(learning::Lesson), sizeof(learning::Quintic)};
    if (count != int32_t(sizeof own / sizeof *own)) return -1;
    std::copy(std::begin(own), std::end(own), sizes);
    return ABI;
}

// The highest instruction set of this machine, and what the next one lacks here.
int32_t heedful_supported(const char** why_not_higher) {
    const Supported found = supported();
    *why_not_higher = found.why_not_higher;
    return found.set;
}

const char* heedful_error() { return error; }

Model* heedful_model(const Shape* shape) {
    Model* model = nullptr;
    guarded([&] { return model = new Model(*shape), 0; });
    return model;
}
int32_t heedful_fill(Model* model, const char* name, const Tensor* tensor) {
    return guarded([&] { return model->places.fill(name, *tensor), 0; });
}
// To be called when all tensors are given; what they took on their way here goes back to the system.
int32_t heedful_filled(const Model* model) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    return guarded([&] { return model->places.check_filled(), 0; });
}
void heedful_model_free(Model* model) { delete model; }

Search* heedful_search(const Model* model, int32_t threads) {
    Search* search = nullptr;
    guarded([&] { return search = new Search(*model, threads), 0; });
    return search;
}
void heedful_search_free(Search* search) { delete search; }

int32_t heedful_add(Search* search, const int32_t* source, int32_t length, const Options* options,
                    const int32_t* prefix, int32_t prefix_length, const int32_t* shortlist, int32_t tokens) {
    return guarded([&] {
        return search->add({source, source + length}, *options, {prefix, prefix + prefix_length},
                           {shortlist, shortlist + tokens});
    });
}

// How many sentences ended; their numbers are written to `ended`, which has room for all that were added.
int32_t heedful_run(Search* search, int32_t steps, int32_t enough, int32_t most, int32_t* ended) {
    return guarded([&] {
        std::vector<int32_t> done = search->run(steps, enough, most);
        std::copy(done.begin(), done.end(), ended);
        return int32_t(done.size());
    });
}

int32_t heedful_found(const Search* search, int32_t number) {
    return guarded([&] { return int32_t(search->job(number).found.size()); });
}
// The i-th of what was found: its length; ids and log-probabilities are lent until the sentence is dropped.
int32_t heedful_hypothesis(const Search* search, int32_t number, int32_t i, const int32_t** ids,
                           const float** log_probs, int32_t* finished) {
    return guarded([&] {
        const Found& found = search->job(number).found.at(i);
        *ids = found.ids.data(), *log_probs = found.log_probs.data(), *finished = found.finished;
        return int32_t(found.ids.size());
    });
}
int32_t heedful_drop(Search* search, int32_t number) {
    return guarded([&] { return search->drop(number), 0; });
}

// Sources one after the other, `lengths` of them.
Steps* heedful_steps(const Model* model, int32_t threads, const int32_t* sources, const int32_t* lengths,
                     int32_t count) {
    Steps* steps = nullptr;
    guarded([&] {
        auto made = std::make_unique<Steps>(Steps{Decoder(*model, threads), {}});
        std::vector<Sentence*> all;
        for (int32_t s = 0; s < count; sources += lengths[s++]) {
            made->sentences.push_back(std::make_unique<Sentence>());
            made->sentences.back()->source.assign(sources, sources + lengths[s]);
            all.push_back(made->sentences.back().get());
        }
        made->decoder.read(all);
        steps = made.release();
        return 0;
    });
    return steps;
}
void heedful_steps_free(Steps* steps) { delete steps; }

// (R) sentences, the nodes that each row follows (-1 at first) and its last tokens -> (R) its new nodes, and (R, V)
// log-probabilities of the next token.
int32_t heedful_advance(Steps* steps, int32_t rows, const int32_t* sentences, int32_t* nodes, const int32_t* ids,
                        float* log_probs) {
    return guarded([&] {
        std::vector<Row> all;
        for (int32_t r = 0; r < rows; ++r) all.push_back({steps->sentences[sentences[r]].get(), nodes[r], ids[r], 0});
        const size_t V = steps->decoder.model.shape.vocabulary;
        steps->decoder.step(all);
        std::map<int32_t, int32_t> of_sentence;
        for (int32_t r = 0; r < rows; ++r) of_sentence[sentences[r]] += 1;
        for (auto& [s, count] : of_sentence) count = int32_t(steps->sentences[s]->nodes.size()) - count;
        for (int32_t r = 0; r < rows; ++r) nodes[r] = of_sentence[sentences[r]]++;
        steps->decoder.each_row(rows, [&](int r) {
            float* row = all[r].logits;
            float most = maximum(row, int(V));
            float normaliser = most + std::log(exponentials<true>(row, int(V), most));
            for (size_t i = 0; i < V; ++i) log_probs[r * V + i] = row[i] - normaliser;
        });
        return 0;
    });
}

// Widths of layers have to be multiples of this to be learned, and those of heads of half of it.
int32_t heedful_panel() { return PANEL; }

// Whether products in halves are faster than those of floats.
int32_t heedful_fast_halves() { return learning::fast_halves(); }

// One that computes products with weights in halves, if `halves`.
learning::Learning* heedful_learner(const learning::Outline* outline, const float* const* weights, const int64_t* sizes,
                                    int32_t count, const float* positions, int32_t halves) {
    learning::Learning* learner = nullptr;
    guarded([&] {
        if (halves)
            learner = new learning::Learner<learning::Half>(*outline, weights, sizes, count, positions);
        else
            learner = new learning::Learner<float>(*outline, weights, sizes, count, positions);
        return 0;
    });
    return learner;
}
void heedful_learner_free(learning::Learning* learner) { delete learner; }

int32_t heedful_learn(learning::Learning* learner, const learning::Lesson* lesson, int32_t threads, float* gradients,
                      double* sums) {
    return guarded([&] { return learner->learn(*lesson, threads, gradients, sums), 0; });
}

int32_t heedful_orthogonal(float* matrices, int32_t count, int32_t rows, int32_t columns,
                           const learning::Quintic* quintic, int32_t threads, int32_t halves) {
    return guarded([&] {
        const auto make = halves ? learning::make_orthogonal<learning::HalvedOrthogonal>
                                 : learning::make_orthogonal<learning::Orthogonal>;
        return make(matrices, count, rows, columns, *quintic, threads), 0;
    });
}
}
#pragma GCC visibility pop
