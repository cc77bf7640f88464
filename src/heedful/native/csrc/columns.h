// Rows times some columns of a matrix, y = x Wᵀ + b, where every sentence wants columns of its own.
//
// Each column lies in one piece. Every number is summed in the same order whatever else is asked for.
// In 8 bits the numbers are those of a `Matrix`.
#pragma once

#include <numeric>

#include "products.h"

namespace heedful {

class Columns {
  public:
    // Room for (out, in) weights and (out) biases of zero, which `place` and `add` fill.
    void set(int out, int width, bool small) {
        in = width, is_small = small;
        bias.resize(out);
        if (!small) {
            floats.at_least(size_t(out) * in);
            return;
        }
        stride = (in + BLOCK - 1) / BLOCK * BLOCK;
        std::fill_n(bytes.at_least(size_t(out) * stride), size_t(out) * stride, 0);
        scale.resize(out), offset.resize(out);
    }

    void place(const Tensor& weight) {
        std::vector<float> room;
        for (int c = 0; c < int(bias.size()); ++c) {
            if (!is_small) {
                std::copy_n(weight.row(c, in, room), in, floats.get() + size_t(c) * in);
                continue;
            }
            int8_t* to = bytes.get() + size_t(c) * stride;
            if (weight.wholes)
                std::copy_n(weight.wholes + size_t(c) * in, in, to), scale[c] = weight.scales[c];
            else
                scale[c] = reduce(weight.floats + size_t(c) * in, in, to);
            offset[c] = 128 * std::accumulate(to, to + in, 0);
        }
    }

    void add(const Tensor& biases) { std::copy_n(biases.floats, biases.count, bias.data()); }

    // (count, in) -> (count, ids)
    void times(const Rows& x, const std::vector<int32_t>& ids, float* y, int threads) const {
        const int count = int(ids.size());
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(x.count) * in * count > WORTH_THREADS)
        for (int c = 0; c < count; c += FOUR) {
            int32_t four[FOUR];
            const int wanted = std::min(FOUR, count - c);
            for (int j = 0; j < FOUR; ++j) four[j] = ids[c + std::min(j, wanted - 1)];
            int row = 0;
            for (; row + 2 <= x.count; row += 2) tile<2>(x, row, four, wanted, y + size_t(row) * count + c, count);
            if (row < x.count) tile<1>(x, row, four, wanted, y + size_t(row) * count + c, count);
        }
    }

  private:
    static constexpr int FOUR = 4;            // columns that are multiplied at once
    static constexpr int BLOCK = 4 * LANES;   // bytes of a register
    int in = 0, stride = 0;                   // bytes of a column, filled up with zeros to whole registers
    bool is_small = false;
    Room<float> floats;
    Room<int8_t> bytes;
    std::vector<float> bias, scale;  // of each column
    std::vector<int32_t> offset;     // 128 times the sum of each column

    template <int M>
    void tile(const Rows& x, int row, const int32_t* ids, int wanted, float* y, size_t next) const {
        float found[M][FOUR];
        if (is_small)
            whole<M>(x, row, ids, found);
        else
            wide<M>(x, row, ids, found);
        for (int m = 0; m < M; ++m)
            for (int j = 0; j < wanted; ++j) y[m * next + j] = found[m][j] + bias[ids[j]];
    }

    // Beyond the end of a row it reads what is there, times the zeros of a column.
    template <int M>
    void whole(const Rows& x, int row, const int32_t* ids, float (*found)[FOUR]) const {
        Ints totals[M][FOUR] = {};
        const int8_t* column[FOUR];
        for (int j = 0; j < FOUR; ++j) column[j] = bytes.get() + size_t(ids[j]) * stride;
        const uint8_t* from = x.bytes.get() + size_t(row) * x.stride;
        for (int k = 0; k < stride; k += BLOCK)
            for (int j = 0; j < FOUR; ++j) {
                Ints weights = load(static_cast<const void*>(column[j] + k));
                for (int m = 0; m < M; ++m) {
                    Ints numbers = load(static_cast<const void*>(from + size_t(m) * x.stride + k));
                    totals[m][j] = add_fours(totals[m][j], numbers, weights);
                }
            }
        for (int m = 0; m < M; ++m) {
            int32_t total[FOUR];
            sums(totals[m][0], totals[m][1], totals[m][2], totals[m][3], total);
            for (int j = 0; j < FOUR; ++j)
                found[m][j] = float(total[j] - offset[ids[j]]) * (scale[ids[j]] * x.scales.get()[row + m]);
        }
    }

    template <int M>
    void wide(const Rows& x, int row, const int32_t* ids, float (*found)[FOUR]) const {
        Floats totals[M][FOUR] = {};
        const float *column[FOUR], *from = x.floats + size_t(row) * in;
        for (int j = 0; j < FOUR; ++j) column[j] = floats.get() + size_t(ids[j]) * in;
        int k = 0;
        for (; k + LANES <= in; k += LANES)
            for (int j = 0; j < FOUR; ++j) {
                Floats weights = load(column[j] + k);
                for (int m = 0; m < M; ++m)
                    totals[m][j] = fused(load(from + size_t(m) * in + k), weights, totals[m][j]);
            }
        for (int m = 0; m < M; ++m) {
            sums(totals[m][0], totals[m][1], totals[m][2], totals[m][3], found[m]);
            for (int j = 0; j < FOUR; ++j)
                for (int i = k; i < in; ++i) found[m][j] += from[size_t(m) * in + i] * column[j][i];
        }
    }
};

}  // namespace heedful
