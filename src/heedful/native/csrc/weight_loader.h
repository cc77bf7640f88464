// Loads the tensors of a model folder by name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "gemm_inference.h"

namespace heedful {

// Maps the name of each tensor to the functions that copy it into the model. Biases are optional.
class WeightLoader {
  public:
    using Load = std::function<void(const WeightTensor&)>;

    void expect(const std::string& name, int64_t count, Load load) { expected[name] = {count, {std::move(load)}}; }

    // A second use of the same tensor.
    void expect_also(const std::string& name, Load load) { expected.at(name).loads.push_back(std::move(load)); }

    void load(const std::string& name, const WeightTensor& tensor) {
        auto entry = expected.find(name);
        if (entry == expected.end()) throw std::invalid_argument("the model has no tensor " + name);
        if (entry->second.count != tensor.count) throw std::invalid_argument(name + " has another size");
        for (const Load& load : entry->second.loads) load(tensor);
        expected.erase(entry);
    }

    void check_complete() const {
        for (const auto& [name, entry] : expected)
            if (name.size() < 4 || name.compare(name.size() - 4, 4, "bias"))
                throw std::invalid_argument("there is no tensor " + name);
    }

  private:
    struct Entry {
        int64_t count;
        std::vector<Load> loads;
    };
    std::map<std::string, Entry> expected;
};

}  // namespace heedful
