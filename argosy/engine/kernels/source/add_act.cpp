// An addition fused with an activation, in one pass over memory. The elements are float or bfloat16 (T);
// arithmetic is in float.
//
//   forward     y = act(a + b)                 b as large as a, or broadcast: b[i % period]
//               also s = a + b, if backward needs the activation's input
//   backward    dx = act'(ref) · (dy + more)   ref: y, or s; more: a second gradient, or null; dx may be dy
//   act first   y = a + act(b)                 forward only
// SPDX-License-Identifier: Apache-2.0
#include "common.h"

namespace {

// Calls body(begin, end) for parts within one period, on all threads.
template <class Body>
void in_parts(int64_t count, int64_t period, const Body& body) {
#pragma omp parallel num_threads(threads_for(count))
  {
    const Range part = share(count, 64);
    for (int64_t at = part.begin; at < part.end;) {
      const int64_t end = std::min(part.end, (at / period + 1) * period);
      body(at, end);
      at = end;
    }
  }
}

template <int ACT, bool KEEP, class T>
void add_act(const T* a, const T* b, T* y, T* s, int64_t count, int64_t period, float scale) {
  in_parts(count, period, [=](int64_t begin, int64_t end) {
    const T* other = b + begin % period - begin;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float z = float(a[i]) + float(other[i]);
      if constexpr (KEEP) s[i] = z;
      y[i] = forward<ACT>(z, scale);
    }
  });
}

template <int ACT, class T>
void act_add(const T* a, const T* b, T* y, int64_t count, int64_t period, float scale) {
  in_parts(count, period, [=](int64_t begin, int64_t end) {
    const T* other = b + begin % period - begin;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = float(a[i]) + forward<ACT>(other[i], scale);
  });
}

template <int ACT, class T>
void run(const T* a, const T* b, T* y, T* s, int64_t count, int64_t period, float scale, int first) {
  if (first) return act_add<ACT>(a, b, y, count, period, scale);
  if (s) return add_act<ACT, true>(a, b, y, s, count, period, scale);
  return add_act<ACT, false>(a, b, y, s, count, period, scale);
}

template <int ACT, bool FROM_INPUT, class T>
void act_backward(const T* dy, const T* more, const T* ref, T* dx, int64_t count, float scale) {
  in_parts(count, count, [=](int64_t begin, int64_t end) {
    if (more) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = backward<ACT, FROM_INPUT>(float(dy[i]) + float(more[i]), ref[i], scale);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dx[i] = backward<ACT, FROM_INPUT>(dy[i], ref[i], scale);
    }
  });
}

template <class T>
void add_act(const T* a, const T* b, T* y, T* s, int64_t count, int64_t period, float scale, int act, int first) {
  switch (act) {
    case RELU: return run<RELU>(a, b, y, s, count, period, scale, first);
    case TANH: return run<TANH>(a, b, y, s, count, period, scale, first);
    case SIGMOID: return run<SIGMOID>(a, b, y, s, count, period, scale, first);
    case SILU: return run<SILU>(a, b, y, s, count, period, scale, first);
    case GELU: return run<GELU>(a, b, y, s, count, period, scale, first);
    case GELU_TANH: return run<GELU_TANH>(a, b, y, s, count, period, scale, first);
    case SCALE: return run<SCALE>(a, b, y, s, count, period, scale, first);
  }
}

// silu and gelu need the activation's input (s), the others its output (y).
template <class T>
void act_backward(const T* dy, const T* more, const T* ref, T* dx, int64_t count, float scale, int act) {
  switch (act) {
    case RELU: return act_backward<RELU, false>(dy, more, ref, dx, count, scale);
    case TANH: return act_backward<TANH, false>(dy, more, ref, dx, count, scale);
    case SIGMOID: return act_backward<SIGMOID, false>(dy, more, ref, dx, count, scale);
    case SILU: return act_backward<SILU, true>(dy, more, ref, dx, count, scale);
    case GELU: return act_backward<GELU, true>(dy, more, ref, dx, count, scale);
    case GELU_TANH: return act_backward<GELU_TANH, true>(dy, more, ref, dx, count, scale);
    case SCALE: return act_backward<SCALE, false>(dy, more, dy, dx, count, scale);
  }
}

}  // namespace

#define ADD_ACT(T, SUFFIX)                                                                                             \
  ARGOSY_API void argosy_add_act##SUFFIX(const T* a, const T* b, T* y, T* s, int64_t count, int64_t period,            \
                                         float scale, int act, int first) {                                            \
    add_act(a, b, y, s, count, period, scale, act, first);                                                             \
  }                                                                                                                    \
  ARGOSY_API void argosy_act_backward##SUFFIX(const T* dy, const T* more, const T* ref, T* dx, int64_t count,          \
                                              float scale, int act) {                                                  \
    act_backward(dy, more, ref, dx, count, scale, act);                                                                \
  }

ADD_ACT(float, )
ADD_ACT(bfloat16, _bf16)
