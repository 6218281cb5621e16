// 3x3 convolution with stride 1 by Winograd's minimal filtering, F(2x2, 3x3) and F(4x4, 3x3); float32, channels_last.
//
//   weights            ──▶ u [P][C][O]              once per call; P = 16 or 36 points of a tile
//   a block of tiles   ──▶ v [P][tiles][C]          transform of (m+2)x(m+2) pixels, read in place; padding is zero
//                          v[p] x u[p] = s [P][tiles][O]        P products of matrices
//                      ──▶ y                        transform to m x m pixels
//
// F(2x2) multiplies 2.25 times less than a direct convolution, F(4x4) 4 times. A block passes through all three stages
// in the caches of one core. u is packed in panels of kColumns outputs, as the product reads it. The gradient of the
// input is the same convolution of dy, with rotated weights whose inputs and outputs are exchanged.
//
// The gradient of the weights has 3x3 outputs and m x m taps, dy: the same points, F(3x3, mxm). The products are summed
// over all tiles before they are transformed; each thread sums a part of the tiles, and the sums are added in a fixed order.
// Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "common.h"

namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 12;
#else
constexpr int kLanes = 8, kRows = 6;
#endif
constexpr int kColumns = 2 * kLanes;  // kRows x kColumns sums fit the registers
constexpr int64_t kFew = 24, kMany = 96;  // tiles of a block: few stay in the caches, many reuse weights that do not
constexpr int64_t kCached = 3 << 20;      // bytes of u that stay in the caches
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

inline Vector load(const float* p) { return *reinterpret_cast<const Vector*>(p); }
inline void store(float* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }

struct Problem {
  const float *x, *weight;
  float *u, *y;
  int64_t images, channels, height, width;         // of x
  int64_t outputs, rows, columns, top, left;       // of y; padding
  const float* dy;                                 // for the gradient of the weights
};

// --- one dimension of the transforms ------------------------------------------------------------------

template <int M>
struct Transform;

template <>
struct Transform<2> {
  static inline void input(const Vector* d, Vector* t) {
    t[0] = d[0] - d[2];
    t[1] = d[1] + d[2];
    t[2] = d[2] - d[1];
    t[3] = d[1] - d[3];
  }
  static inline void weight(const Vector* g, Vector* t) {
    const Vector sum = 0.5f * (g[0] + g[2]), half = 0.5f * g[1];
    t[0] = g[0];
    t[1] = sum + half;
    t[2] = sum - half;
    t[3] = g[2];
  }
  static inline void output(const Vector* s, Vector* y) {
    y[0] = s[0] + s[1] + s[2];
    y[1] = s[1] - s[2] - s[3];
  }
  static inline void gradient(const Vector* g, Vector* t) {
    t[0] = g[0];
    t[1] = 0.5f * (g[0] + g[1]);
    t[2] = 0.5f * (g[0] - g[1]);
    t[3] = -g[1];
  }
  static inline void taps(const Vector* s, Vector* w) {
    w[0] = s[0] + s[1] + s[2];
    w[1] = s[1] - s[2];
    w[2] = s[1] + s[2] + s[3];
  }
};

template <>
struct Transform<4> {
  static inline void input(const Vector* d, Vector* t) {
    const Vector a = d[4] - 4.0f * d[2], b = d[3] - 4.0f * d[1], c = d[4] - d[2], e = 2.0f * (d[3] - d[1]);
    t[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
  }
  static inline void weight(const Vector* g, Vector* t) {
    const Vector sum = (g[0] + g[2]) * (-1.0f / 6), mid = g[1] * (1.0f / 6);
    const Vector far = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), near = g[1] * (1.0f / 12);
    t[0] = 0.25f * g[0];
    t[1] = sum - mid;
    t[2] = sum + mid;
    t[3] = far + near;
    t[4] = far - near;
    t[5] = g[2];
  }
  static inline void output(const Vector* s, Vector* y) {
    const Vector a = s[1] + s[2], b = s[1] - s[2], c = s[3] + s[4], d = s[3] - s[4];
    y[0] = s[0] + a + c;
    y[1] = b + 2.0f * d;
    y[2] = a + 4.0f * c;
    y[3] = b + 8.0f * d + s[5];
  }
  static inline void gradient(const Vector* g, Vector* t) {
    const Vector even = (g[0] + g[2]) * (-1.0f / 6), odd = (g[1] + g[3]) * (-1.0f / 6);
    const Vector far = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), near = g[1] * (1.0f / 12) + g[3] * (1.0f / 3);
    t[0] = 0.25f * g[0];
    t[1] = even + odd;
    t[2] = even - odd;
    t[3] = far + near;
    t[4] = far - near;
    t[5] = g[3];
  }
  static inline void taps(const Vector* s, Vector* w) {
    const Vector a = s[1] + s[2], c = s[3] + s[4];
    w[0] = s[0] + a + c;
    w[1] = s[1] - s[2] + 2.0f * (s[3] - s[4]);
    w[2] = a + 4.0f * c + s[5];
  }
};

// --- weights ------------------------------------------------------------------------------------------

// The transform of the 3x3 weights at `base`, of kLanes inputs; rotated for the gradient of the input.
template <int M, bool ROTATED>
inline void weight_tile(const float* base, int64_t channels, Vector (*t)[M + 2]) {
  Vector half[M + 2][3];
  for (int j = 0; j < 3; ++j) {
    Vector g[3], column[M + 2];
    for (int i = 0; i < 3; ++i) {
      const int tap = i * 3 + j;
      g[i] = load(base + (ROTATED ? 8 - tap : tap) * channels);
    }
    Transform<M>::weight(g, column);
    for (int i = 0; i < M + 2; ++i) half[i][j] = column[i];
  }
  for (int i = 0; i < M + 2; ++i) Transform<M>::weight(half[i], t[i]);
}

// The points of kLanes channels and kColumns outputs.
template <int M>
using Points = float[(M + 2) * (M + 2)][kLanes][kColumns];

template <int M>
inline void weight_block(const Problem& p, int64_t first, int64_t c, Points<M>& points) {
  constexpr int A = M + 2;
  for (int o = 0; o < kColumns; ++o) {
    Vector t[A][A];
    weight_tile<M, false>(p.weight + (first + o) * 9 * p.channels + c, p.channels, t);
    for (int k = 0; k < A * A; ++k)
      for (int lane = 0; lane < kLanes; ++lane) points[k][lane][o] = t[k / A][k % A][lane];
  }
}

// For the gradient of the input: the weights' outputs are the channels here, and their inputs the outputs.
template <int M>
inline void rotated_block(const Problem& p, int64_t first, int64_t c, Points<M>& points) {
  constexpr int A = M + 2;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int o = 0; o < kColumns; o += kLanes) {
      Vector t[A][A];
      weight_tile<M, true>(p.weight + (c + lane) * 9 * p.outputs + first + o, p.outputs, t);
      for (int k = 0; k < A * A; ++k) store(points[k][lane] + o, t[k / A][k % A]);
    }
}

// Weights [O][3][3][C] to u [P][O / kColumns][C][kColumns]. By blocks, because the points of one weight are apart by a
// power of two, and would evict each other from the caches.
template <int M>
void transform_weights(const Problem& p, bool is_rotated) {
  const int64_t strips = p.channels / kLanes, blocks = p.outputs / kColumns * strips;
#pragma omp parallel for schedule(static)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block / strips * kColumns, c = block % strips * kLanes;
    Points<M> points;
    is_rotated ? rotated_block<M>(p, first, c, points) : weight_block<M>(p, first, c, points);
    for (int64_t k = 0; k < (M + 2) * (M + 2); ++k)
      std::memcpy(p.u + (k * p.outputs + first) * p.channels + c * kColumns, points[k], sizeof points[k]);
  }
}

// --- tiles --------------------------------------------------------------------------------------------

struct Tile {
  int64_t image, row, column;  // of the first output pixel
};

template <int M>
inline Tile tile_at(const Problem& p, int64_t number) {
  const int64_t across = (p.columns + M - 1) / M, down = (p.rows + M - 1) / M;
  return {number / (across * down), number / across % down * M, number % across * M};
}

// v[k * plane + c] = point k of the tile's input, for all channels.
template <int M>
void transform_input(const Problem& p, const Tile& tile, float* v, int64_t plane) {
  constexpr int A = M + 2;
  const int64_t row = tile.row - p.top, column = tile.column - p.left;
  const float* base = p.x + ((tile.image * p.height + row) * p.width + column) * p.channels;
  for (int64_t c = 0; c < p.channels; c += kLanes) {
    Vector half[A][A];
    for (int j = 0; j < A; ++j) {
      const bool is_column = column + j >= 0 && column + j < p.width;
      Vector d[A], t[A];
      for (int i = 0; i < A; ++i) {
        const bool is_pixel = is_column && row + i >= 0 && row + i < p.height;
        d[i] = is_pixel ? load(base + (i * p.width + j) * p.channels + c) : Vector{};
      }
      Transform<M>::input(d, t);
      for (int i = 0; i < A; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < A; ++i) {
      Vector t[A];
      Transform<M>::input(half[i], t);
      for (int j = 0; j < A; ++j) store(v + (i * A + j) * plane + c, t[j]);
    }
  }
}

template <int M>
void transform_output(const Problem& p, const Tile& tile, const float* s, int64_t plane) {
  constexpr int A = M + 2;
  const int64_t rows = std::min<int64_t>(M, p.rows - tile.row), columns = std::min<int64_t>(M, p.columns - tile.column);
  float* base = p.y + ((tile.image * p.rows + tile.row) * p.columns + tile.column) * p.outputs;
  for (int64_t o = 0; o < p.outputs; o += kLanes) {
    Vector half[M][A];
    for (int j = 0; j < A; ++j) {
      Vector d[A], t[M];
      for (int i = 0; i < A; ++i) d[i] = load(s + (i * A + j) * plane + o);
      Transform<M>::output(d, t);
      for (int i = 0; i < M; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < rows; ++i) {
      Vector t[M];
      Transform<M>::output(half[i], t);
      for (int j = 0; j < columns; ++j) store(base + (i * p.columns + j) * p.outputs + o, t[j]);
    }
  }
}

// --- products -----------------------------------------------------------------------------------------

// s[R][kColumns] = v[R][C] x u[C][kColumns]
template <int R>
inline void product(const float* v, const float* u, int64_t channels, float* s, int64_t outputs) {
  Vector sums[R][2] = {};
  for (int64_t c = 0; c < channels; ++c) {
    const Vector first = load(u + c * kColumns), second = load(u + c * kColumns + kLanes);
    for (int r = 0; r < R; ++r) {
      sums[r][0] += v[r * channels + c] * first;
      sums[r][1] += v[r * channels + c] * second;
    }
  }
  for (int r = 0; r < R; ++r) {
    store(s + r * outputs, sums[r][0]);
    store(s + r * outputs + kLanes, sums[r][1]);
  }
}

template <int R>
inline void product_of(int64_t rows, const float* v, const float* u, int64_t channels, float* s, int64_t outputs) {
  if constexpr (R > 1)
    if (rows < R) return product_of<R - 1>(rows, v, u, channels, s, outputs);
  product<R>(v, u, channels, s, outputs);
}

// A block of tiles, from x to y; `v` is memory for the points of input and output.
template <int M>
void convolve(const Problem& p, int64_t begin, int64_t count, int64_t block, float* v) {
  constexpr int P = (M + 2) * (M + 2);
  const int64_t in = block * p.channels, out = block * p.outputs;
  float* s = v + P * in;
  for (int64_t t = 0; t < count; ++t) transform_input<M>(p, tile_at<M>(p, begin + t), v + t * p.channels, in);
  for (int64_t k = 0; k < P; ++k)
    for (int64_t o = 0; o < p.outputs; o += kColumns)
      for (int64_t t = 0; t < count; t += kRows)
        product_of<kRows>(count - t, v + k * in + t * p.channels, p.u + (k * p.outputs + o) * p.channels, p.channels,
                          s + k * out + t * p.outputs + o, p.outputs);
  for (int64_t t = 0; t < count; ++t) transform_output<M>(p, tile_at<M>(p, begin + t), s + t * p.outputs, out);
}

template <int M>
void run(const Problem& p, bool is_rotated) {
  constexpr int P = (M + 2) * (M + 2);
  transform_weights<M>(p, is_rotated);
  const int64_t tiles = p.images * ((p.columns + M - 1) / M) * ((p.rows + M - 1) / M);
  const bool is_cached = P * p.channels * p.outputs * int64_t{sizeof(float)} <= kCached;
  const int64_t each = (tiles + omp_get_max_threads() - 1) / omp_get_max_threads();
  const int64_t wanted = std::min(is_cached ? kFew : kMany, each);
  const int64_t block = (wanted + kRows - 1) / kRows * kRows, blocks = (tiles + block - 1) / block;
#pragma omp parallel
  {
    const size_t bytes = P * block * (p.channels + p.outputs) * sizeof(float);  // a multiple of 64
    float* v = static_cast<float*>(std::aligned_alloc(64, bytes));
#pragma omp for schedule(dynamic)
    for (int64_t b = 0; b < blocks; ++b) convolve<M>(p, b * block, std::min(block, tiles - b * block), block, v);
    std::free(v);
  }
}

// --- the gradient of the weights ----------------------------------------------------------------------

// d[k * plane + o] = point k of the tile's gradient, for all outputs. Pixels outside of y are zero.
template <int M>
void transform_gradient(const Problem& p, const Tile& tile, float* d, int64_t plane) {
  constexpr int A = M + 2;
  const float* base = p.dy + ((tile.image * p.rows + tile.row) * p.columns + tile.column) * p.outputs;
  for (int64_t o = 0; o < p.outputs; o += kLanes) {
    Vector half[A][M];
    for (int j = 0; j < M; ++j) {
      Vector g[M], t[A];
      for (int i = 0; i < M; ++i) {
        const bool is_pixel = tile.row + i < p.rows && tile.column + j < p.columns;
        g[i] = is_pixel ? load(base + (i * p.columns + j) * p.outputs + o) : Vector{};
      }
      Transform<M>::gradient(g, t);
      for (int i = 0; i < A; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < A; ++i) {
      Vector t[A];
      Transform<M>::gradient(half[i], t);
      for (int j = 0; j < A; ++j) store(d + (i * A + j) * plane + o, t[j]);
    }
  }
}

// s[R][kColumns] += the sum over tiles of d[R] x v[kColumns]
template <int R>
inline void add_product(int64_t tiles, const float* d, int64_t outputs, const float* v, int64_t channels, float* s) {
  Vector sums[R][2];
  for (int r = 0; r < R; ++r) {
    sums[r][0] = load(s + r * channels);
    sums[r][1] = load(s + r * channels + kLanes);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const Vector first = load(v + t * channels), second = load(v + t * channels + kLanes);
    for (int r = 0; r < R; ++r) {
      sums[r][0] += d[t * outputs + r] * first;
      sums[r][1] += d[t * outputs + r] * second;
    }
  }
  for (int r = 0; r < R; ++r) {
    store(s + r * channels, sums[r][0]);
    store(s + r * channels + kLanes, sums[r][1]);
  }
}

template <int R>
inline void add_product_of(int64_t rows, int64_t tiles, const float* d, int64_t outputs, const float* v,
                           int64_t channels, float* s) {
  if constexpr (R > 1)
    if (rows < R) return add_product_of<R - 1>(rows, tiles, d, outputs, v, channels, s);
  add_product<R>(tiles, d, outputs, v, channels, s);
}

// s [P][O][C] += the products of a block of tiles; `v` is memory for the points of x and dy.
template <int M>
void accumulate(const Problem& p, int64_t begin, int64_t count, int64_t block, float* v, float* s) {
  constexpr int P = (M + 2) * (M + 2);
  const int64_t in = block * p.channels, out = block * p.outputs;
  float* d = v + P * in;
  for (int64_t t = 0; t < count; ++t) {
    transform_input<M>(p, tile_at<M>(p, begin + t), v + t * p.channels, in);
    transform_gradient<M>(p, tile_at<M>(p, begin + t), d + t * p.outputs, out);
  }
  for (int64_t k = 0; k < P; ++k)
    for (int64_t c = 0; c < p.channels; c += kColumns)
      for (int64_t o = 0; o < p.outputs; o += kRows)
        add_product_of<kRows>(p.outputs - o, count, d + k * out + o, p.outputs, v + k * in + c, p.channels,
                              s + (k * p.outputs + o) * p.channels + c);
}

// dw [O][3][3][C] from the sums of all threads.
template <int M>
void transform_taps(const Problem& p, int64_t o, const float* s, int64_t threads, float* dw) {
  constexpr int A = M + 2;
  const int64_t size = p.outputs * p.channels;
  for (int64_t c = 0; c < p.channels; c += kLanes) {
    Vector half[3][A];
    for (int j = 0; j < A; ++j) {
      Vector d[A], t[3];
      for (int i = 0; i < A; ++i) {
        const float* at = s + (i * A + j) * size + o * p.channels + c;
        d[i] = load(at);
        for (int64_t thread = 1; thread < threads; ++thread) d[i] += load(at + thread * A * A * size);
      }
      Transform<M>::taps(d, t);
      for (int i = 0; i < 3; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < 3; ++i) {
      Vector t[3];
      Transform<M>::taps(half[i], t);
      for (int j = 0; j < 3; ++j) store(dw + (o * 9 + i * 3 + j) * p.channels + c, t[j]);
    }
  }
}

template <int M>
void run_of_weight(const Problem& p, float* dw, int64_t threads) {
  constexpr int P = (M + 2) * (M + 2);
  const int64_t tiles = p.images * ((p.columns + M - 1) / M) * ((p.rows + M - 1) / M);
  const int64_t size = P * p.outputs * p.channels;
  const int64_t block = size * int64_t{sizeof(float)} <= kCached ? 2 * kFew : 2 * kMany;  // sums are read and written
#pragma omp parallel num_threads(threads)
  {
    float* s = p.u + omp_get_thread_num() * size;
    std::fill(s, s + size, 0.0f);
    const size_t bytes = P * block * (p.channels + p.outputs) * sizeof(float);
    float* v = static_cast<float*>(std::aligned_alloc(64, bytes));
    const Range part = share(tiles);
    for (int64_t t = part.begin; t < part.end; t += block)
      accumulate<M>(p, t, std::min(block, part.end - t), block, v, s);
    std::free(v);
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t o = 0; o < p.outputs; ++o) transform_taps<M>(p, o, p.u, omp_get_num_threads(), dw);
  }
}

}  // namespace

// sizes: images, channels, height, width, outputs, rows, columns, top, left. tile: 2 or 4. u: (tile + 2)^2 * C * O.
// Channels and outputs are multiples of 32.
ARGOSY_API void argosy_winograd(const float* x, const float* weight, float* u, float* y, const int64_t* sizes, int tile,
                                int is_rotated) {
  const Problem p{x,        weight,   u,        y,        sizes[0], sizes[1], sizes[2],
                  sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], nullptr};
  tile == 2 ? run<2>(p, is_rotated) : run<4>(p, is_rotated);
}

// The gradient of the weights. sums: (tile + 2)^2 * C * O for each of the threads.
ARGOSY_API void argosy_winograd_of_weight(const float* x, const float* dy, float* sums, float* dweight,
                                          const int64_t* sizes, int tile, int threads) {
  const Problem p{x,        nullptr,  sums,     nullptr,  sizes[0], sizes[1], sizes[2],
                  sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], dy};
  tile == 2 ? run_of_weight<2>(p, dweight, threads) : run_of_weight<4>(p, dweight, threads);
}
