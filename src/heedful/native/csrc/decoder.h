// The encoder, one step of the decoder over the rows of many sentences, and the heads of an encoder.
//
// Rows of any length, of any sentence, share the GEMMs of a step; each attends over its own path in its sentence's KV cache.
#pragma once

#include "block_attention.h"
#include "model.h"
#include "parallel.h"

namespace heedful {

constexpr size_t ENCODER_TOKENS = 256;    // after which an encoder batch is full
constexpr int MIN_PARALLEL_ROWS = 8;      // from which a second thread pays
constexpr float MIN_GATE = -60;           // of a pointer-generator: e^60 is far from the largest float

class Decoder {
  public:
    Decoder(const Model& model, int threads) : model(model), threads(std::max(1, threads)) {}

    // Encodes the sentences in batches: larger ones are not faster and take more memory.
    void encode(const std::vector<Sentence*>& sentences) {
        std::vector<Sentence*> batch;
        size_t tokens = 0;
        for (Sentence* sentence : sentences) {
            batch.push_back(sentence), tokens += sentence->source.length;
            if (tokens < ENCODER_TOKENS && sentence != sentences.back()) continue;
            encode_batch(batch);
            batch.clear(), tokens = 0;
        }
    }

    // The hidden states of an encoder: (N, D) of the concatenated sentences. types may be null. Sentences are computed in
    // batches, as in `encode`; where there are enough of them, each thread computes its own.
    void hidden_states(const int32_t* ids, const int32_t* types, const int32_t* lengths, int sentences, float* hidden) {
        std::vector<TokenSpans> batches;
        std::vector<size_t> begins;  // the first token of each batch
        size_t tokens = 0;
        for (int s = 0; s < sentences; ++s) {
            if (batches.empty() || size_t(batches.back().count()) >= ENCODER_TOKENS)
                batches.emplace_back(), begins.push_back(tokens);
            batches.back().add(lengths[s]), tokens += lengths[s];
        }
        const size_t D = model.config.width;
        auto compute = [&](Decoder& decoder, size_t b) {
            const size_t begin = begins[b];
            float* embedded = decoder.embed_tokens(ids + begin, types ? types + begin : nullptr, batches[b]);
            const float* x = decoder.encode_layers(embedded, batches[b]);
            std::copy_n(x, batches[b].count() * D, hidden + begin * D);
        };
        if (batches.size() < size_t(threads))
            for (size_t b = 0; b < batches.size(); ++b) compute(*this, b);
        else
            parallel_for_with(batches.size(), threads, [&] { return Decoder(model, 1); }, compute);
    }

    // The heads of an encoder, over rows of hidden states: logits of the vocabulary (R, V), pooled states (R, D), and logits of
    // the labels of pooled states (R, labels).
    void token_logits(const float* hidden, int rows, float* logits) {
        const size_t D = model.config.width;
        if (model.config.head == TRANSFORM_HEAD) {
            float* x = workspace.x.ensure(rows * D);
            apply_head(model.transform, hidden, rows, x);
            for_each_row(rows, [&](int r) {
                activation_forward(model.config.activation, x + r * D, D, x + r * D, nullptr);
                model.transform_norm.apply(x + r * D, x + r * D);
            });
            hidden = x;
        }
        apply_head(model.output(), hidden, rows, logits);
    }
    void pool(const float* first_tokens, int rows, float* pooled) {
        apply_head(model.pooler, first_tokens, rows, pooled);
        activation_forward(TANH, pooled, size_t(rows) * model.config.width, pooled, nullptr);
    }
    void class_logits(const float* pooled, int rows, float* logits) { apply_head(model.classifier, pooled, rows, logits); }

    // One decoder step: each row is appended to the nodes of its sentence, in order, and gets its logits if it wants them.
    // The parent of a row may be a node of the same step: a prompt is one step.
    void step(std::vector<Row>& rows) {
        const size_t D = model.config.width, d = model.head_width();
        const int R = int(rows.size());
        std::vector<int32_t> node(R), paths;  // the new node of each row; the nodes of all rows' paths, concatenated
        std::vector<size_t> path{0};          // where each row's path begins in `paths`
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
        float* x = workspace.x.ensure(R * D);
        for_each_row(R, [&](int r) {
            model.embed(model.embedding, model.decoder_table, model.decoder_norms.embedding, rows[r].id, -1, depth(r),
                        x + r * D);
        });
        for (size_t l = 0; l < model.decoder.size(); ++l) {
            const Layer& layer = model.decoder[l];
            residual(layer.self_norm, x, R, [&](float* to) {
                float* qkv = project(layer.qkv, workspace.projected);
                for (const Row& row : rows) row.sentence->self_kv[l].resize(row.sentence->nodes.size() * 2 * D);
                for_each_row(R, [&](int r) {
                    model.rotate(qkv + r * 3 * D, model.decoder_table, depth(r));
                    model.rotate(qkv + r * 3 * D + D, model.decoder_table, depth(r));
                    float* kv = rows[r].sentence->self_kv[l].data() + node[r] * 2 * D;
                    std::memcpy(kv, qkv + r * 3 * D + D, 2 * D * sizeof(float));
                });
                float* heads = workspace.heads.ensure(R * D);
                for_each_row(R, [&](int r) {
                    KVView kv{rows[r].sentence->self_kv[l].data(), 2 * D, d, D, &paths[path[r]]};
                    model.attend(qkv + r * 3 * D, depth(r) + 1, kv, depth(r), heads + r * D);
                });
                set_input(heads, R, int(D));
                layer.attn_out.gemm(workspace.rows, to, threads);
            });
            if (model.config.family == ENCODER_DECODER) residual(layer.cross_norm, x, R, [&](float* to) {
                const float* query = project(layer.cross_q, workspace.projected);
                float* heads = workspace.heads.ensure(R * D);
                for_each_row(R, [&](int r) {
                    const size_t S = rows[r].sentence->source.length;
                    KVView kv{rows[r].sentence->cross_kv[l].data(), d, 2 * S * d, S * d, nullptr};
                    float* kept = rows[r].cross_weights;
                    model.attend(query + r * D, int(S), kv, -1, heads + r * D, rows[r].sentence->hidden,
                                 kept ? kept + l * model.config.heads * S : nullptr);
                });
                set_input(heads, R, int(D));
                layer.cross_out.gemm(workspace.rows, to, threads);
            });
            feed_forward(layer, x, R);
        }
        std::vector<Row*> wanting;
        for (int r = 0; r < R; ++r)
            if (rows[r].wants_logits) {
                std::memmove(x + wanting.size() * D, x + r * D, D * sizeof(float));
                wanting.push_back(&rows[r]);
            }
        final_norm(model.decoder_norms.final, x, int(wanting.size()));
        compute_logits(x, wanting);
    }

    // The number of logits of a row.
    size_t logit_count(const Sentence& sentence) const {
        return sentence.shortlist.empty() ? model.config.vocabulary : sentence.shortlist.size();
    }

    template <typename Work>
    void for_each_row(int rows, Work work, int least = MIN_PARALLEL_ROWS) const {
        parallel_for(rows, rows >= least ? threads : 1, work);
    }

    const Model& model;

  private:
    const int threads;
    struct Workspace {  // grows on demand and is reused
        Activations rows;
        Buffer<float> x, normed, projected, heads, output, inner, gate, logits, frames;
    } workspace;

    // Several sentences, concatenated: the first token, the length and the hidden token of each, and the position of each
    // token in its own.
    struct TokenSpans {
        std::vector<int> first, length, hidden, position;

        int count() const { return int(position.size()); }
        void add(int tokens, int hidden_token = -1) {
            first.push_back(count()), length.push_back(tokens), hidden.push_back(hidden_token);
            for (int i = 0; i < tokens; ++i) position.push_back(i);
        }
    };

    // The embeddings of the source, (N, D), valid until the workspace is used again. types may be null.
    float* embed_tokens(const int32_t* ids, const int32_t* types, const TokenSpans& spans) {
        const size_t D = model.config.width;
        const int N = spans.count();
        const bool typed = model.config.token_types > 0;
        float* x = workspace.x.ensure(N * D);
        const PackedMatrix& embedding = model.source_embedding();
        for_each_row(N, [&](int r) {
            model.embed(embedding, model.encoder_table, model.encoder_norms.embedding, ids[r],
                        !typed ? -1 : types ? types[r] : 0, spans.position[r], x + r * D);
        });
        return x;
    }

    // The same of audio: GELU(conv(GELU(conv(frames)))) of each recording; with stride 2 only the second convolution strides.
    // A convolution reads zeros beyond both ends.
    float* embed_audio(const std::vector<Sentence*>& recordings, const TokenSpans& spans) {
        const size_t D = model.config.width, F = model.config.features, stride = model.config.feature_stride;
        float* x = workspace.x.ensure(spans.count() * D);
        float* to = x;
        for (const Sentence* recording : recordings) {
            const std::vector<float>& frames = recording->source.frames;
            const int length = recording->source.length;
            float* padded = workspace.frames.ensure(frames.size() + 2 * F);
            std::fill_n(padded, F, 0.0f), std::fill_n(padded + F + frames.size(), F, 0.0f);
            std::copy(frames.begin(), frames.end(), padded + F);
            float* first = workspace.inner.ensure((2 * size_t(length) + 2) * D);
            std::fill_n(first, D, 0.0f), std::fill_n(first + (2 * size_t(length) + 1) * D, D, 0.0f);
            convolve(model.front_end.first, padded, 2 * length, stride / 2 * F, first + D);
            convolve(model.front_end.second, first, length, 2 * D, to);
            to += length * D;
        }
        for_each_row(spans.count(), [&](int r) {
            model.add_position(model.encoder_table, model.encoder_norms.embedding, spans.position[r], x + r * D);
        });
        return x;
    }

    // GELU of a convolution; `distance` floats from the first frame that one output reads to that of the next.
    void convolve(const PackedMatrix& convolution, const float* frames, int outputs, size_t distance, float* to) {
        workspace.rows.assign_f32(frames, outputs, convolution.in, distance);
        convolution.gemm(workspace.rows, to, threads);
        const size_t D = convolution.out;
        for_each_row(outputs, [&](int r) { activation_forward(GELU, to + r * D, D, to + r * D, nullptr); });
    }

    // The encoder's hidden states, (N, D), in place of the embeddings.
    float* encode_layers(float* x, const TokenSpans& spans) {
        const size_t D = model.config.width;
        const std::vector<int>& position = spans.position;
        const int N = spans.count();
        for (const Layer& layer : model.encoder) {
            residual(layer.self_norm, x, N, [&](float* to) {
                float* qkv = project(layer.qkv, workspace.projected);
                for_each_row(N, [&](int r) {
                    model.rotate(qkv + r * 3 * D, model.encoder_table, position[r]);
                    model.rotate(qkv + r * 3 * D + D, model.encoder_table, position[r]);
                });
                set_input(attend_within(qkv, spans), N, int(D));
                layer.attn_out.gemm(workspace.rows, to, threads);
            });
            feed_forward(layer, x, N);
        }
        final_norm(model.encoder_norms.final, x, N);
        return x;
    }

    // Self-attention within each sentence: (N, 3 D) queries, keys and values -> (N, D). Queries are overwritten.
    const float* attend_within(float* qkv, const TokenSpans& spans) {
        const size_t D = model.config.width, d = model.head_width(), heads = model.config.heads;
        float* to = workspace.heads.ensure(spans.count() * D);
        for_each_row(int(spans.first.size() * heads), [&](int i) {
            const size_t h = i % heads, begin = spans.first[i / heads];
            const int n = spans.length[i / heads], hidden = spans.hidden[i / heads];
            float *query = qkv + begin * 3 * D + h * d, *out = to + begin * D + h * d;
            const float slope = model.config.positions == ALIBI ? model.slopes[h] : 0.0f;
            if (n >= BLOCK_ATTENTION_TOKENS) return block_attention(query, n, int(d), 3 * D, D, slope, hidden, out);
            if (d % LANES || hidden >= 0) {
                const KVView kv{qkv + begin * 3 * D + D, 3 * D, d, D, nullptr};
                for (int t = 0; t < n; ++t) model.attend_head(query + t * 3 * D, int(h), n, kv, t, out + t * D, hidden);
                return;
            }
            thread_local Buffer<float> weights, scratch;
            const AttentionShape shape{n, n, int(d), long(3 * D), false, slope, 0.0f};
            attention_forward(shape, query, query + D, query + 2 * D, DropoutRng(0, 0, 0, 0.0f),
                              weights.ensure(shape.weights_size()), query, scratch);
            for (int t = 0; t < n; ++t) std::copy_n(query + t * 3 * D, d, out + t * D);
        }, spans.count() >= BLOCK_ATTENTION_TOKENS ? 2 : MIN_PARALLEL_ROWS);
        return to;
    }

    void encode_batch(const std::vector<Sentence*>& sentences) {
        const size_t D = model.config.width, d = model.head_width();
        TokenSpans spans;
        std::vector<int32_t> ids;
        for (Sentence* sentence : sentences) {
            spans.add(sentence->source.length, sentence->hidden);
            ids.insert(ids.end(), sentence->source.ids.begin(), sentence->source.ids.end());
            sentence->cross_kv.resize(model.decoder.size());
            sentence->self_kv.resize(model.decoder.size());
        }
        const bool audio = model.config.features > 0;
        const float* x = encode_layers(audio ? embed_audio(sentences, spans) : embed_tokens(ids.data(), nullptr, spans), spans);
        set_input(x, spans.count(), int(D));
        if (model.config.pointer) {
            const float* keys = project(model.pointer_key, workspace.projected);
            for (Sentence* sentence : sentences) {
                const float* end = keys + sentence->source.length * D;
                sentence->copy_keys.assign(keys, end), keys = end;
            }
        }
        for (size_t l = 0; l < model.decoder.size(); ++l) {
            const float* projected = project(model.decoder[l].cross_kv, workspace.projected);
            for (Sentence* sentence : sentences) {
                const size_t S = sentence->source.length;
                sentence->cross_kv[l].resize(S * 2 * D);
                float* to = sentence->cross_kv[l].data();
                for (int h = 0; h < model.config.heads; ++h)
                    for (const float* part : {projected + h * d, projected + D + h * d})
                        for (size_t i = 0; i < S; ++i, to += d)
                            std::copy(part + i * 2 * D, part + i * 2 * D + d, to);
                projected += S * 2 * D;
            }
        }
        for (Sentence* sentence : sentences) sentence->source.frames = {};
    }

    void apply_head(const PackedMatrix& matrix, const float* x, int rows, float* to) {
        if (!matrix.out) throw std::invalid_argument("the model has no such head");
        set_input(x, rows, model.config.width);
        matrix.gemm(workspace.rows, to, threads);
    }

    // The left-hand operand of the following `project` calls.
    void set_input(const float* x, int rows, int width) {
        workspace.rows.assign(x, rows, width, model.config.int8, threads);
    }

    float* project(const PackedMatrix& matrix, Buffer<float>& buffer) {
        float* to = buffer.ensure(size_t(workspace.rows.count) * matrix.out);
        matrix.gemm(workspace.rows, to, threads);
        return to;
    }

    // Adjacent rows without a shortlist share one GEMM; the rows of a sentence with a shortlist have their own.
    void compute_logits(const float* x, const std::vector<Row*>& rows) {
        size_t total = 0;
        for (const Row* row : rows) total += logit_count(*row->sentence);
        float* to = workspace.logits.ensure(total);
        for (size_t first = 0, end = 0; first < rows.size(); first = end) {
            const Sentence& sentence = *rows[first]->sentence;
            const bool unrestricted = sentence.shortlist.empty();
            const size_t count = logit_count(sentence);
            while (end < rows.size() &&
                   (unrestricted ? rows[end]->sentence->shortlist.empty() : rows[end]->sentence == &sentence))
                rows[end]->logits = to + (end - first) * count, ++end;
            set_input(x + first * model.config.width, int(end - first), model.config.width);
            if (unrestricted)
                model.output().gemm(workspace.rows, to, threads);
            else
                model.shortlist_output.gemm(workspace.rows, sentence.shortlist, to, threads);
            to += (end - first) * count;
        }
        if (model.config.pointer) add_copies(x, rows);
    }

    // A pointer-generator: P(w) = p_gen softmax(w) + (1 - p_gen) a(w), where a is the attention to the source tokens w. Only
    // the logits of source tokens change: the softmax over all logits is P, because their sum grows by 1 / p_gen.
    void add_copies(const float* x, const std::vector<Row*>& rows) {
        const size_t D = model.config.width;
        set_input(x, int(rows.size()), int(D));
        const float *queries = project(model.pointer_query, workspace.projected), scale = 1 / std::sqrt(float(D));
        const float* gates = project(model.pointer_gate, workspace.gate);
        for_each_row(int(rows.size()), [&](int r) {
            const Sentence& sentence = *rows[r]->sentence;
            const int S = sentence.source.length, V = model.config.vocabulary;
            float* logits = rows[r]->logits;
            thread_local Buffer<float> buffer;
            float* weights = buffer.ensure(S);
            for (int i = 0; i < S; ++i) weights[i] = scale * dot(queries + r * D, sentence.copy_keys.data() + i * D, int(D));
            if (sentence.hidden >= 0) weights[sentence.hidden] = -INF;
            const float total = sum_exp<false>(weights, S, max_value(weights, S));
            const float largest = max_value(logits, V), sum = sum_exp<true>(logits, V, largest);
            const float odds = std::exp(-std::max(gates[r], MIN_GATE)) * sum / total;  // (1 - p_gen) / p_gen, in units of the sum
            for (int i = 0; i < S; ++i) {
                float& logit = logits[sentence.source.ids[i]];
                const float mass = std::exp(logit - largest) + odds * weights[i];
                if (mass > 0) logit = largest + std::log(mass);
            }
        });
    }

    // x (rows, D) becomes x + sublayer(norm(x)) (pre-norm) or norm(x + sublayer(x)) (post-norm). `set_input` has been called
    // with the sublayer's input.
    template <typename Sublayer>
    void residual(const Norm& norm, float* x, int rows, Sublayer sublayer) {
        const size_t D = model.config.width;
        float *output = workspace.output.ensure(rows * D), *input = x;
        if (model.config.pre_norm) {
            input = workspace.normed.ensure(rows * D);
            for_each_row(rows, [&](int r) { norm.apply(x + r * D, input + r * D); });
        }
        set_input(input, rows, int(D));
        sublayer(output);
        for_each_row(rows, [&](int r) {
            axpy(x + r * D, output + r * D, 1.0f, int(D));
            if (!model.config.pre_norm) norm.apply(x + r * D, x + r * D);
        });
    }

    void feed_forward(const Layer& layer, float* x, int rows) {
        residual(layer.feed_norm, x, rows, [&](float* to) {
            const size_t F = model.config.inner;
            float* inner = project(layer.up, workspace.inner);
            float* gate = model.config.gated() ? project(layer.gate, workspace.gate) : nullptr;
            for_each_row(rows, [&](int r) { model.activate(inner + r * F, gate ? gate + r * F : nullptr); });
            set_input(inner, rows, int(F));
            layer.down.gemm(workspace.rows, to, threads);
        });
    }

    // The norm at the end of a pre-norm stack.
    void final_norm(const Norm& norm, float* x, int rows) {
        const size_t D = model.config.width;
        if (model.config.pre_norm) for_each_row(rows, [&](int r) { norm.apply(x + r * D, x + r * D); });
    }
};

}  // namespace heedful
