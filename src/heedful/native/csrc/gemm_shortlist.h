// Inference GEMM over a subset of the output columns: y = x Wᵀ + b for the tokens of a sentence's shortlist.
//
// Each column is contiguous, unlike in `PackedMatrix`, so any subset can be multiplied. Each element is summed in the same
// order for any subset. int8 results equal those of `PackedMatrix`.
#pragma once

#include <numeric>

#include "gemm_inference.h"

namespace heedful {

class ShortlistMatrix {
  public:
    // Space for (out, in) weights and (out) zero biases, which `load_weight` and `load_bias` fill.
    void allocate(int out, int width, bool int8) {
        in = width, is_int8 = int8;
        bias.resize(out);
        if (!int8) {
            f32_weights.ensure(size_t(out) * in);
            return;
        }
        stride = (in + BLOCK - 1) / BLOCK * BLOCK;
        std::fill_n(int8_weights.ensure(size_t(out) * stride), size_t(out) * stride, 0);
        scale.resize(out), column_sum.resize(out);
    }

    void load_weight(const WeightTensor& weight) {
        std::vector<float> buffer;
        for (int c = 0; c < int(bias.size()); ++c) {
            if (!is_int8) {
                std::copy_n(weight.row_f32(c, in, buffer), in, f32_weights.get() + size_t(c) * in);
                continue;
            }
            int8_t* to = int8_weights.get() + size_t(c) * stride;
            if (weight.values)
                std::copy_n(weight.values + size_t(c) * in, in, to), scale[c] = weight.scales[c];
            else
                scale[c] = quantize(weight.floats + size_t(c) * in, in, to);
            scale[c] = round_to_packed(to, in, scale[c]);
            column_sum[c] = std::accumulate(to, to + in, 0);
        }
    }

    void load_bias(const WeightTensor& biases) { std::copy_n(biases.floats, biases.count, bias.data()); }

    // (count, in) -> (count, ids): the columns `ids`
    void gemm(const Activations& x, const std::vector<int32_t>& ids, float* y, int threads) const {
        const int count = int(ids.size());
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(x.count) * in * count > MIN_PARALLEL_MACS)
        for (int c = 0; c < count; c += COLUMNS) {
            int32_t group[COLUMNS];
            const int valid = std::min(COLUMNS, count - c);
            for (int j = 0; j < COLUMNS; ++j) group[j] = ids[c + std::min(j, valid - 1)];
            int row = 0;
            for (; row + 2 <= x.count; row += 2) micro_kernel<2>(x, row, group, valid, y + size_t(row) * count + c, count);
            if (row < x.count) micro_kernel<1>(x, row, group, valid, y + size_t(row) * count + c, count);
        }
    }

  private:
    static constexpr int COLUMNS = 4;            // columns of a micro-kernel
    static constexpr int BLOCK = 4 * LANES;   // bytes in a register
    int in = 0, stride = 0;                   // stride: bytes of an int8 column, zero-padded to whole registers
    bool is_int8 = false;
    Buffer<float> f32_weights;
    Buffer<int8_t> int8_weights;
    std::vector<float> bias, scale;  // of each column
    std::vector<int32_t> column_sum;  // the sum of each column

    template <int M>
    void micro_kernel(const Activations& x, int row, const int32_t* ids, int valid, float* y, size_t ldy) const {
        float result[M][COLUMNS];
        if (is_int8)
            dot_int8<M>(x, row, ids, result);
        else
            dot_f32<M>(x, row, ids, result);
        for (int m = 0; m < M; ++m)
            for (int j = 0; j < valid; ++j) y[m * ldy + j] = result[m][j] + bias[ids[j]];
    }

    // Reads past the end of an activation row; the zero padding of the columns cancels those values.
    template <int M>
    void dot_int8(const Activations& x, int row, const int32_t* ids, float (*result)[COLUMNS]) const {
        VecI32 totals[M][COLUMNS] = {};
        const int8_t* column[COLUMNS];
        for (int j = 0; j < COLUMNS; ++j) column[j] = int8_weights.get() + size_t(ids[j]) * stride;
        const uint8_t* from = x.quantized.get() + size_t(row) * x.stride;
        for (int k = 0; k < stride; k += BLOCK)
            for (int j = 0; j < COLUMNS; ++j) {
                VecI32 weights = load(static_cast<const void*>(column[j] + k));
                for (int m = 0; m < M; ++m) {
                    VecI32 activations = load(static_cast<const void*>(from + size_t(m) * x.stride + k));
                    totals[m][j] = dot4(totals[m][j], activations, weights);
                }
            }
        for (int m = 0; m < M; ++m) {
            int32_t total[COLUMNS];
            reduce_sum4(totals[m][0], totals[m][1], totals[m][2], totals[m][3], total);
            const RowQuantization& of_row = x.quantizations.get()[row + m];
            for (int j = 0; j < COLUMNS; ++j) {
                total[j] += of_row.outlier * column[j][of_row.column] - of_row.zero * column_sum[ids[j]];
                result[m][j] = float(total[j]) * (scale[ids[j]] * of_row.scale);
            }
        }
    }

    template <int M>
    void dot_f32(const Activations& x, int row, const int32_t* ids, float (*result)[COLUMNS]) const {
        VecF32 totals[M][COLUMNS] = {};
        const float *column[COLUMNS], *from = x.floats + size_t(row) * in;
        for (int j = 0; j < COLUMNS; ++j) column[j] = f32_weights.get() + size_t(ids[j]) * in;
        int k = 0;
        for (; k + LANES <= in; k += LANES)
            for (int j = 0; j < COLUMNS; ++j) {
                VecF32 weights = load(column[j] + k);
                for (int m = 0; m < M; ++m)
                    totals[m][j] = fmadd(load(from + size_t(m) * in + k), weights, totals[m][j]);
            }
        for (int m = 0; m < M; ++m) {
            reduce_sum4(totals[m][0], totals[m][1], totals[m][2], totals[m][3], result[m]);
            for (int j = 0; j < COLUMNS; ++j)
                for (int i = k; i < in; ++i) result[m][j] += from[size_t(m) * in + i] * column[j][i];
        }
    }
};

}  // namespace heedful
