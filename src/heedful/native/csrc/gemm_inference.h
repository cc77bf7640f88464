// Inference GEMM over packed weights: y = x Wᵀ + b, in float32 or int8.
//
// Weights are packed into panels of PANEL columns, so that a GEMM reads them in order. Each element of y is summed in the
// same order for any number of rows, so a row's result does not depend on the other rows of the batch.
#pragma once

#include "int8.h"

namespace heedful {

// A weight tensor, borrowed for one call: float32 values, or int8 values of magnitude 127 at most with a scale per row.
// native/capi.py mirrors it.
struct WeightTensor {
    const float* floats;
    const int8_t* values;
    const float* scales;
    int64_t count;

    // Row r of (…, width); int8 values are dequantized into `buffer`.
    const float* row_f32(int r, int width, std::vector<float>& buffer) const {
        const size_t at = size_t(r) * width;
        if (floats) return floats + at;
        buffer.resize(width);
        for (int k = 0; k < width; ++k) buffer[k] = values[at + k] * scales[r];
        return buffer.data();
    }
};

// W packed into panels; `in` and `out` as in torch.nn.Linear.
class PackedMatrix {
  public:
    int in = 0, out = 0;

    // Zeros, which `load_weight` and `load_bias` fill.
    void allocate(int columns, int width, bool int8) {
        in = width, out = columns, is_int8 = int8;
        int panels = (out + PANEL - 1) / PANEL;
        float* biases = bias.ensure(size_t(panels) * PANEL);
        std::fill(biases, biases + panels * PANEL, 0.0f);
        if (int8) {
            std::fill_n(int8_weights.ensure(panels * panel_bytes()), panels * panel_bytes(), 0);
            fits_int16.assign(panels * panel_bytes() / GROUP, true);
            std::fill_n(scale.ensure(size_t(panels) * PANEL), panels * PANEL, 0.0f);
            std::fill_n(column_sum.ensure(size_t(panels) * PANEL), panels * PANEL, 0);
        } else {
            std::fill_n(f32_weights.ensure(size_t(panels) * PANEL * in), size_t(panels) * PANEL * in, 0.0f);
        }
    }

    // (rows, in): the rows of the tensor become columns `first`, `first` + 1, … of the matrix.
    void load_weight(const WeightTensor& weight, int first) {
        const int rows = int(weight.count / in);
        std::vector<float> buffer;
        for (int row = 0; row < rows; ++row)
            if (weight.values && is_int8)
                pack_column(std::vector<int8_t>(weight.values + size_t(row) * in, weight.values + size_t(row + 1) * in),
                            weight.scales[row], first + row);
            else
                pack_column(weight.row_f32(row, in, buffer), first + row);
        if (!is_int8) return;
        const size_t groups = panel_bytes() / GROUP, last = (first + rows - 1) / PANEL + 1;
        for (size_t g = first / PANEL * groups; g < last * groups; ++g)
            fits_int16[g] = group_fits_int16(int8_weights.get() + g * GROUP);
    }

    // (rows): the biases of the columns from `first` on.
    void load_bias(const WeightTensor& biases, int first) { std::copy_n(biases.floats, biases.count, bias.get() + first); }

    // One column in float32: (in). An embedding lookup is one.
    void unpack_column(int number, float* to) const {
        const int p = number / PANEL, c = number % PANEL;
        if (!is_int8) {
            const float* from = f32_weights.get() + size_t(p) * in * PANEL + c;
            for (int k = 0; k < in; ++k) to[k] = from[size_t(k) * PANEL];
            return;
        }
        const int8_t* from = int8_weights.get() + p * panel_bytes() + 4 * c;
        for (int k = 0; k < in; ++k) to[k] = from[size_t(k / 4) * 4 * PANEL + k % 4] * scale.get()[number];
    }

    // (count, in) -> (count, out)
    void gemm(const Activations& x, float* y, int threads) const {
        const int panels = (out + PANEL - 1) / PANEL, blocks = (x.count + BLOCK_ROWS - 1) / BLOCK_ROWS;
#pragma omp parallel for num_threads(threads) if (threads > 1 && long(x.count) * in * out > MIN_PARALLEL_MACS)
        for (int i = 0; i < blocks * panels; ++i) {
            const int first = i / panels * BLOCK_ROWS, last = std::min(first + BLOCK_ROWS, x.count);
            if (is_int8)
                gemm_panel<true, INT8_ROWS>(x, first, last, i % panels, y);
            else
                gemm_panel<false, F32_ROWS>(x, first, last, i % panels, y);
        }
    }

  private:
#if defined(__AVX512F__) || defined(HEEDFUL_NEON)
    static constexpr int INT8_ROWS = 8, F32_ROWS = 8;  // rows of a micro-kernel: as many as the registers hold
#else
    static constexpr int INT8_ROWS = 4, F32_ROWS = 6;
#endif
    static constexpr int BLOCK_ROWS = 96;    // rows that stay in the cache while they are multiplied with all panels
    static constexpr int GROUP = 8 * PANEL;  // bytes of weights that are multiplied with eight values of a row
    bool is_int8 = false;
    Buffer<float> f32_weights;     // (panels, in, PANEL)
    Buffer<int8_t> int8_weights;   // (panels, in / 8, 2, PANEL, 4): VNNI layout, four values of a column adjacent
    std::vector<char> fits_int16;  // of each (panel, group); see int8.h
    Buffer<float> scale;           // of each column
    Buffer<int32_t> column_sum;    // the sum of each column, which is multiplied with the zero points of the rows
    Buffer<float> bias;

    size_t panel_bytes() const { return size_t(in + 7) / 8 * GROUP; }

    static bool group_fits_int16(const int8_t* group) {
        for (int i = 0; i < GROUP / 2; i += 2) {
            int positive = 0, negative = 0;
            for (int at : {i, i + 1, i + GROUP / 2, i + GROUP / 2 + 1}) (group[at] > 0 ? positive : negative) += group[at];
            const int largest = ACTIVATION_OFFSET ? std::max(positive, -negative) * (MAX_INT8 + ACTIVATION_OFFSET)
                                                  : (positive - negative) * MAX_INT8;
            if (largest > std::numeric_limits<int16_t>::max()) return false;
        }
        return true;
    }

    void pack_column(const float* row, int column) {
        if (!is_int8) {
            float* to = f32_weights.get() + size_t(column / PANEL) * in * PANEL + column % PANEL;
            for (int k = 0; k < in; ++k) to[size_t(k) * PANEL] = row[k];
            return;
        }
        std::vector<int8_t> values(in);
        const float row_scale = quantize(row, in, values.data());
        pack_column(std::move(values), row_scale, column);
    }

    void pack_column(std::vector<int8_t> row, float row_scale, int column) {
        row_scale = round_to_packed(row.data(), in, row_scale);
        int8_t* to = int8_weights.get() + column / PANEL * panel_bytes() + 4 * (column % PANEL);
        int total = 0;
        for (int k = 0; k < in; ++k) {
            to[size_t(k / 4) * 4 * PANEL + k % 4] = row[k];
            total += row[k];
        }
        scale.get()[column] = row_scale, column_sum.get()[column] = total;
    }

    template <bool int8, int ROWS>
    void gemm_panel(const Activations& x, int row, int last, int p, float* y) const {
        for (; row + ROWS <= last; row += ROWS) micro_kernel<int8, ROWS>(x, row, p, y);
        remaining_rows<int8, ROWS - 1>(x, row, last, p, y);
    }

    template <bool int8, int REMAINING>
    void remaining_rows(const Activations& x, int row, int last, int p, float* y) const {
        if constexpr (REMAINING > 0) {
            if (last - row == REMAINING)
                micro_kernel<int8, REMAINING>(x, row, p, y);
            else
                remaining_rows<int8, REMAINING - 1>(x, row, last, p, y);
        }
    }

    template <bool fits_int16, int M>
    static inline __attribute__((always_inline)) void add_group(const uint8_t* from, int stride, const int8_t* weights,
                                                                VecI32 (&sums)[M][2]) {
        auto part = [weights](int i) { return load(static_cast<const void*>(weights + i * GROUP / 4)); };
        const VecI32 w0 = part(0), w1 = part(1), w2 = part(2), w3 = part(3);
        for (int m = 0; m < M; ++m, from += stride) {
            const VecI32 row[2] = {broadcast4(from), broadcast4(from + 4)};
            sums[m][0] = dot8<fits_int16>(sums[m][0], row, w0, w2);
            sums[m][1] = dot8<fits_int16>(sums[m][1], row, w1, w3);
        }
    }

    // The weights of the outlier's row of a panel: one byte of each lane.
    void add_outlier(const RowQuantization& row, int p, VecI32 (&sums)[2]) const {
        const int8_t* weights = int8_weights.get() + p * panel_bytes() + size_t(row.column / 4) * 4 * PANEL;
        for (int half = 0; half < 2; ++half) {
            const VecI32 four = load(static_cast<const void*>(weights + half * 4 * LANES));
            sums[half] += (four << (24 - row.column % 4 * 8) >> 24) * row.outlier;
        }
    }

    template <bool int8, int M>
    void micro_kernel(const Activations& x, int row, int p, float* y) const {
        VecF32 result[M][2];
        if constexpr (int8) {
            VecI32 sums[M][2] = {};
            const size_t groups = panel_bytes() / GROUP;
            const int8_t* weights = int8_weights.get() + p * panel_bytes();
            const uint8_t* from = x.quantized.get() + size_t(row) * x.stride;
            for (size_t g = 0; g < groups; ++g, weights += GROUP, from += 8) {
                if (fits_int16[p * groups + g])
                    add_group<true, M>(from, x.stride, weights, sums);
                else
                    add_group<false, M>(from, x.stride, weights, sums);
            }
            const RowQuantization* rows = x.quantizations.get() + row;
            if (x.has_outliers)
                for (int m = 0; m < M; ++m) add_outlier(rows[m], p, sums[m]);
            for (int half = 0; half < 2; ++half) {
                const VecI32 column_sums = load(static_cast<const void*>(column_sum.get() + p * PANEL + half * LANES));
                const VecF32 scales = load(scale.get() + p * PANEL + half * LANES);
                for (int m = 0; m < M; ++m)
                    result[m][half] = __builtin_convertvector(sums[m][half] - column_sums * rows[m].zero, VecF32) *
                                      (scales * rows[m].scale);
            }
        } else {
            for (int m = 0; m < M; ++m) result[m][0] = result[m][1] = VecF32{};
            const float* weights = f32_weights.get() + size_t(p) * in * PANEL;
            const float* from = x.floats + row * x.pitch;
            for (int k = 0; k < in; ++k, weights += PANEL) {
                VecF32 w0 = load(weights), w1 = load(weights + LANES);
                for (int m = 0; m < M; ++m) {
                    VecF32 x_k = broadcast(from[m * x.pitch + k]);
                    result[m][0] = fmadd(w0, x_k, result[m][0]);
                    result[m][1] = fmadd(w1, x_k, result[m][1]);
                }
            }
        }
        VecF32 b0 = load(bias.get() + p * PANEL), b1 = load(bias.get() + p * PANEL + LANES);
        int columns = std::min(PANEL, out - p * PANEL);
        for (int m = 0; m < M; ++m) {
            float* to = y + size_t(row + m) * out + p * PANEL;
            if (columns == PANEL) {
                store(to, result[m][0] + b0);
                store(to + LANES, result[m][1] + b1);
            } else {
                VecF32 both[2] = {result[m][0] + b0, result[m][1] + b1};
                std::memcpy(to, both, columns * sizeof(float));
            }
        }
    }
};

}  // namespace heedful
