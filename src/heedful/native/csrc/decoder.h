// Sentences that are being translated: what the encoder read, and what rows have written so far.
//
// What was written is a tree for each sentence. A node is one token that the decoder has seen; its keys and values are
// kept once, and a row is the path from the root to a node. So rows branch and end without a copy, and rows of any
// length, of any sentence, are computed side by side.
#pragma once

#include "model.h"
#include "parallel.h"

namespace heedful {

struct Node {
    int32_t id, parent, depth;  // the root has the parent -1
    float log_prob;
};

struct Sentence {
    std::vector<int32_t> source;
    std::vector<int32_t> shortlist;  // the tokens that it may be made of, in ascending order; of any if there are none
    std::vector<Node> nodes;
    std::vector<std::vector<float>> memory;  // of each layer and head: (S, d) keys, then (S, d) values of the source
    std::vector<std::vector<float>> past;    // of each layer: (nodes, 2 D) keys and values of what was written
};

struct Row {  // the token `id` follows the node `parent`, and is to become a node
    Sentence* sentence;
    int32_t parent, id;
    float log_prob;
    float* logits = nullptr;  // of what may follow it: a number for each token of the shortlist, or of the vocabulary
};

constexpr size_t ENOUGH_TOKENS = 256;  // that the encoder reads at once

class Decoder {
  public:
    Decoder(const Model& model, int threads) : model(model), threads(std::max(1, threads)) {}

    // The encoder, over all these sentences, some at a time: many more tokens would be no faster and take much room.
    void read(const std::vector<Sentence*>& sentences) {
        std::vector<Sentence*> some;
        size_t tokens = 0;
        for (Sentence* each : sentences) {
            some.push_back(each), tokens += each->source.size();
            if (tokens < ENOUGH_TOKENS && each != sentences.back()) continue;
            read_together(some);
            some.clear(), tokens = 0;
        }
    }

    // One step: every row becomes the last node of its sentence, in order, and gets its logits.
    void step(std::vector<Row>& rows) {
        const size_t D = model.shape.width, d = model.head_width();
        const int R = int(rows.size());
        std::vector<int32_t> node(R), paths;  // of every row: its node; the nodes of all paths, one after the other
        std::vector<size_t> path{0};          // where the path of a row begins there
        for (int r = 0; r < R; ++r) {
            std::vector<Node>& nodes = rows[r].sentence->nodes;
            const int32_t parent = rows[r].parent, depth = parent < 0 ? 0 : nodes[parent].depth + 1;
            node[r] = int32_t(nodes.size());
            nodes.push_back({rows[r].id, parent, depth, rows[r].log_prob});
            paths.resize(path.back() + depth + 1);
            for (int32_t i = node[r]; i >= 0; i = nodes[i].parent) paths[path.back() + nodes[i].depth] = i;
            path.push_back(paths.size());
        }
        auto depth = [&](int r) { return int(path[r + 1] - path[r]) - 1; };
        float* x = scratch.x.at_least(R * D);
        each_row(R, [&](int r) {
            model.embed(model.embedding, model.decoder_table, model.decoder_first, rows[r].id, depth(r), x + r * D);
        });
        for (size_t l = 0; l < model.decoder.size(); ++l) {
            const Layer& layer = model.decoder[l];
            residual(layer.self_norm, x, R, [&](float* to) {
                float* look = multiply(layer.look, scratch.wide);
                for (const Row& row : rows) row.sentence->past[l].resize(row.sentence->nodes.size() * 2 * D);
                each_row(R, [&](int r) {
                    model.turn(look + r * 3 * D, model.decoder_table, depth(r));
                    model.turn(look + r * 3 * D + D, model.decoder_table, depth(r));
                    float* kept = rows[r].sentence->past[l].data() + node[r] * 2 * D;
                    std::memcpy(kept, look + r * 3 * D + D, 2 * D * sizeof(float));
                });
                float* heads = scratch.heads.at_least(R * D);
                each_row(R, [&](int r) {
                    Kept kept{rows[r].sentence->past[l].data(), 2 * D, d, D, &paths[path[r]]};
                    model.attend(look + r * 3 * D, depth(r) + 1, kept, depth(r), heads + r * D);
                });
                prepare(heads, R, int(D));
                layer.found.times(scratch.rows, to, threads);
            });
            residual(layer.cross_norm, x, R, [&](float* to) {
                const float* ask = multiply(layer.ask, scratch.wide);
                float* heads = scratch.heads.at_least(R * D);
                each_row(R, [&](int r) {
                    const size_t S = rows[r].sentence->source.size();
                    Kept kept{rows[r].sentence->memory[l].data(), d, 2 * S * d, S * d, nullptr};
                    model.attend(ask + r * D, int(S), kept, -1, heads + r * D);
                });
                prepare(heads, R, int(D));
                layer.answered.times(scratch.rows, to, threads);
            });
            feed(layer, x, R);
        }
        finish(model.decoder_norm, x, R);
        project(x, rows);
    }

    // How many logits a row of a sentence has.
    size_t width(const Sentence& sentence) const {
        return sentence.shortlist.empty() ? model.shape.vocabulary : sentence.shortlist.size();
    }

    template <typename Work>
    void each_row(int rows, Work work) const {
        Caught caught;
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows >= 8)
        for (int r = 0; r < rows; ++r) caught.run([&] { work(r); });
        caught.rethrow();
    }

    const Model& model;

  private:
    const int threads;
    struct Scratch {  // grows to what is needed, and stays
        Rows rows;
        Room<float> x, normed, wide, heads, added, inner, gate, logits;
    } scratch;

    void read_together(const std::vector<Sentence*>& sentences) {
        const size_t D = model.shape.width, d = model.head_width();
        std::vector<int> first, place;  // of every token: where its sentence begins, and where it stands there
        std::vector<int32_t> ids;
        for (Sentence* each : sentences) {
            const int begin = int(ids.size());
            for (size_t i = 0; i < each->source.size(); ++i) first.push_back(begin), place.push_back(int(i));
            ids.insert(ids.end(), each->source.begin(), each->source.end());
            each->memory.resize(model.decoder.size());
            each->past.resize(model.decoder.size());
        }
        const int N = int(ids.size());
        std::vector<int> length(N);
        for (int r = N - 1; r >= 0; --r) length[r] = r + 1 < N && place[r + 1] ? length[r + 1] : place[r] + 1;
        float* x = scratch.x.at_least(N * D);
        const Matrix& embedding = model.source_embedding();
        each_row(N, [&](int r) {
            model.embed(embedding, model.encoder_table, model.encoder_first, ids[r], place[r], x + r * D);
        });
        for (const Layer& layer : model.encoder) {
            residual(layer.self_norm, x, N, [&](float* to) {
                float* look = multiply(layer.look, scratch.wide);
                each_row(N, [&](int r) {
                    model.turn(look + r * 3 * D, model.encoder_table, place[r]);
                    model.turn(look + r * 3 * D + D, model.encoder_table, place[r]);
                });
                float* heads = scratch.heads.at_least(N * D);
                each_row(N, [&](int r) {
                    Kept kept{look + first[r] * 3 * D + D, 3 * D, d, D, nullptr};
                    model.attend(look + r * 3 * D, length[r], kept, place[r], heads + r * D);
                });
                prepare(heads, N, int(D));
                layer.found.times(scratch.rows, to, threads);
            });
            feed(layer, x, N);
        }
        finish(model.encoder_norm, x, N);
        prepare(x, N, int(D));
        for (size_t l = 0; l < model.decoder.size(); ++l) {
            const float* memory = multiply(model.decoder[l].memory, scratch.wide);
            for (Sentence* each : sentences) {
                each->memory[l].resize(each->source.size() * 2 * D);
                float* to = each->memory[l].data();
                for (int h = 0; h < model.shape.heads; ++h)
                    for (const float* part : {memory + h * d, memory + D + h * d})
                        for (size_t i = 0; i < each->source.size(); ++i, to += d)
                            std::copy(part + i * 2 * D, part + i * 2 * D + d, to);
                memory += each->source.size() * 2 * D;
            }
        }
    }

    void prepare(const float* x, int rows, int width) { scratch.rows.set(x, rows, width, model.shape.small, threads); }

    float* multiply(const Matrix& matrix, Room<float>& room) {
        float* to = room.at_least(size_t(scratch.rows.count) * matrix.out);
        matrix.times(scratch.rows, to, threads);
        return to;
    }

    // Rows side by side that may be made of any token share a product; a sentence with a shortlist has one of its own.
    void project(const float* x, std::vector<Row>& rows) {
        size_t total = 0;
        for (const Row& row : rows) total += width(*row.sentence);
        float* to = scratch.logits.at_least(total);
        for (size_t first = 0, end = 0; first < rows.size(); first = end) {
            const Sentence& sentence = *rows[first].sentence;
            const bool any = sentence.shortlist.empty();
            const size_t numbers = width(sentence);
            while (end < rows.size() && (any ? rows[end].sentence->shortlist.empty() : rows[end].sentence == &sentence))
                rows[end].logits = to + (end - first) * numbers, ++end;
            prepare(x + first * model.shape.width, int(end - first), model.shape.width);
            if (any)
                model.output().times(scratch.rows, to, threads);
            else
                model.some_output.times(scratch.rows, sentence.shortlist, to, threads);
            to += (end - first) * numbers;
        }
    }

    // x (rows, D) becomes x + sublayer(norm(x)), or norm(x + sublayer(x)); the sublayer finds its input prepared.
    template <typename Sublayer>
    void residual(const Norm& norm, float* x, int rows, Sublayer sublayer) {
        const size_t D = model.shape.width;
        float *added = scratch.added.at_least(rows * D), *given = x;
        if (model.shape.norm_first) {
            given = scratch.normed.at_least(rows * D);
            each_row(rows, [&](int r) { norm.row(x + r * D, given + r * D); });
        }
        prepare(given, rows, int(D));
        sublayer(added);
        each_row(rows, [&](int r) {
            add_scaled(x + r * D, added + r * D, 1.0f, int(D));
            if (!model.shape.norm_first) norm.row(x + r * D, x + r * D);
        });
    }

    void feed(const Layer& layer, float* x, int rows) {
        residual(layer.feed_norm, x, rows, [&](float* to) {
            const size_t F = model.shape.inner;
            float* inner = multiply(layer.up, scratch.inner);
            const float* gate = model.shape.activation == SWIGLU ? multiply(layer.gate, scratch.gate) : nullptr;
            each_row(rows, [&](int r) { model.activate(inner + r * F, gate ? gate + r * F : nullptr); });
            prepare(inner, rows, int(F));
            layer.down.times(scratch.rows, to, threads);
        });
    }

    // Pre-norm ends in a norm of its own.
    void finish(const Norm& norm, float* x, int rows) {
        const size_t D = model.shape.width;
        if (model.shape.norm_first) each_row(rows, [&](int r) { norm.row(x + r * D, x + r * D); });
    }
};

}  // namespace heedful
