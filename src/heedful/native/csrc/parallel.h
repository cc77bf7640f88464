// Parallel loops that may throw: an exception that leaves an OpenMP thread would terminate the process.
#pragma once

#include <cstdint>
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

// work(i) for each i below `count`.
template <typename Work>
void parallel_for(int64_t count, int threads, Work work) {
    ExceptionCollector exceptions;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < count; ++i) exceptions.run([&] { work(i); });
    exceptions.rethrow();
}

// work(own, i), where each thread has its own workspace, made by `make`. A thread takes the next i when it is free.
template <typename Make, typename Work>
void parallel_for_with(int64_t count, int threads, Make make, Work work) {
    ExceptionCollector exceptions;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        auto own = make();
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < count; ++i) exceptions.run([&] { work(own, i); });
    }
    exceptions.rethrow();
}

}  // namespace heedful
