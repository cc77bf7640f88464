// Aligned memory that grows on demand.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace heedful {

// Uninitialized, 64-byte-aligned memory, reused until more is needed. Growing discards the contents.
template <typename T>
class Buffer {
  public:
    T* ensure(size_t count) {
        if (count > size) {
            const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
            size = 0, data.reset();
            data.reset(static_cast<T*>(::operator new(bytes, ALIGNMENT)));
            size = count;
        }
        return data.get();
    }
    T* get() const { return data.get(); }

  private:
    static constexpr std::align_val_t ALIGNMENT{64};
    struct Free {
        void operator()(void* p) const { ::operator delete(p, ALIGNMENT); }
    };
    std::unique_ptr<T, Free> data;
    size_t size = 0;
};

}  // namespace heedful
