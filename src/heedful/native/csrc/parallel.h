// Exceptions of work on several threads: none may leave a thread, or the process ends.
#pragma once

#include <exception>

namespace heedful {

class Caught {
  public:
    template <typename Work>
    void run(Work work) noexcept {
        try {
            work();
        } catch (...) {
#pragma omp critical(heedful_caught)
            problem = std::current_exception();
        }
    }

    // To be called when all threads are done.
    void rethrow() const {
        if (problem) std::rethrow_exception(problem);
    }

  private:
    std::exception_ptr problem;
};

}  // namespace heedful
