// Batch norm fused with an activation: y = act(norm(x)), or y = act(norm(x) + other); forward and backward. The elements
// are float or bfloat16 (T); weights, statistics and arithmetic are float.
//
//   channels_last   x is [rows, C]; each thread has a part of the rows
//   contiguous      x is [N, C, H·W]; each thread has a part of the channels
//
// Two passes over memory in each direction, the minimum: one for the sums, one for the result. The second pass iterates
// backwards, so that it starts with what is still in the caches. Sums are accumulated in float over a block of rows,
// and these in double; the forward sums are of the difference to the first row, for precision with a large mean.
//
// Backward recomputes the activation's mask from x, so that y is neither read nor kept.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "common.h"

namespace {

constexpr int64_t kBlock = 64;  // rows that are summed in float
constexpr int64_t kRun = 1024;  // pixels of a channel that are summed in float

// --- sums over rows -----------------------------------------------------------------------------------

struct Sums {
  std::vector<double> first, second;  // [threads, C]
  int64_t channels;

  Sums(int threads, int64_t channels) : first(threads * channels), second(threads * channels), channels(channels) {}

  double total(const std::vector<double>& parts, int64_t c) const {
    double sum = 0;
    for (size_t at = c; at < parts.size(); at += channels) sum += parts[at];
    return sum;
  }
};

// Adds each block's float sums to this thread's doubles. `body(row, count, s, q)` takes them over `count` rows.
template <class Body>
void sum_rows(Sums& sums, Range rows, const Body& body) {
  const int64_t C = sums.channels;
  double* S = sums.first.data() + omp_get_thread_num() * C;
  double* Q = sums.second.data() + omp_get_thread_num() * C;
  std::vector<float> block(2 * C);
  float *s = block.data(), *q = s + C;
  for (int64_t row = rows.begin; row < rows.end; row += kBlock) {
    std::fill(block.begin(), block.end(), 0.0f);
    body(row, std::min(kBlock, rows.end - row), s, q);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      S[c] += s[c];
      Q[c] += q[c];
    }
  }
}

// Calls body(row, count) for blocks of rows, the last block first.
template <class Body>
void backwards(Range rows, const Body& body) {
  for (int64_t end = rows.end; end > rows.begin;) {
    const int64_t begin = std::max(rows.begin, end - kBlock);
    body(begin, end - begin);
    end = begin;
  }
}

// norm(x) = x · scale + shift, for one channel. Forward and backward must agree, or masks would differ.
struct Factors {
  float scale, shift;
};

template <class F>
Factors factors_of(const F& f, int64_t c) {
  const float scale = (f.weight ? f.weight[c] : 1.0f) * f.invstd[c];
  return {scale, std::fma(-f.mean[c], scale, f.bias ? f.bias[c] : 0.0f)};
}

// --- forward ------------------------------------------------------------------------------------------

template <class T>
struct Forward {
  const T *x, *other;
  const float *weight, *bias;
  T* y;
  float *mean, *invstd;
  int64_t rows, channels, pixels;  // rows = N·H·W, pixels = H·W
  double eps;
};

template <class T>
void finish(const Forward<T>& f, int64_t c, double sum, double squares, float around) {
  const double m = sum / f.rows, raw = squares / f.rows - m * m;
  const double var = raw < 0 ? 0 : raw;  // not max: NaN stays NaN
  f.mean[c] = static_cast<float>(around + m);
  f.invstd[c] = static_cast<float>(1.0 / std::sqrt(var + f.eps));
}

template <int ACT, bool ADD, class T>
void normalise(const Forward<T>& f, int64_t begin, int64_t end, const float* scale, const float* shift) {
  const int64_t C = f.channels;
  for (int64_t at = begin * C; at < end * C; at += C) {
    const T *x = f.x + at, *other = ADD ? f.other + at : nullptr;
    T* y = f.y + at;
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      float z = std::fma(float(x[c]), scale[c], shift[c]);
      if constexpr (ADD) z += other[c];
      y[c] = forward<ACT>(z, 1.0f);
    }
  }
}

template <int ACT, bool ADD, class T>
void normalise_plane(const Forward<T>& f, int64_t at, Factors factors) {
  const T *x = f.x + at, *other = ADD ? f.other + at : nullptr;
  T* y = f.y + at;
#pragma omp simd
  for (int64_t p = 0; p < f.pixels; ++p) {
    float z = std::fma(float(x[p]), factors.scale, factors.shift);
    if constexpr (ADD) z += other[p];
    y[p] = forward<ACT>(z, 1.0f);
  }
}

// Sums of the difference to the first row, and of its square.
template <class T>
void sum_distances(const Forward<T>& f, int64_t row, int64_t count, float* s, float* q) {
  const int64_t C = f.channels;
  const T* k = f.x;
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    const T *x0 = f.x + (row + r) * C, *x1 = x0 + C, *x2 = x1 + C, *x3 = x2 + C;
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      const float first = k[c];
      const float a = x0[c] - first, b = x1[c] - first, d = x2[c] - first, e = x3[c] - first;
      s[c] += (a + b) + (d + e);
      q[c] += (a * a + b * b) + (d * d + e * e);
    }
  }
  for (; r < count; ++r) {
    const T* x0 = f.x + (row + r) * C;
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      const float a = float(x0[c]) - k[c];
      s[c] += a;
      q[c] += a * a;
    }
  }
}

template <int ACT, bool ADD, class T>
void forward_last(const Forward<T>& f, bool recompute) {
  const int64_t C = f.channels;
  const int threads = threads_for(f.rows * C);
  Sums sums(threads, C);
  std::vector<float> factors(2 * C);
  float *scale = factors.data(), *shift = scale + C;
#pragma omp parallel num_threads(threads)
  {
    const Range rows = share(f.rows), columns = share(C, 16);
    if (!recompute) {
      sum_rows(sums, rows, [&](int64_t row, int64_t count, float* s, float* q) { sum_distances(f, row, count, s, q); });
#pragma omp barrier
    }
    for (int64_t c = columns.begin; c < columns.end; ++c) {
      if (!recompute) finish(f, c, sums.total(sums.first, c), sums.total(sums.second, c), f.x[c]);
      const Factors factors = factors_of(f, c);
      scale[c] = factors.scale;
      shift[c] = factors.shift;
    }
#pragma omp barrier
    backwards(rows, [&](int64_t row, int64_t count) { normalise<ACT, ADD>(f, row, row + count, scale, shift); });
  }
}

template <int ACT, bool ADD, class T>
void forward_first(const Forward<T>& f, bool recompute) {
  const int64_t C = f.channels, P = f.pixels, N = f.rows / P;
#pragma omp parallel for num_threads(threads_for(f.rows* C))
  for (int64_t c = 0; c < C; ++c) {
    const float k = f.x[c * P];
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < N && !recompute; ++n) {
      const T* x = f.x + (n * C + c) * P;
      for (int64_t at = 0; at < P; at += kRun) {
        const int64_t end = std::min(P, at + kRun);
        float s = 0, q = 0;
#pragma omp simd reduction(+ : s, q)
        for (int64_t p = at; p < end; ++p) {
          const float a = float(x[p]) - k;
          s += a;
          q += a * a;
        }
        sum += s;
        squares += q;
      }
    }
    if (!recompute) finish(f, c, sum, squares, k);
    const Factors factors = factors_of(f, c);
    for (int64_t n = N - 1; n >= 0; --n) normalise_plane<ACT, ADD>(f, (n * C + c) * P, factors);
  }
}

// --- backward -----------------------------------------------------------------------------------------

template <class T>
struct Backward {
  const T *dy, *more;  // more: a second gradient that is added to dy, or null
  const T *x, *y;      // y: with ADD, the source of the mask
  const float *weight, *bias, *mean, *invstd;
  T *dx, *dz;  // dz: with ADD, the gradient of `other`; dx may be dy, dz may be dy
  float *dweight, *dbias;
  int64_t rows, channels, pixels;
};

// dx = a · g + b · (x - mean) + c for each channel
struct Line {
  float a, b, c;
};

template <class T>
Line finish(const Backward<T>& f, int64_t c, double sum, double with_x, float scale) {
  if (f.dbias) f.dbias[c] = static_cast<float>(sum);
  if (f.dweight) f.dweight[c] = static_cast<float>(with_x * f.invstd[c]);
  const double invstd = f.invstd[c];
  return {scale, static_cast<float>(-scale * invstd * invstd * with_x / f.rows),
          static_cast<float>(-scale * sum / f.rows)};
}

// The gradient of the activation's input. With ADD the mask comes from y, else it is recomputed from x.
template <int ACT, bool ADD, bool MORE, class T>
inline float masked(const T* dy, const T* more, const T* x, const T* y, int64_t i, float scale, float shift) {
  const float g = MORE ? float(dy[i]) + float(more[i]) : float(dy[i]);
  if constexpr (ADD) return backward<ACT, false>(g, y[i], 1.0f);
  return backward<ACT, true>(g, std::fma(float(x[i]), scale, shift), 1.0f);
}

template <int ACT, bool ADD, bool MORE, class T>
void backward_last(const Backward<T>& f) {
  const int64_t C = f.channels;
  const int threads = threads_for(f.rows * C);
  Sums sums(threads, C);
  std::vector<float> factors(5 * C);
  float *scale = factors.data(), *shift = scale + C, *a = shift + C, *b = a + C, *d = b + C;
  const float* mean = f.mean;
  for (int64_t c = 0; c < C; ++c) {
    const Factors factors = factors_of(f, c);
    scale[c] = factors.scale;
    shift[c] = factors.shift;
  }
#pragma omp parallel num_threads(threads)
  {
    const Range rows = share(f.rows);
    sum_rows(sums, rows, [&](int64_t row, int64_t count, float* s, float* q) {
      for (int64_t at = row * C; at < (row + count) * C; at += C) {
        const T *dy = f.dy + at, *more = f.more + at, *x = f.x + at, *y = f.y + at;
        T* dz = f.dz + at;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
          const float g = masked<ACT, ADD, MORE, T>(dy, more, x, y, c, scale[c], shift[c]);
          if constexpr (ADD) dz[c] = g;
          s[c] += g;
          q[c] += g * (float(x[c]) - mean[c]);
        }
      }
    });
#pragma omp barrier
    const Range columns = share(C, 16);
    for (int64_t c = columns.begin; c < columns.end; ++c) {
      const Line line = finish(f, c, sums.total(sums.first, c), sums.total(sums.second, c), scale[c]);
      a[c] = line.a;
      b[c] = line.b;
      d[c] = line.c;
    }
#pragma omp barrier
    if (f.dx) backwards(rows, [&](int64_t row, int64_t count) {
      for (int64_t at = row * C; at < (row + count) * C; at += C) {
        const T *dy = f.dy + at, *more = f.more + at, *x = f.x + at, *dz = f.dz + at;
        T* dx = f.dx + at;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
          float g;
          if constexpr (ADD) g = dz[c];
          else g = masked<ACT, false, MORE, T>(dy, more, x, nullptr, c, scale[c], shift[c]);
          dx[c] = a[c] * g + (b[c] * (float(x[c]) - mean[c]) + d[c]);
        }
      }
    });
  }
}

template <int ACT, bool ADD, bool MORE, class T>
void backward_first(const Backward<T>& f) {
  const int64_t C = f.channels, P = f.pixels, N = f.rows / P;
#pragma omp parallel for num_threads(threads_for(f.rows* C))
  for (int64_t c = 0; c < C; ++c) {
    const Factors factors = factors_of(f, c);
    const float scale = factors.scale, shift = factors.shift, mean = f.mean[c];
    double sum = 0, with_x = 0;
    for (int64_t n = 0; n < N; ++n) {
      const int64_t plane = (n * C + c) * P;
      const T *dy = f.dy + plane, *more = f.more + plane, *x = f.x + plane, *y = f.y + plane;
      T* dz = f.dz + plane;
      for (int64_t at = 0; at < P; at += kRun) {
        const int64_t end = std::min(P, at + kRun);
        float s = 0, q = 0;
#pragma omp simd reduction(+ : s, q)
        for (int64_t p = at; p < end; ++p) {
          const float g = masked<ACT, ADD, MORE, T>(dy, more, x, y, p, scale, shift);
          if constexpr (ADD) dz[p] = g;
          s += g;
          q += g * (float(x[p]) - mean);
        }
        sum += s;
        with_x += q;
      }
    }
    const Line line = finish(f, c, sum, with_x, scale);
    if (!f.dx) continue;
    const float a = line.a, b = line.b, d = line.c;
    for (int64_t n = N - 1; n >= 0; --n) {
      const int64_t plane = (n * C + c) * P;
      const T *dy = f.dy + plane, *more = f.more + plane, *x = f.x + plane, *dz = f.dz + plane;
      T* dx = f.dx + plane;
#pragma omp simd
      for (int64_t p = 0; p < P; ++p) {
        float g;
        if constexpr (ADD) g = dz[p];
        else g = masked<ACT, false, MORE, T>(dy, more, x, nullptr, p, scale, shift);
        dx[p] = a * g + (b * (float(x[p]) - mean) + d);
      }
    }
  }
}

// --- dispatch to templates ----------------------------------------------------------------------------

template <int ACT, class T>
void run(const Forward<T>& f, bool last, bool recompute) {
  if (f.other)
    last ? forward_last<ACT, true>(f, recompute) : forward_first<ACT, true>(f, recompute);
  else
    last ? forward_last<ACT, false>(f, recompute) : forward_first<ACT, false>(f, recompute);
}

template <class T>
void run(const Forward<T>& f, int act, bool last, bool recompute) {
  switch (act) {
    case RELU: return run<RELU>(f, last, recompute);
    case TANH: return run<TANH>(f, last, recompute);
    case SIGMOID: return run<SIGMOID>(f, last, recompute);
    case SILU: return run<SILU>(f, last, recompute);
    case NONE: return run<NONE>(f, last, recompute);
  }
}

template <int ACT, bool ADD, class T>
void run(const Backward<T>& f, bool last) {
  if (f.more)
    last ? backward_last<ACT, ADD, true>(f) : backward_first<ACT, ADD, true>(f);
  else
    last ? backward_last<ACT, ADD, false>(f) : backward_first<ACT, ADD, false>(f);
}

template <class T>
void run(const Backward<T>& f, int act, bool last) {
  if (f.dz) return run<RELU, true>(f, last);
  switch (act) {
    case RELU: return run<RELU, false>(f, last);
    case TANH: return run<TANH, false>(f, last);
    case SIGMOID: return run<SIGMOID, false>(f, last);
    case SILU: return run<SILU, false>(f, last);
    case NONE: return run<NONE, false>(f, last);
  }
}

}  // namespace

// One set of functions for each type of the elements. `recompute` computes y from the mean and invstd that forward saved.
#define BN_ACT(T, SUFFIX)                                                                                             \
  ARGOSY_API void argosy_bn_act_forward##SUFFIX(const T* x, const T* other, const float* weight, const float* bias,   \
                                                T* y, float* mean, float* invstd, int64_t rows, int64_t channels,     \
                                                int64_t pixels, double eps, int act, int last) {                      \
    run(Forward<T>{x, other, weight, bias, y, mean, invstd, rows, channels, pixels, eps}, act, last, false);          \
  }                                                                                                                   \
  ARGOSY_API void argosy_bn_act_recompute##SUFFIX(const T* x, const T* other, const float* weight, const float* bias, \
                                                  T* y, float* mean, float* invstd, int64_t rows, int64_t channels,   \
                                                  int64_t pixels, int act, int last) {                                \
    run(Forward<T>{x, other, weight, bias, y, mean, invstd, rows, channels, pixels, 0}, act, last, true);             \
  }                                                                                                                   \
  ARGOSY_API void argosy_bn_act_backward##SUFFIX(                                                                     \
      const T* dy, const T* more, const T* x, const T* y, const float* weight, const float* bias, const float* mean,  \
      const float* invstd, T* dx, T* dz, float* dweight, float* dbias, int64_t rows, int64_t channels,                \
      int64_t pixels, int act, int last) {                                                                            \
    run(Backward<T>{dy, more, x, y, weight, bias, mean, invstd, dx, dz, dweight, dbias, rows, channels, pixels}, act, \
        last);                                                                                                        \
  }

BN_ACT(float, )
BN_ACT(bfloat16, _bf16)
