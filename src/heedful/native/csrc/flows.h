// What the numbers of a group of sentences stand in while they go forward and backward, and what is dropped of them.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "halves.h"

namespace heedful::learning {

// Random numbers in every lane (xoshiro128++, Blackman and Vigna, 2021); three numbers say where they begin.
class Random {
  public:
    Random(uint64_t seed, uint64_t group, uint64_t site) {
        uint64_t state = mixed(mixed(seed) + mixed(group * 0x10001 + site + 1));
        uint32_t words[4 * LANES];
        for (uint32_t& word : words) word = uint32_t(mixed(state += 0x9E3779B97F4A7C15) >> 32);
        std::memcpy(s, words, sizeof words);
    }

    // `scale` in the lanes that are kept, 0 in the others.
    Floats keep(int32_t limit, float scale) {
        const Words drawn = turned(s[0] + s[3], 7) + s[0];
        const Words carried = s[1] << 9;
        s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
        s[2] ^= carried, s[3] = turned(s[3], 11);
        const Ints kept = Ints(drawn >> 1) >= limit;
        Ints bits;
        const Floats scales = all(scale);
        std::memcpy(&bits, &scales, sizeof bits);
        bits &= kept;
        Floats result;
        std::memcpy(&result, &bits, sizeof result);
        return result;
    }

  private:
    Words s[4];

    static Words turned(Words x, int bits) { return (x << bits) | (x >> (32 - bits)); }
    static uint64_t mixed(uint64_t x) {  // the finaliser of SplitMix64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
        return x ^ (x >> 31);
    }
};

// Memory that is taken piece by piece and given back all at once. What did not suffice is replaced by one block that does.
class Arena {
  public:
    template <typename T = float>
    T* take(size_t number) {
        const size_t count = (number * sizeof(T) + 63) / 64 * 16;
        if (used + count > size) {
            size = std::max(count, size_t(1) << 20), used = 0;
            blocks.emplace_back().at_least(size);
        }
        float* room = blocks.back().get() + used;
        used += count, taken += count;
        return reinterpret_cast<T*>(room);
    }
    void give_back() {
        if (blocks.size() > 1) {
            blocks.clear();
            blocks.emplace_back().at_least(size = taken);
        }
        used = taken = 0;
    }

  private:
    std::vector<Room<float>> blocks;
    size_t size = 0, used = 0;  // of the last block
    size_t taken = 0;           // in all
};

struct Span {  // the tokens of a sentence among those of its group
    int first, count;
};

struct Flow {  // (rows, width) numbers, and where to find what the loss changes with each, if it is known yet
    float *value, **slope;
    int rows, width;
    size_t size() const { return size_t(rows) * width; }
    size_t room() const { return stacked(rows) * width; }
};

// Rooms for slopes, which are few at a time: what was given back last, and is still near the CPU, is taken first.
class Slopes {
  public:
    explicit Slopes(Arena& memory) : arena(memory) {}

    float** none() { return &places.emplace_back(nullptr); }
    float* take(size_t count) {
        std::vector<float*>& left = free[count];
        if (left.empty()) return arena.take(count);
        float* taken = left.back();
        left.pop_back();
        return taken;
    }
    void give_back(float*& room, size_t count) { free[count].push_back(room), room = nullptr; }
    void forget() { places.clear(), free.clear(); }

  private:
    Arena& arena;
    std::deque<float*> places;
    std::map<size_t, std::vector<float*>> free;
};

// Rows as products take them.
template <typename Number>
class Layout {
  public:
    Room<Number> turned;  // to be lent to `add_products`

    explicit Layout(Arena& memory) : arena(memory) {}

    // For as long as the group is worked on.
    const Number* rows(const Flow& x) {
        Number* room = std::is_same_v<Number, Half> ? arena.template take<Number>(x.room()) : nullptr;
        return as<Number>(x.value, x.size(), room);
    }
    // Until the next ones are asked for.
    const Number* rows_for_now(const float* x, const Flow& like) {
        return as<Number>(x, like.size(), now.at_least(like.room()));
    }
    // Panels of rows, until the next ones are asked for.
    const Number* panels(const Number* rows, int count, int width) {
        const size_t length = depth<Number>(count);
        pack_rows(rows, width, count, width, columns.at_least(panelled(width) * length), length * PANEL);
        return columns.get();
    }

  private:
    Arena& arena;
    Room<Number> columns, now;
};

}  // namespace heedful::learning
