// Adam (Kingma and Ba, 2015) with decoupled weight decay (Loshchilov and Hutter, 2019): all weights in one pass.
#pragma once

#include <algorithm>

#include "activations.h"

namespace heedful {

// The weights and their state, as Python passes them; native/capi.py mirrors it.
struct AdamTensors {
    float* const* weights;
    const float* const* gradients;
    float *const *means, *const *squares;  // exponential moving averages of the gradient and of its square
    float* const* updates;                 // of each weight: the number of its updates, one float
    const int64_t* sizes;
    int32_t count;
};

struct AdamOptions {  // native/capi.py mirrors it
    double rate, beta1, beta2, epsilon, decay;
};

// The update of one weight tensor. Its operations and their order are those of torch's fused AdamW.
class AdamUpdate {
  public:
    AdamUpdate(const AdamOptions& options, double update)
        : decays(options.decay != 0), kept(broadcast(float(1 - options.rate * options.decay))),
          beta2(broadcast(float(options.beta2))), square_weight(broadcast(float(1 - options.beta2))),
          correction(broadcast(float(std::sqrt(1 - std::pow(options.beta2, update))))),
          epsilon(broadcast(float(options.epsilon))),
          step(broadcast(float(-options.rate / (1 - std::pow(options.beta1, update))))), from_mean(1 - options.beta1 < 0.5),
          mean_weight(broadcast(from_mean ? float(1 - options.beta1) : float(1 - options.beta1) - 1)) {}

    void run(float* weight, const float* gradient, float* mean, float* square, size_t count) const {
        for_each_register(count, [&](size_t i, size_t part) {
            VecF32 w = load_part(weight + i, part), m = load_part(mean + i, part);
            const VecF32 g = load_part(gradient + i, part);
            if (decays) w = w * kept;
            m = fmadd(mean_weight, g - m, from_mean ? m : g);  // linear interpolation, from the nearer end
            const VecF32 s = fmadd(square_weight * g, g, load_part(square + i, part) * beta2);
            w = w + step * m / (square_root(s) / correction + epsilon);
            store_part(mean + i, m, part), store_part(square + i, s, part), store_part(weight + i, w, part);
        });
    }

  private:
    const bool decays;
    const VecF32 kept, beta2, square_weight, correction, epsilon, step;
    const bool from_mean;
    const VecF32 mean_weight;
};

// Each thread updates an equal part of all values, whichever weights they belong to.
inline void adam_step(const AdamTensors& tensors, const AdamOptions& options, int threads) {
    int64_t total = 0;
    for (int i = 0; i < tensors.count; ++i) total += tensors.sizes[i], *tensors.updates[i] += 1;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int thread = 0; thread < threads; ++thread) {
        const int64_t begin = total * thread / threads, end = total * (thread + 1) / threads;
        int64_t first = 0;
        for (int i = 0; i < tensors.count; first += tensors.sizes[i++]) {
            const int64_t from = std::max(begin - first, int64_t(0)), to = std::min(end - first, tensors.sizes[i]);
            if (from < to)
                AdamUpdate(options, *tensors.updates[i])
                    .run(tensors.weights[i] + from, tensors.gradients[i] + from, tensors.means[i] + from,
                         tensors.squares[i] + from, size_t(to - from));
        }
    }
}

}  // namespace heedful
