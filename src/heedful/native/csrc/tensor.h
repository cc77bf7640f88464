// Storage of the training engine: activations and gradients of a group of sentences, and GEMM operands.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "gemm_bf16.h"

namespace heedful::train {

// Bump allocator: memory is allocated piece by piece and released all at once. If one block did not suffice, `reset`
// replaces the blocks by a single one that does.
class Arena {
  public:
    template <typename T = float>
    T* allocate(size_t number) {
        const size_t count = (number * sizeof(T) + 63) / 64 * 16;
        if (used + count > size) {
            size = std::max(count, size_t(1) << 20), used = 0;
            blocks.emplace_back().ensure(size);
        }
        float* memory = blocks.back().get() + used;
        used += count, total += count;
        return reinterpret_cast<T*>(memory);
    }
    void reset() {
        if (blocks.size() > 1) {
            blocks.clear();
            blocks.emplace_back().ensure(size = total);
        }
        used = total = 0;
    }

  private:
    std::vector<Buffer<float>> blocks;
    size_t size = 0, used = 0;  // of the last block
    size_t total = 0;           // allocated in all blocks
};

struct Span {  // the tokens of a sentence among those of its group
    int first, count;
};

// (rows, width) activations, and the slot of their gradient, which is null until it is computed.
struct Tensor {
    float *value, **grad;
    int rows, width;
    size_t size() const { return size_t(rows) * width; }
    size_t padded_size() const { return round_up_tile(rows) * width; }
    const float* row(int r) const { return value + size_t(r) * width; }
};

// Memory of gradients. Few are alive at a time; the one freed last is reused first, because it is still in the cache.
class GradPool {
  public:
    explicit GradPool(Arena& arena) : arena(arena) {}

    float** new_slot() { return &slots.emplace_back(nullptr); }
    float* allocate(size_t count) {
        std::vector<float*>& available = free[count];
        if (available.empty()) return arena.allocate(count);
        float* memory = available.back();
        available.pop_back();
        return memory;
    }
    void release(float*& memory, size_t count) { free[count].push_back(memory), memory = nullptr; }
    void clear() { slots.clear(), free.clear(); }

  private:
    Arena& arena;
    std::deque<float*> slots;
    std::map<size_t, std::vector<float*>> free;
};

// Memory of one thread that is reused from step to step: fresh memory would be cleared by the operating system.
template <typename Scalar>
struct Workspace {
    Arena arena;
    Buffer<Scalar> transposed;     // of `gemm_tn_add`
    Buffer<Scalar> panels, rows;   // of OperandPacker
    Buffer<float> logits;          // of some candidates
    Buffer<float> attention;
};

// Converts and packs activations into GEMM operands.
template <typename Scalar>
class OperandPacker {
  public:
    explicit OperandPacker(Workspace<Scalar>& workspace) : workspace(workspace) {}

    // Valid until the arena is reset.
    const Scalar* persistent_rows(const Tensor& x) {
        Scalar* memory = std::is_same_v<Scalar, BF16> ? workspace.arena.template allocate<Scalar>(x.padded_size()) : nullptr;
        return as_operand<Scalar>(x.value, x.size(), memory);
    }
    // x has the shape of `like`. Valid until the next call.
    const Scalar* temporary_rows(const float* x, const Tensor& like) {
        return as_operand<Scalar>(x, like.size(), workspace.rows.ensure(like.padded_size()));
    }
    // Panels of (count, width). Valid until the next call.
    const Scalar* panels(const Scalar* rows, int count, int width) {
        const size_t length = gemm_depth<Scalar>(count);
        Scalar* panels = workspace.panels.ensure(round_up_panel(width) * length);
        pack_rows(rows, width, count, width, panels, length * PANEL);
        return panels;
    }

  private:
    Workspace<Scalar>& workspace;
};

}  // namespace heedful::train
