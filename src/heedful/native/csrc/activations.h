// Activation functions and their derivatives, in registers.
#pragma once

#include <stdexcept>

#include "config.h"
#include "simd.h"

namespace heedful {

inline VecF32 abs(VecF32 x) {
    const VecF32 minus = -x;
    return x > minus ? x : minus;
}

// A value and the derivative at the same place.
struct Dual {
    VecF32 value, derivative;
};

// 1 / (1 + e^-x)
inline VecF32 sigmoid(VecF32 x) {
    const VecF32 e = exp_nonpositive(-abs(x)), inverse = 1.0f / (1.0f + e);
    return x < 0.0f ? e * inverse : inverse;
}

// (1 - e^-2x) / (1 + e^-2x); near zero, where that loses digits, x - x³ / 3 + 2 x⁵ / 15
inline VecF32 tanh(VecF32 x) {
    const VecF32 size = abs(x), e = exp_nonpositive(size * -2.0f), square = x * x;
    const VecF32 far = (1.0f - e) / (1.0f + e);
    const VecF32 near = x * fmadd(square, fmadd(square, broadcast(2.0f / 15), broadcast(-1.0f / 3)), broadcast(1.0f));
    return size < 0.05f ? near : x < 0.0f ? -far : far;
}

// Φ and φ, distribution and density of the standard normal distribution. Φ(-|x|) is φ(x) times a polynomial in
// 1 / (1 + p |x|) (Abramowitz and Stegun 7.1.26, |error| < 8e-8).
struct Normal {
    VecF32 distribution, density;
};
inline Normal normal(VecF32 x) {
    const VecF32 size = abs(x), e = exp_nonpositive(x * x * -0.5f);
    const VecF32 t = 1.0f / fmadd(size, broadcast(0.3275911f * 0.70710678f), broadcast(1.0f));
    VecF32 p = broadcast(1.061405429f);
    p = fmadd(p, t, broadcast(-1.453152027f));
    p = fmadd(p, t, broadcast(1.421413741f));
    p = fmadd(p, t, broadcast(-0.284496736f));
    p = fmadd(p, t, broadcast(0.254829592f));
    const VecF32 tail = p * t * e * 0.5f;
    return {x < 0.0f ? tail : 1.0f - tail, e * 0.39894228f};
}

// Gaussian error linear unit (Hendrycks and Gimpel, 2016): x Φ(x).
inline Dual gelu(VecF32 x) {
    const Normal n = normal(x);
    return {x * n.distribution, fmadd(x, n.density, n.distribution)};
}

// Its approximation by tanh, as in GPT-2.
inline Dual gelu_tanh(VecF32 x) {
    const VecF32 square = x * x, t = tanh(0.79788456f * x * fmadd(square, broadcast(0.044715f), broadcast(1.0f)));
    const VecF32 half = fmadd(t, broadcast(0.5f), broadcast(0.5f));
    const VecF32 inner = 0.79788456f * fmadd(square, broadcast(3 * 0.044715f), broadcast(1.0f));
    return {x * half, fmadd(x * 0.5f * (1.0f - t * t), inner, half)};
}

// Sigmoid linear unit: x σ(x).
inline Dual silu(VecF32 x) {
    const VecF32 s = sigmoid(x);
    return {x * s, s * fmadd(x, 1.0f - s, broadcast(1.0f))};
}

inline Dual relu(VecF32 x) { return {x < 0.0f ? VecF32{} : x, x > 0.0f ? broadcast(1.0f) : VecF32{}}; }  // NaN stays

inline Dual tanh_dual(VecF32 x) {
    const VecF32 t = tanh(x);
    return {t, 1.0f - t * t};
}

// Calls work(i, x) for registers of x[i …]; the last register may be partial, and is then zero-padded.
template <typename Work>
inline void for_each_register(size_t count, Work work) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) work(i, size_t(LANES));
    if (i < count) work(i, count - i);
}
inline VecF32 load_part(const float* from, size_t count) {
    if (count == LANES) return load(from);
    VecF32 v{};
    std::memcpy(&v, from, count * sizeof(float));
    return v;
}
inline void store_part(float* to, VecF32 v, size_t count) {
    if (count == LANES) return store(to, v);
    std::memcpy(to, &v, count * sizeof(float));
}

// y = f(x); derivative = f'(x) unless it is null. Both may be x.
template <Dual f(VecF32)>
void apply_activation(const float* x, size_t count, float* y, float* derivative) {
    for_each_register(count, [=](size_t i, size_t part) {
        const Dual dual = f(load_part(x + i, part));
        store_part(y + i, dual.value, part);
        if (derivative) store_part(derivative + i, dual.derivative, part);
    });
}

inline void activation_forward(int kind, const float* x, size_t count, float* y, float* derivative) {
    switch (kind) {
        case RELU: return apply_activation<relu>(x, count, y, derivative);
        case GELU: return apply_activation<gelu>(x, count, y, derivative);
        case GELU_TANH: return apply_activation<gelu_tanh>(x, count, y, derivative);
        case SILU: case SWIGLU: return apply_activation<silu>(x, count, y, derivative);
        case TANH: return apply_activation<tanh_dual>(x, count, y, derivative);
        default: throw std::invalid_argument("there is no such activation");
    }
}

// dx += dy f'(x)
inline void activation_backward(const float* derivative, const float* dy, size_t count, float* dx) {
    for (size_t i = 0; i < count; ++i) dx[i] += dy[i] * derivative[i];
}

// SwiGLU (Shazeer, 2020): y = silu(gate) up. If `keep` is set, gate becomes silu(gate) and up becomes up silu'(gate), the
// derivatives of y by up and by gate. y may be up.
template <bool keep>
void silu_mul_forward(float* gate, float* up, size_t count, float* y) {
    for_each_register(count, [=](size_t i, size_t part) {
        const Dual dual = silu(load_part(gate + i, part));
        const VecF32 factor = load_part(up + i, part);
        if (keep) {
            store_part(gate + i, dual.value, part);
            store_part(up + i, factor * dual.derivative, part);
        }
        store_part(y + i, factor * dual.value, part);
    });
}
inline void silu_mul_backward(const float* by_up, const float* by_gate, const float* dy, size_t count, float* d_up,
                              float* d_gate) {
    activation_backward(by_up, dy, count, d_up);
    activation_backward(by_gate, dy, count, d_gate);
}

}  // namespace heedful
