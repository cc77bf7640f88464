// Repetition in the output of a search: n-grams that occur again, and loops. The rules are those of heedful/search/loops.py
// and of `no_repeat` in heedful/search/constraints.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heedful {

constexpr int MAX_COPIES = 3;      // of an n-gram in a row; more are a loop, unless the source has as many
constexpr int GUARDED_COPIES = 2;  // that the second search allows, unless the source has more

// The most copies in a row of any n-gram: 3 for `a b c b c b c d`, 0 for an empty sequence.
inline int max_copies(const std::vector<int32_t>& ids) {
    const int n = int(ids.size());
    int copies = std::min(1, n);
    for (int period = 1; period <= n / 2; ++period)
        for (int i = period, run = period; i < n; ++i) {
            run = ids[i] == ids[i - period] ? run + 1 : period;
            copies = std::max(copies, run / period);
        }
    return copies;
}

// Appends the tokens that would continue `copies` copies of an n-gram at the end of `ids`.
inline void add_loop_tokens(const std::vector<int32_t>& ids, int copies, std::vector<int32_t>& tokens) {
    const int n = int(ids.size());
    for (int period = 1; period * copies <= n; ++period) {
        int run = period;
        while (run < n && ids[n - 1 - run + period] == ids[n - 1 - run]) ++run;
        if (run >= copies * period) tokens.push_back(ids[n - period]);
    }
}

// Appends the tokens that would complete an n-gram that occurs in `ids` already; n = 0 appends none.
inline void add_ngram_ends(const std::vector<int32_t>& ids, int n, std::vector<int32_t>& tokens) {
    const int length = int(ids.size());
    for (int i = 0; n > 0 && i + n <= length; ++i)
        if (std::equal(ids.begin() + i, ids.begin() + i + n - 1, ids.end() - (n - 1))) tokens.push_back(ids[i + n - 1]);
}

}  // namespace heedful
