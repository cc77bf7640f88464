// The configuration of a model, for training and for inference, and the names of its variants.
//
// Legend of all files: D width of the hidden states, H heads, d = D / H, F inner width of the feed-forward layer, V
// vocabulary, N concatenated tokens of several sentences, R rows of a decoder step, one new token each, C candidates of the
// (sampled) softmax.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heedful {

enum Family { ENCODER_DECODER, DECODER, ENCODER };  // the paper's Transformer, a GPT, a BERT
enum Activation { RELU, GELU, GELU_TANH, SILU, SWIGLU, TANH };
enum Positions { ADDED, ROTARY, ALIBI };  // sinusoidal and learned positions are added to the embeddings
enum Head { NO_HEAD, LINEAR_HEAD, TRANSFORM_HEAD };  // between the hidden states of an encoder and its logits

struct ModelConfig {  // native/capi.py mirrors it
    int32_t family, width, inner, heads, encoder_layers, decoder_layers, vocabulary;
    int32_t source_vocabulary;  // 0 if there are no separate source embeddings
    int32_t max_length, activation, positions, pre_norm, embedding_norm, tied;
    int32_t token_types, head, pooler, labels;  // of an encoder; labels: the number of classes, 0 without a classifier
    int32_t pointer;                            // whether an encoder-decoder is a pointer-generator
    int32_t features, feature_stride;           // of audio: bins of a frame (0 if the source is tokens), frames of a position
    int32_t source_length;                      // the most positions of a source; `max_length` are those of a target
    int32_t int8, shortlists;                   // inference only
    float norm_epsilon, embedding_scale;
    float dropout, attention_dropout, activation_dropout;  // training only

    int head_width() const { return width / heads; }
    size_t frame_values(int32_t positions) const { return size_t(positions) * feature_stride * features; }  // of audio
    bool gated() const { return activation == SWIGLU; }
};

}  // namespace heedful
