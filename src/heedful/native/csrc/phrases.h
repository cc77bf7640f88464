// Lexical constraints: phrases that the output of a sentence must contain (Post and Vilar, 2018).
//
// A phrase has one form or more, each a sequence of tokens; all forms are in one trie. The rules are those of
// heedful/search/lexical_constraints.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace heedful {

struct PhraseState {  // of a hypothesis
    uint64_t met = 0;       // bit i: the output contains phrase i
    int32_t node = 0;       // the longest beginning of an open phrase that the output ends with; 0, the root, if there is none
    bool boundary = false;  // the output ends with a phrase of whole words: a token that continues a word must not follow
    bool closing = false;   // eos was the most probable token: only the missing phrases follow
};

class Phrases {
  public:
    Phrases() = default;

    // `data`: the rows that banks fill, or 0 for all; the number of reserved tokens and these; the number of phrases; of each
    // phrase the number of the phrase that must precede it (or -1), whether it consists of whole words, the number of its forms;
    // of each form its length and tokens. `continues[id]`: token id continues a word; borrowed.
    Phrases(const int32_t* data, const uint8_t* continues) : continues(continues) {
        filled = *data++;
        const int32_t reserved_count = *data++;
        reserved.assign(data, data + reserved_count);
        data += reserved_count;
        const int32_t count = *data++;
        if (count > 64) throw std::invalid_argument("a sentence has more than 64 phrases");
        nodes.resize(1);
        for (int32_t phrase = 0; phrase < count; ++phrase) {
            const uint64_t bit = uint64_t(1) << phrase;
            after.push_back(*data++);
            all |= bit, whole |= *data++ ? bit : 0;
            lengths.push_back(std::numeric_limits<int32_t>::max());
            for (int32_t forms = *data++; forms; --forms) {
                const int32_t length = *data++;
                add(data, length, bit);
                lengths.back() = std::min(lengths.back(), length);
                data += length;
            }
        }
        link_suffixes();
    }

    bool empty() const { return !all; }
    bool complete(const PhraseState& state) const { return state.met == all; }
    // A bank for every number of phrases and of tokens of the next one.
    int bank(const PhraseState& state) const {
        return __builtin_popcountll(state.met) * (longest + 1) + nodes[state.node].depth;
    }
    int banks() const { return (__builtin_popcountll(all) + 1) * (longest + 1); }
    // Rows of a beam that are filled with the next best of the banks; the others are for the best of each bank alone.
    size_t filled_rows(size_t beam) const { return filled ? std::min(size_t(filled), beam) : beam; }
    // The tokens that are missing, with the shortest forms.
    int missing(const PhraseState& state) const {
        int tokens = 0;
        for (size_t i = 0; i < lengths.size(); ++i)
            if (!(state.met >> i & 1)) tokens += lengths[i];
        return tokens - nodes[state.node].depth;
    }
    const std::vector<int32_t>& reserved_tokens() const { return reserved; }

    // The state after one more token.
    PhraseState next(const PhraseState& state, int32_t id) const {
        const uint64_t open = open_phrases(state.met);
        int32_t child = find(state.node, id, open);
        for (int32_t node = state.node; child < 0 && node;) child = find(node = nodes[node].suffix, id, open);
        if (child < 0) return {state.met, 0, false, state.closing};
        PhraseState after_id{state.met, child, false, state.closing};
        if (const uint64_t ending = nodes[child].ends & open) {
            const uint64_t first = ending & -ending;
            after_id.met |= first, after_id.boundary = whole & first;
            if (!(nodes[child].deeper & open_phrases(after_id.met))) after_id.node = 0;
        }
        return after_id;
    }

    // The tokens that continue the phrase that has begun, or that begin an open one.
    void wanted(const PhraseState& state, std::vector<int32_t>& ids) const {
        ids.clear();
        const uint64_t open = open_phrases(state.met);
        for (auto& [id, child] : nodes[state.node].children)
            if (nodes[child].below & open) ids.push_back(id);
    }

    // Whether a token that is not wanted must not follow.
    bool forbidden(const PhraseState& state, int32_t id) const {
        return (state.boundary && continues && continues[id]) ||
               std::find(reserved.begin(), reserved.end(), id) != reserved.end();
    }

    // Whether all tokens satisfy the condition.
    template <typename Condition>
    bool all_tokens(Condition condition) const {
        bool valid = std::all_of(reserved.begin(), reserved.end(), condition);
        for (const TrieNode& node : nodes)
            for (auto& [id, child] : node.children) valid &= condition(id);
        return valid;
    }

  private:
    struct TrieNode {
        std::vector<std::pair<int32_t, int32_t>> children;  // token and node
        uint64_t ends = 0, deeper = 0, below = 0;  // phrases with a form that ends here, below this node, or either
        int32_t depth = 0;
        int32_t suffix = 0;  // the node of the longest proper suffix (Aho and Corasick, 1975)
    };
    std::vector<TrieNode> nodes;
    std::vector<int32_t> reserved, after, lengths;  // lengths: of each phrase's shortest form
    int32_t filled = 0;
    uint64_t all = 0, whole = 0;
    int32_t longest = 0;  // form
    const uint8_t* continues = nullptr;

    void add(const int32_t* ids, int32_t length, uint64_t bit) {
        int32_t node = 0;
        for (int32_t i = 0; i < length; ++i) {
            nodes[node].deeper |= bit, nodes[node].below |= bit;
            int32_t child = find(node, ids[i], ~uint64_t(0));
            if (child < 0) {
                child = int32_t(nodes.size());
                nodes.emplace_back();
                nodes[node].children.push_back({ids[i], child});
                nodes[child].depth = i + 1;
            }
            node = child;
            nodes[node].below |= bit;
        }
        nodes[node].ends |= bit;
        longest = std::max(longest, length);
    }

    void link_suffixes() {
        std::vector<int32_t> queue{0};
        for (size_t i = 0; i < queue.size(); ++i)
            for (auto& [id, child] : nodes[queue[i]].children) {
                queue.push_back(child);
                int32_t suffix = -1;
                for (int32_t node = queue[i]; suffix < 0 && node;) suffix = find(node = nodes[node].suffix, id, all);
                nodes[child].suffix = std::max(0, suffix);
            }
    }

    // The child of a node through which an open phrase leads; -1 if there is none.
    int32_t find(int32_t node, int32_t id, uint64_t open) const {
        for (auto& [token, child] : nodes[node].children)
            if (token == id && nodes[child].below & open) return child;
        return -1;
    }

    // Phrases that are missing and that nothing has to precede any more.
    uint64_t open_phrases(uint64_t met) const {
        uint64_t open = all & ~met;
        for (size_t i = 0; i < after.size(); ++i)
            if (after[i] >= 0 && !(met >> after[i] & 1)) open &= ~(uint64_t(1) << i);
        return open;
    }
};

}  // namespace heedful
