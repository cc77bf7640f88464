// Exceptions inside OpenMP regions: one that leaves a thread terminates the process.
#pragma once

#include <exception>

namespace heedful {

// Catches what the work of any thread throws, and rethrows it in the calling thread.
class ExceptionCollector {
  public:
    template <typename Work>
    void run(Work work) noexcept {
        try {
            work();
        } catch (...) {
#pragma omp critical(heedful_exception)
            exception = std::current_exception();
        }
    }

    // Call it after the parallel region.
    void rethrow() const {
        if (exception) std::rethrow_exception(exception);
    }

  private:
    std::exception_ptr exception;
};

}  // namespace heedful
