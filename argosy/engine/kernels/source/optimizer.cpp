// The updates of many parameters in one parallel region, float32.
//
//   tensors   w1 |----------|  b1 |-|  w2 |-------------|  …        not moved
//   chunks       |0    |1    |2   |3    |4    |…                    of equal size, dynamically scheduled
//
// So small tensors have no overhead, and no thread waits for another at the end of a tensor.
//
// A gradient may be bfloat16, and a parameter may have a bfloat16 copy, which is set to its rounded value. A gradient may
// be the sum of the gradients of several ranks, in shared memory. All of this is computed block by block, while the block
// is in the cache, so that there is one pass over memory.
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
constexpr int64_t kBlock = 4096;  // elements of a gradient that are summed or converted at a time

// a · b + c, rounded once if the processor has fma.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// The parameters: for each the gradients of `ranks` ranks, float or (is_narrow) bfloat16, and a copy or null.
struct Rows {
  int64_t count, ranks;
  float* const* params;
  const void* const* grads;
  bfloat16* const* copies;
  const int64_t* is_narrow;
  const int64_t* sizes;
};

// sum = the elements from `first` on of all ranks' gradients, in the order of the ranks, rounded once to T.
template <class T>
void add_up(const void* const* grads, int64_t ranks, int64_t first, int64_t size, float* sum) {
  const T* a = static_cast<const T*>(grads[0]) + first;
  if (ranks == 1) {
    for (int64_t i = 0; i < size; ++i) sum[i] = a[i];
    return;
  }
  const T* b = static_cast<const T*>(grads[1]) + first;
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) sum[i] = static_cast<float>(a[i]) + static_cast<float>(b[i]);
  for (int64_t rank = 2; rank < ranks; ++rank) {
    const T* other = static_cast<const T*>(grads[rank]) + first;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) sum[i] += static_cast<float>(other[i]);
  }
  if (sizeof(T) < sizeof(float))
    for (int64_t i = 0; i < size; ++i) sum[i] = static_cast<T>(sum[i]);
}

// Calls body(row, first, size, param, grad) for parts that cover all elements of all parameters, on all threads.
template <class Body>
void in_chunks(const Rows& rows, const Body& body) {
  std::vector<int64_t> ends(rows.count);  // cumulative end of each tensor
  int64_t total = 0;
  for (int64_t i = 0; i < rows.count; ++i) ends[i] = total += rows.sizes[i];
  const int64_t chunks = (total + kChunk - 1) / kChunk;
#pragma omp parallel num_threads(threads_for(total))
  {
    std::vector<float> block(kBlock);  // of a gradient that is summed or converted
#pragma omp for schedule(dynamic)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      int64_t at = chunk * kChunk;
      const int64_t end = std::min(at + kChunk, total);
      for (int64_t i = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin(); at < end; ++i) {
        const int64_t first = at - (ends[i] - rows.sizes[i]), size = std::min(end, ends[i]) - at;
        float* param = rows.params[i] + first;
        const void* const* grads = rows.grads + i * rows.ranks;
        if (rows.ranks == 1 && !rows.is_narrow[i]) {
          body(i, first, size, param, static_cast<const float*>(grads[0]) + first);
        } else {
          for (int64_t done = 0; done < size; done += kBlock) {
            const int64_t part = std::min(kBlock, size - done);
            const auto sum = rows.is_narrow[i] ? add_up<bfloat16> : add_up<float>;
            sum(grads, rows.ranks, first + done, part, block.data());
            body(i, first + done, part, param + done, block.data());
          }
        }
        if (rows.copies[i]) std::copy(param, param + size, rows.copies[i] + first);
        at += size;
      }
    }
  }
}

void sgd(float* p, const float* g, int64_t size, float rate, float decay) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) p[i] = fused(decay == 0 ? g[i] : fused(p[i], decay, g[i]), -rate, p[i]);
}

template <bool NESTEROV, bool DECAY>
void momentum(float* p, const float* g, float* v, int64_t size, float rate, float mu, float decay) {
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
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

void adam(float* p, const float* g, float* m, float* q, int64_t size, const Adam& a, const Betas& b) {
  const float step = a.step, shrink = a.shrink, root = a.root;
  const float new1 = b.new1, keep2 = b.keep2, new2 = b.new2, epsilon = b.epsilon;
  const bool near = new1 < 0.5f;  // as torch.lerp: start from the nearer of old mean and gradient
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) {
    const float grad = g[i], away = grad - m[i];
    const float mean = near ? fused(new1, away, m[i]) : fused(new1 - 1.0f, away, grad);
    const float square = fused(new2 * grad, grad, q[i] * keep2);
    m[i] = mean;
    q[i] = square;
    p[i] = p[i] * shrink + step * mean / (std::sqrt(square) / root + epsilon);
  }
}

}  // namespace

ARGOSY_API void argosy_fused_sgd(int64_t count, int64_t ranks, float* const* params, const void* const* grads,
                                 bfloat16* const* copies, const int64_t* is_narrow, const int64_t* sizes,
                                 const double* rates, const double* decays) {
  const Rows rows{count, ranks, params, grads, copies, is_narrow, sizes};
  in_chunks(rows, [=](int64_t i, int64_t, int64_t size, float* param, const float* grad) {
    sgd(param, grad, size, static_cast<float>(rates[i]), static_cast<float>(decays[i]));
  });
}

ARGOSY_API void argosy_fused_momentum(int64_t count, int64_t ranks, float* const* params, const void* const* grads,
                                      float* const* velocities, bfloat16* const* copies, const int64_t* is_narrow,
                                      const int64_t* sizes, const double* rates, const double* decays, double mu,
                                      int nesterov) {
  const Rows rows{count, ranks, params, grads, copies, is_narrow, sizes};
  in_chunks(rows, [=](int64_t i, int64_t first, int64_t size, float* param, const float* grad) {
    const auto update = nesterov ? (decays[i] != 0 ? momentum<true, true> : momentum<true, false>)
                                 : (decays[i] != 0 ? momentum<false, true> : momentum<false, false>);
    update(param, grad, velocities[i] + first, size, static_cast<float>(rates[i]), static_cast<float>(mu),
           static_cast<float>(decays[i]));
  });
}

// Adam with decoupled decay; increments each tensor's step count.
ARGOSY_API void argosy_fused_adamw(int64_t count, int64_t ranks, float* const* params, const void* const* grads,
                                   float* const* means, float* const* squares, float* const* steps,
                                   bfloat16* const* copies, const int64_t* is_narrow, const int64_t* sizes,
                                   const double* rates, const double* decays, double beta1, double beta2,
                                   double epsilon) {
  std::vector<Adam> each(count);
  for (int64_t i = 0; i < count; ++i) {
    const double t = *steps[i] += 1;
    const double rate = rates[i] / (1 - std::pow(beta1, t)), root = std::sqrt(1 - std::pow(beta2, t));
    each[i] = {static_cast<float>(-rate), static_cast<float>(1 - rates[i] * decays[i]), static_cast<float>(root)};
  }
  const Betas betas{static_cast<float>(1 - beta1), static_cast<float>(beta2), static_cast<float>(1 - beta2),
                    static_cast<float>(epsilon)};
  const Rows rows{count, ranks, params, grads, copies, is_narrow, sizes};
  in_chunks(rows, [&](int64_t i, int64_t first, int64_t size, float* param, const float* grad) {
    adam(param, grad, means[i] + first, squares[i] + first, size, each[i], betas);
  });
}
