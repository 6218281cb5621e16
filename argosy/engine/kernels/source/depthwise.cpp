// Depthwise convolution, y = conv(x, w) or y = conv(relu(x), w), forward and backward; one filter per channel. The
// elements are float or bfloat16 (T); arithmetic is float.
//
//   channels_last   each thread has a part of the rows of all images; vectorised over the channels; a few neighbouring
//                   pixels are computed together, so that shared inputs are read once
//   contiguous      one vector's width of planes at a time is transposed to channels_last, within the caches
//
// Backward iterates over x: dx and dw need the same x and dy, which are read once for both. The relu is applied when x
// is read, so its output is never written. Taps outside the image are not computed. Weights are converted to float once.
// dw is summed in float over some hundred pixels, and these sums in double, in a fixed order.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "common.h"

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
constexpr int kPixels = 4;        // computed together: as many as the registers hold
constexpr int64_t kFloats = 256;  // pixels whose dw is summed in float
constexpr int64_t kAhead = 8;     // pixels to prefetch ahead; the hardware prefetcher is too late
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef uint16_t Halves __attribute__((vector_size(kLanes * sizeof(uint16_t))));

template <class T>
struct Problem {
  const T *x, *dy;
  const float* weight;  // [taps, C]
  T *y, *dx;
  int64_t images, channels, height, width, rows, columns;  // rows, columns: of y
  int64_t tall, wide, down, right, top, left;              // kernel, stride, padding
};

// --- one value ----------------------------------------------------------------------------------------

template <class V>
inline V load(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
inline V load(const bfloat16* p) {
  if constexpr (sizeof(V) == sizeof(float)) {
    return *p;
  } else {
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    const Words words = __builtin_convertvector(halves, Words) << 16;
    V v;
    std::memcpy(&v, &words, sizeof v);
    return v;
  }
}

template <class V>
inline void store(float* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

// Rounds as bfloat16's constructor does.
template <class V>
inline void store(bfloat16* p, V v) {
  if constexpr (sizeof(V) == sizeof(float)) {
    *p = v;
  } else {
    Words words;
    std::memcpy(&words, &v, sizeof v);
    words = (words + 0x7fff + ((words >> 16) & 1)) >> 16;
    const Halves halves = __builtin_convertvector(v != v ? Words{} + 0x7fc0 : words, Halves);
    std::memcpy(p, &halves, sizeof halves);
  }
}

template <bool RELU, class V>
inline V input(V v) {
  return RELU ? (v < V{} ? V{} : v) : v;  // NaN stays NaN
}

// `v` is the result of input().
template <bool RELU, class V>
inline V masked(V grad, V v) {
  return RELU ? (v <= V{} ? V{} : grad) : grad;
}

// The taps of output position `at` that are inside an input of `size`.
inline Range taps(int64_t at, int64_t stride, int64_t padding, int64_t kernel, int64_t size) {
  const int64_t first = at * stride - padding;
  return {std::max<int64_t>(0, -first), std::min(kernel, size - first)};
}

// The taps that read input position `in`: begin, begin + stride, … < end, by outputs out, out - 1, …
struct Seen {
  int64_t begin, end, out;
};

inline Seen seen(int64_t in, int64_t stride, int64_t padding, int64_t kernel, int64_t size) {
  const int64_t at = in + padding, out = at / stride, beyond = std::max<int64_t>(0, out - (size - 1));
  return {at % stride + beyond * stride, std::min(kernel, at + 1), out - beyond};
}

// Calls body(V{}, c) for all channels, a vector at a time, and one by one at the end.
template <class Body>
inline void along(int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(Vector{}, c);
  for (; c < channels; ++c) body(float{}, c);
}

// --- rows of pixels -----------------------------------------------------------------------------------

// `B` pixels of y from column `at` on, whose taps are all inside the image's width.
template <bool RELU, int KW, int S, int B, class T>
inline void forward_inside(const Problem<T>& p, const T* x, T* y, Range tall, int64_t at) {
  const int64_t C = p.channels;
  along(C, [&](auto zero, int64_t c) {
    using V = decltype(zero);
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
      __builtin_prefetch(y + (at + kAhead + b) * C + c, 1);
#pragma GCC unroll 16
      for (int j = 0; j < S * S; ++j)  // S rows of x are new, and S pixels in each
        __builtin_prefetch(x + ((tall.end - 1 - j / S) * p.width + (at + kAhead + b) * S + j % S) * C + c);
    }
    V sum[B] = {};
    for (int64_t i = tall.begin; i < tall.end; ++i) {
      const T* in = x + (i * p.width + at * S - p.left) * C + c;
      const float* w = p.weight + i * KW * C + c;
#pragma GCC unroll 16
      for (int j = 0; j < (B - 1) * S + KW; ++j) {
        const V v = input<RELU>(load<V>(in + j * C));
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b)
          if (j >= b * S && j < b * S + KW) sum[b] += v * load<V>(w + (j - b * S) * C);
      }
    }
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) store(y + (at + b) * C + c, sum[b]);
  });
}

// One pixel of y; any kernel, stride and position.
template <bool RELU, class T>
void forward_anywhere(const Problem<T>& p, const T* x, T* y, Range tall, int64_t at) {
  const int64_t C = p.channels;
  const Range wide = taps(at, p.right, p.left, p.wide, p.width);
  along(C, [&](auto zero, int64_t c) {
    using V = decltype(zero);
    V sum{};
    for (int64_t i = tall.begin; i < tall.end; ++i)
      for (int64_t j = wide.begin; j < wide.end; ++j)
        sum += input<RELU>(load<V>(x + (i * p.width + at * p.right - p.left + j) * C + c)) *
               load<V>(p.weight + (i * p.wide + j) * C + c);
    store(y + at * C + c, sum);
  });
}

// KW and S: width and stride of the kernel, or 0 for any.
template <bool RELU, int KW, int S, class T>
void forward_rows(const Problem<T>& p, Range rows, double*) {
  const int64_t C = p.channels;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t image = row / p.rows, r = row % p.rows;
    const Range tall = taps(r, p.down, p.top, p.tall, p.height);
    const T* x = p.x + (image * p.height + r * p.down - p.top) * p.width * C;
    T* y = p.y + row * p.columns * C;
    int64_t at = 0;
    if constexpr (KW > 0) {
      for (; at < p.columns && at * S < p.left; ++at) forward_anywhere<RELU>(p, x, y, tall, at);
      const int64_t end = std::min(p.columns, (p.width + p.left - KW) / S + 1);
      for (; at + kPixels <= end; at += kPixels) forward_inside<RELU, KW, S, kPixels>(p, x, y, tall, at);
      for (; at < end; ++at) forward_inside<RELU, KW, S, 1>(p, x, y, tall, at);
    }
    for (; at < p.columns; ++at) forward_anywhere<RELU>(p, x, y, tall, at);
  }
}

// The gradients of one row of x: dx, and its part of dw.
template <class T>
struct RowOfX {
  const T *x, *dy;  // of this row, of this image
  T* dx;
  float* dw;
  Seen tall;
};

// `B` pixels of x from column `at` on, (at + padding) % S == 0, whose outputs are all inside the width of y.
template <bool RELU, int KW, int S, int B, class T>
inline void backward_inside(const Problem<T>& p, const RowOfX<T>& r, int64_t at) {
  const int64_t C = p.channels, out = (at + p.left) / S;
  along(C, [&](auto zero, int64_t c) {
    using V = decltype(zero);
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
      __builtin_prefetch(r.x + (at + kAhead + b) * C + c);
      __builtin_prefetch(r.dx + (at + kAhead + b) * C + c, 1);
    }
    V x[B], sum[B] = {};
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) x[b] = input<RELU>(load<V>(r.x + (at + b) * C + c));
    int64_t row = r.tall.out;
    for (int64_t i = r.tall.begin; i < r.tall.end; i += p.down, --row) {
      const T* dy = r.dy + (row * p.columns + out) * C + c;
      const float* w = p.weight + i * KW * C + c;
      V dw[KW];
#pragma GCC unroll 16
      for (int k = 0; k < KW; ++k) dw[k] = load<V>(r.dw + (i * KW + k) * C + c);
#pragma GCC unroll 16
      for (int j = -((KW - 1) / S); j <= (B - 1) / S; ++j) {
        const V grad = load<V>(dy + j * C);
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b) {
          const int k = b - j * S;
          if (k < 0 || k >= KW) continue;
          sum[b] += grad * load<V>(w + k * C);
          dw[k] += grad * x[b];
        }
      }
#pragma GCC unroll 16
      for (int k = 0; k < KW; ++k) store(r.dw + (i * KW + k) * C + c, dw[k]);
    }
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) store(r.dx + (at + b) * C + c, masked<RELU>(sum[b], x[b]));
  });
}

// One pixel of x; any kernel, stride and position.
template <bool RELU, class T>
void backward_anywhere(const Problem<T>& p, const RowOfX<T>& r, int64_t at) {
  const int64_t C = p.channels;
  const Seen wide = seen(at, p.right, p.left, p.wide, p.columns);
  along(C, [&](auto zero, int64_t c) {
    using V = decltype(zero);
    const V x = input<RELU>(load<V>(r.x + at * C + c));
    V sum{};
    int64_t row = r.tall.out;
    for (int64_t i = r.tall.begin; i < r.tall.end; i += p.down, --row) {
      int64_t column = wide.out;
      for (int64_t j = wide.begin; j < wide.end; j += p.right, --column) {
        const V grad = load<V>(r.dy + (row * p.columns + column) * C + c);
        const int64_t tap = (i * p.wide + j) * C + c;
        sum += grad * load<V>(p.weight + tap);
        store(r.dw + tap, load<V>(r.dw + tap) + grad * x);
      }
    }
    store(r.dx + at * C + c, masked<RELU>(sum, x));
  });
}

template <bool RELU, int KW, int S, class T>
void backward_row(const Problem<T>& p, const RowOfX<T>& r) {
  int64_t at = 0;
  if constexpr (KW > 0) {
    constexpr int before = (KW - 1) / S, behind = (kPixels - 1) / S;
    const auto is_aligned = [&] { return (at + p.left) % S == 0 && (at + p.left) / S >= before; };
    for (; at < p.width && !is_aligned(); ++at) backward_anywhere<RELU>(p, r, at);
    for (; at + kPixels <= p.width && (at + p.left) / S + behind < p.columns; at += kPixels)
      backward_inside<RELU, KW, S, kPixels>(p, r, at);
    for (; at + S <= p.width && (at + p.left) / S < p.columns; at += S) backward_inside<RELU, KW, S, S>(p, r, at);
  }
  for (; at < p.width; ++at) backward_anywhere<RELU>(p, r, at);
}

// Adds these rows' part of dw, [taps, C], to `total`.
template <bool RELU, int KW, int S, class T>
void backward_rows(const Problem<T>& p, Range rows, double* total) {
  const int64_t C = p.channels, count = p.tall * p.wide * C;
  std::vector<float> dw(count);
  std::vector<T> dropped(p.dx ? 0 : p.width * C);
  int64_t pixels = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t image = row / p.height, at = row * p.width * C;
    T* dx = p.dx ? p.dx + at : dropped.data();
    const T* dy = p.dy + image * p.rows * p.columns * C;
    const Seen tall = seen(row % p.height, p.down, p.top, p.tall, p.rows);
    backward_row<RELU, KW, S>(p, {p.x + at, dy, dx, dw.data(), tall});
    if ((pixels += p.width) < kFloats && row + 1 < rows.end) continue;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      total[i] += dw[i];
      dw[i] = 0;
    }
    pixels = 0;
  }
}

// --- the two layouts ----------------------------------------------------------------------------------

template <class T>
using Rows = void (*)(const Problem<T>&, Range, double*);

// Transposes [a, b] to [b, a] and converts; the row strides of `from` and `to` are in elements.
template <class From, class To>
void turn(const From* from, To* to, int64_t a, int64_t b, int64_t from_row, int64_t to_row) {
  for (int64_t i = 0; i < a; ++i)
    for (int64_t j = 0; j < b; ++j) to[j * to_row + i] = from[i * from_row + j];
}

// sums: [parts, groups of `lanes` channels, taps, lanes]; dweight: [C, taps].
template <class T>
void add_up(const std::vector<double>& sums, T* dweight, int64_t channels, int64_t taps, int64_t lanes) {
  const size_t part = (channels + lanes - 1) / lanes * taps * lanes;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t tap = 0; tap < taps; ++tap) {
      double sum = 0;
      for (size_t at = (c / lanes * taps + tap) * lanes + c % lanes; at < sums.size(); at += part) sum += sums[at];
      dweight[c * taps + tap] = static_cast<float>(sum);
    }
}

// channels_last: each thread has a part of all rows.
template <class T>
void in_rows(const Problem<T>& given, const T* filters, Rows<T> body, T* dweight) {
  Problem<T> p = given;
  const int64_t C = p.channels, taps = p.tall * p.wide, height = dweight ? p.height : p.rows;
  std::vector<float> weight(taps * C);
  turn(filters, weight.data(), C, taps, taps, C);
  p.weight = weight.data();
  const int threads = threads_for(p.images * p.height * p.width * C);
  std::vector<double> sums(dweight ? threads * taps * C : 0);
#pragma omp parallel num_threads(threads)
  body(p, share(p.images * height), sums.data() + omp_get_thread_num() * taps * C);
  if (dweight) add_up(sums, dweight, C, taps, C);
}

// contiguous: each thread converts one vector's width of an image's planes at a time to a small channels_last image of
// floats.
template <class T>
void in_planes(const Problem<T>& p, const T* filters, Rows<float> body, T* dweight) {
  const int64_t C = p.channels, taps = p.tall * p.wide, groups = (C + kLanes - 1) / kLanes;
  const int64_t pixels = p.height * p.width, outputs = p.rows * p.columns;
  std::vector<double> sums(dweight ? p.images * groups * taps * kLanes : 0);
#pragma omp parallel num_threads(threads_for(p.images* C* pixels))
  {
    std::vector<float> x(pixels * kLanes), dx(p.dx ? x.size() : 0), y(outputs * kLanes), weight(taps * kLanes);
    const Problem<float> part = {
        x.data(),  y.data(), weight.data(), y.data(), p.dx ? dx.data() : nullptr, 1, kLanes, p.height, p.width, p.rows,
        p.columns, p.tall,   p.wide,        p.down,   p.right,                    p.top, p.left};
    const Range planes = share(p.images * groups);
    for (int64_t unit = planes.begin; unit < planes.end; ++unit) {
      const int64_t c = unit % groups * kLanes, plane = unit / groups * C + c;
      const int64_t lanes = std::min<int64_t>(kLanes, C - c);
      turn(p.x + plane * pixels, x.data(), lanes, pixels, pixels, kLanes);
      turn(filters + c * taps, weight.data(), lanes, taps, taps, kLanes);
      if (dweight) turn(p.dy + plane * outputs, y.data(), lanes, outputs, outputs, kLanes);
      body(part, {0, dweight ? p.height : p.rows}, sums.data() + unit * taps * kLanes);
      if (!dweight) turn(y.data(), p.y + plane * outputs, outputs, lanes, kLanes, outputs);
      if (p.dx) turn(dx.data(), p.dx + plane * pixels, pixels, lanes, kLanes, pixels);
    }
  }
  if (dweight) add_up(sums, dweight, C, taps, kLanes);
}

template <bool RELU, class T>
Rows<T> forward_of(const Problem<T>& p) {
  if (p.wide == 3 && p.right == 1) return forward_rows<RELU, 3, 1, T>;
  if (p.wide == 3 && p.right == 2) return forward_rows<RELU, 3, 2, T>;
  if (p.wide == 5 && p.right == 1) return forward_rows<RELU, 5, 1, T>;
  if (p.wide == 5 && p.right == 2) return forward_rows<RELU, 5, 2, T>;
  return forward_rows<RELU, 0, 0, T>;
}

template <bool RELU, class T>
Rows<T> backward_of(const Problem<T>& p) {
  if (p.wide == 3 && p.right == 1) return backward_rows<RELU, 3, 1, T>;
  if (p.wide == 3 && p.right == 2) return backward_rows<RELU, 3, 2, T>;
  if (p.wide == 5 && p.right == 1) return backward_rows<RELU, 5, 1, T>;
  if (p.wide == 5 && p.right == 2) return backward_rows<RELU, 5, 2, T>;
  return backward_rows<RELU, 0, 0, T>;
}

// sizes: N, C, H, W; rows and columns of y; height and width of the kernel; its strides; the paddings.
template <class T>
Problem<T> problem(const T* x, const T* dy, T* y, T* dx, const int64_t* s) {
  return {x, dy, nullptr, y, dx, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11]};
}

template <bool RELU, class T>
void forward(const T* x, const T* weight, T* y, const int64_t* s, int last) {
  const Problem<T> p = problem<T>(x, nullptr, y, nullptr, s);
  if (last)
    in_rows<T>(p, weight, forward_of<RELU>(p), nullptr);
  else
    in_planes<T>(p, weight, forward_of<RELU>(problem<float>(nullptr, nullptr, nullptr, nullptr, s)), nullptr);
}

template <bool RELU, class T>
void backward(const T* x, const T* dy, const T* weight, T* dx, T* dweight, const int64_t* s, int last) {
  const Problem<T> p = problem<T>(x, dy, nullptr, dx, s);
  if (last)
    in_rows<T>(p, weight, backward_of<RELU>(p), dweight);
  else
    in_planes<T>(p, weight, backward_of<RELU>(problem<float>(nullptr, nullptr, nullptr, nullptr, s)), dweight);
}

}  // namespace

// dx may be null: then only dweight is computed.
#define DEPTHWISE(T, SUFFIX)                                                                                         \
  ARGOSY_API void argosy_depthwise##SUFFIX(const T* x, const T* weight, T* y, const int64_t* s, int relu, int last) { \
    (relu ? forward<true, T> : forward<false, T>)(x, weight, y, s, last);                                            \
  }                                                                                                                  \
  ARGOSY_API void argosy_depthwise_backward##SUFFIX(const T* x, const T* dy, const T* weight, T* dx, T* dweight,     \
                                                    const int64_t* s, int relu, int last) {                          \
    (relu ? backward<true, T> : backward<false, T>)(x, dy, weight, dx, dweight, s, last);                            \
  }

DEPTHWISE(float, )
DEPTHWISE(bfloat16, _bf16)
