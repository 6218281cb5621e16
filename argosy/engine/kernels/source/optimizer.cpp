// The updates of many parameters in one parallel region, float32.
//
//   tensors   w1 |----------|  b1 |-|  w2 |-------------|  …        not moved
//   chunks       |0    |1    |2   |3    |4    |…                    of equal size, dynamically scheduled
//
// So small tensors have no overhead, and no thread waits for another at the end of a tensor.
//
// Each operation rounds where torch's fused kernels round, so that fused and unfused programs have identical results;
// only in the last elements of a tensor, up to a vector's width, torch rounds differently. Hence fma is explicit.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "common.h"

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

namespace {

constexpr int64_t kChunk = 16384;

// a · b + c, rounded once if the processor has fma.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Calls body(tensor, begin, end) for parts that cover all elements of all tensors, on all threads.
template <class Body>
void in_chunks(int64_t tensors, const int64_t* sizes, const Body& body) {
  std::vector<int64_t> ends(tensors);  // cumulative end of each tensor
  int64_t total = 0;
  for (int64_t i = 0; i < tensors; ++i) ends[i] = total += sizes[i];
  const int64_t chunks = (total + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(total))
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t at = chunk * kChunk;
    const int64_t end = std::min(at + kChunk, total);
    for (int64_t i = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin(); at < end; ++i) {
      const int64_t first = ends[i] - sizes[i], stop = std::min(end, ends[i]);
      if (at < stop) body(i, at - first, stop - first);
      at = std::max(at, stop);
    }
  }
}

void sgd(float* p, const float* g, int64_t begin, int64_t end, float rate, float decay) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) p[i] = fused(decay == 0 ? g[i] : fused(p[i], decay, g[i]), -rate, p[i]);
}

template <bool NESTEROV, bool DECAY>
void momentum(float* p, const float* g, float* v, int64_t begin, int64_t end, float rate, float mu, float decay) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float grad = DECAY ? fused(p[i], decay, g[i]) : g[i];
    const float velocity = v[i] * mu + grad;
    v[i] = velocity;
    p[i] = fused(NESTEROV ? fused(velocity, mu, grad) : velocity, -rate, p[i]);
  }
}

// Per-tensor constants of Adam's formula.
struct Adam {
  float step, shrink, root;
};

struct Betas {
  float new1, keep2, new2, epsilon;
};

void adam(float* p, const float* g, float* m, float* q, int64_t begin, int64_t end, const Adam& a, const Betas& b) {
  const float step = a.step, shrink = a.shrink, root = a.root;
  const float new1 = b.new1, keep2 = b.keep2, new2 = b.new2, epsilon = b.epsilon;
  const bool near = new1 < 0.5f;  // as torch.lerp: start from the nearer of old mean and gradient
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float grad = g[i], away = grad - m[i];
    const float mean = near ? fused(new1, away, m[i]) : fused(new1 - 1.0f, away, grad);
    const float square = fused(new2 * grad, grad, q[i] * keep2);
    m[i] = mean;
    q[i] = square;
    p[i] = p[i] * shrink + step * mean / (std::sqrt(square) / root + epsilon);
  }
}

}  // namespace

ARGOSY_API void argosy_fused_sgd(int64_t tensors, float* const* params, const float* const* grads,
                                 const int64_t* sizes, const double* rates, const double* decays) {
  in_chunks(tensors, sizes, [=](int64_t i, int64_t begin, int64_t end) {
    sgd(params[i], grads[i], begin, end, static_cast<float>(rates[i]), static_cast<float>(decays[i]));
  });
}

ARGOSY_API void argosy_fused_momentum(int64_t tensors, float* const* params, const float* const* grads,
                                      float* const* velocities, const int64_t* sizes, const double* rates,
                                      const double* decays, double mu, int nesterov) {
  in_chunks(tensors, sizes, [=](int64_t i, int64_t begin, int64_t end) {
    const auto update = nesterov ? (decays[i] != 0 ? momentum<true, true> : momentum<true, false>)
                                 : (decays[i] != 0 ? momentum<false, true> : momentum<false, false>);
    update(params[i], grads[i], velocities[i], begin, end, static_cast<float>(rates[i]), static_cast<float>(mu),
           static_cast<float>(decays[i]));
  });
}

// Adam with decoupled decay; increments each tensor's step count.
ARGOSY_API void argosy_fused_adamw(int64_t tensors, float* const* params, const float* const* grads,
                                   float* const* means, float* const* squares, float* const* steps,
                                   const int64_t* sizes, const double* rates, const double* decays, double beta1,
                                   double beta2, double epsilon) {
  std::vector<Adam> each(tensors);
  for (int64_t i = 0; i < tensors; ++i) {
    const double t = *steps[i] += 1;
    const double rate = rates[i] / (1 - std::pow(beta1, t)), root = std::sqrt(1 - std::pow(beta2, t));
    each[i] = {static_cast<float>(-rate), static_cast<float>(1 - rates[i] * decays[i]), static_cast<float>(root)};
  }
  const Betas betas{static_cast<float>(1 - beta1), static_cast<float>(beta2), static_cast<float>(1 - beta2),
                    static_cast<float>(epsilon)};
  in_chunks(tensors, sizes, [&](int64_t i, int64_t begin, int64_t end) {
    adam(params[i], grads[i], means[i], squares[i], begin, end, each[i], betas);
  });
}
