// Shared by the kernels: the activations, and the partition of rows among torch's threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define ARGOSY_API extern "C" __attribute__((visibility("default")))

// The same numbers as in argosy/engine/ops/activation.py.
enum Act : int { RELU = 0, TANH = 1, SIGMOID = 2, SILU = 3, GELU = 4, GELU_TANH = 5, SCALE = 6, NONE = 7 };

// A 16-bit float with the exponent of a float; arithmetic is in float.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  // Rounds to nearest, ties to even; NaN stays NaN.
  bfloat16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    const uint32_t rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>(value != value ? 0x7fc0 : rounded);
  }
  operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
};

struct Range {
  int64_t begin, end;
};

// This thread's part of `count`, in multiples of `step`.
inline Range share(int64_t count, int64_t step = 1) {
  const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
  const int64_t blocks = (count + step - 1) / step;
  const int64_t each = blocks / threads, more = blocks % threads;
  const int64_t begin = thread * each + std::min(thread, more);
  const int64_t end = begin + each + (thread < more ? 1 : 0);
  return {std::min(begin * step, count), std::min(end * step, count)};
}

// Below this many elements another thread costs more than it saves.
constexpr int64_t kLeastPerThread = 16384;

inline int threads_for(int64_t elements) {
  const int64_t useful = std::max<int64_t>(1, elements / kLeastPerThread);
  return static_cast<int>(std::min<int64_t>(omp_get_max_threads(), useful));
}

// exp by Cephes' polynomial, within 2 ulp; vectorisable. 0 below -87, 1.7e38 above 88.
inline float exp_(float x) {
  const bool vanishes = x < -87.0f;
  x = vanishes ? 0.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;  // of NaN, any: p is NaN
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return vanishes ? 0.0f : p * power;
}

// Abramowitz and Stegun 7.1.26: within 1.5e-7, and vectorisable.
inline float erf_(float x) {
  const float a = std::fabs(x), t = 1.0f / (1.0f + 0.3275911f * a);
  const float poly =
      ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  const float y = 1.0f - poly * exp_(-a * a);
  return x < 0 ? -y : y;
}

inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }

// Near 0 by Cephes' polynomial, where the other form would lose digits.
inline float tanh_(float x) {
  const float far = 2.0f / (1.0f + exp_(-2.0f * x)) - 1.0f, z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  return std::fabs(x) < 0.625f ? p * z * x + x : far;
}

constexpr float kSqrt2OverPi = 0.7978845608f, kCube = 0.044715f, kSqrtHalf = 0.7071067812f;

// The activation of z; NaN propagates.
template <int ACT>
inline float forward(float z, float scale) {
  if constexpr (ACT == RELU) return z < 0 ? 0.0f : z;
  if constexpr (ACT == TANH) return tanh_(z);
  if constexpr (ACT == SIGMOID) return sigmoid_(z);
  if constexpr (ACT == SILU) return z * sigmoid_(z);
  if constexpr (ACT == GELU) return 0.5f * z * (1.0f + erf_(z * kSqrtHalf));
  if constexpr (ACT == GELU_TANH) return 0.5f * z * (1.0f + tanh_(kSqrt2OverPi * (z + kCube * z * z * z)));
  return ACT == NONE ? z : z * scale;
}

// The gradient of the activation's input. `ref` is the activation's input (FROM_INPUT) or its output.
template <int ACT, bool FROM_INPUT>
inline float backward(float dy, float ref, float scale) {
  if constexpr (ACT == RELU) return ref <= 0 ? 0.0f : dy;
  if constexpr (ACT == TANH) {
    const float y = FROM_INPUT ? tanh_(ref) : ref;
    return dy * (1.0f - y * y);
  }
  if constexpr (ACT == SIGMOID) {
    const float y = FROM_INPUT ? sigmoid_(ref) : ref;
    return dy * y * (1.0f - y);
  }
  if constexpr (ACT == SILU) {
    const float s = sigmoid_(ref);
    return dy * s * (1.0f + ref * (1.0f - s));
  }
  if constexpr (ACT == GELU) {
    const float density = 0.3989422804f * exp_(-0.5f * ref * ref);
    return dy * (0.5f * (1.0f + erf_(ref * kSqrtHalf)) + ref * density);
  }
  if constexpr (ACT == GELU_TANH) {
    const float t = tanh_(kSqrt2OverPi * (ref + kCube * ref * ref * ref));
    const float inner = kSqrt2OverPi * (1.0f + 3.0f * kCube * ref * ref);
    return dy * 0.5f * (1.0f + t + ref * (1.0f - t * t) * inner);
  }
  return ACT == NONE ? dy : dy * scale;
}
