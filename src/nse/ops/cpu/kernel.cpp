// Equations 1-15 on a CPU in float32: all steps of a batch, forward and backward, in one call.
//
// Compiled once per instruction set (-DISA=avx512 ...) and linked into one library with a plain C interface.
// ops/README.md explains the layout and derives the backward pass. Three rules keep results the same to the
// bit whatever the batch, the padding and the number of threads:
//   1. A row's sums never depend on the rows or threads beside it.
//   2. A memory is read in blocks of slots that begin at fixed places; their parts are joined in order.
//   3. -ffp-contract=off: what is fused is written as `fma`.
//
// Letters are the paper's: B sequences of T words, size k, memories of S slots in all. Rows of k numbers are
// padded to K = 16 ceil(k / 16), the padding is zero; a row of several parts (gates, c_t) has parts of K.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define EXPORT_INT(name) __attribute__((visibility("default"))) int JOIN(nse_##name##_, ISA)
#define EXPORT_SIZE(name) __attribute__((visibility("default"))) int64_t JOIN(nse_##name##_, ISA)
#define INLINE inline __attribute__((always_inline))

struct OpenMP {  // functions of the OpenMP runtime that PyTorch uses, or null
  void (*run)(void (*f)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
  int (*count_threads)();                                                       // omp_get_num_threads
};

struct Call {  // the same fields, in the same order, as `Call` in call.py
  int64_t B, T, k, layers, memories, S, threads, folded, keep, half;
  const int64_t* lengths;       // [B]
  const int64_t* slot_sizes;    // [memories], with padding
  const int64_t* slot_lengths;  // [memories, B], without
  const float* const* weights;  // of each read layer ih, hh, bias_ih, bias_hh; compose, its bias; write layers
  float* const* d_weights;      // gradients in the same order; null where not needed
  float* packed;                // the weights as `pack` writes them
  const float *x, *mask, *slots;                       // [B, T, k], [B, T, d] or null, [B, S, k]
  const float *read_h, *read_c, *write_h, *write_c;    // [layers, B, k], or null for zeros
  float* kept;                                         // for the backward pass; null without `keep`
  float *outputs, *memory, *keys;                      // [B, T, k], [B, S, k], [B, T, S] or null
  float *read_h_end, *read_c_end, *write_h_end, *write_c_end;  // [layers, B, k]
  const float *d_outputs, *d_memory, *d_keys;          // gradients of the results, or null for zeros
  const float *d_read_h_end, *d_read_c_end, *d_write_h_end, *d_write_c_end;
  float *d_x, *d_slots, *d_read_h, *d_read_c, *d_write_h, *d_write_c;
  OpenMP openmp;
};

namespace {

// ---- Vectors -------------------------------------------------------------------------------------------

// LANES numbers to a vector; sums of ROWS rows by WIDTH vectors are what the registers hold.
#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 6, WIDTH = 4;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6, WIDTH = 2;
#elif defined(__aarch64__)
constexpr int LANES = 4, ROWS = 6, WIDTH = 4;
#else
constexpr int LANES = 4, ROWS = 4, WIDTH = 2;
#endif

typedef float V __attribute__((vector_size(4 * LANES)));
typedef int32_t VInt __attribute__((vector_size(4 * LANES)));
typedef float VUnaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE V load(const float* p) { return *reinterpret_cast<const VUnaligned*>(p); }
INLINE void store(float* p, V v) { *reinterpret_cast<VUnaligned*>(p) = v; }
INLINE V splat(float x) { return x - V{}; }

INLINE V fma(V a, V b, V c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

INLINE float sum(V v) {  // in a fixed order: halves, quarters, ...
  float a[LANES];
  std::memcpy(a, &v, sizeof a);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  return a[0];
}

// Errors over all of float32: exp 1.1 ulp, sigmoid 2.9 ulp, tanh 1.4 ulp (tests/ops/test_cpu_functions.py).
INLINE V exp(V x) {
  x = x < -104.0f ? splat(-104.0f) : x;  // NaN stays: it is not below anything
  x = x > 89.0f ? splat(89.0f) : x;
  const V n = fma(x, splat(1.44269504f), splat(12582912.0f)) - 12582912.0f;  // rounded x / ln 2
  V r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  V p = splat(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fma(p, r, splat(c));
  p = fma(p, r * r, r) + 1.0f;
  const VInt exponent = __builtin_convertvector(n, VInt), half = exponent >> 1;
  const V low = reinterpret_cast<V>((half + 127) << 23);  // in two factors: 2^n alone may not be a float
  const V high = reinterpret_cast<V>((exponent - half + 127) << 23);
  return p * low * high;
}

INLINE V absolute(V x) { return reinterpret_cast<V>(reinterpret_cast<VInt>(x) & 0x7fffffff); }

INLINE V sigmoid(V x) {
  const V e = exp(-absolute(x)), r = 1.0f / (1.0f + e);
  return x < 0.0f ? e * r : r;
}

INLINE V tanh(V x) {
  const V a = absolute(x), square = x * x;
  V p = splat(-5.70498872745e-3f);
  for (float c : {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f})
    p = fma(p, square, splat(c));
  const V small = fma(p * square, x, x);
  const V large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const V signed_large = x < 0.0f ? -large : large;
  return a < 0.625f ? small : signed_large;
}

// ---- Products ------------------------------------------------------------------------------------------

// Weights are packed in panels of up to four vectors of columns: for each row of the matrix its part of the
// panel, one after the other. The four vectors of a panel of `cells` are the four gates of the same units.

// With `half` weights and inputs are rounded to bfloat16, which AVX512_BF16 multiplies in pairs at twice the
// speed: rows of the matrix, and of the inputs, come in pairs, and each part has an even number of them.

struct Matrix {
  const float* panels;
  int rows, vectors;  // rows of all its inputs, or pairs of rows; vectors of columns
  bool gates, half;
};

struct Input {  // rows of `parts` parts of k numbers, K apart; or of pairs without a gap
  const float* const* rows;
  int parts;
};

struct Sizes {
  int k, K, n, d, S;  // d: parts of c_t, one more than memories n
  bool half = false;
  int pairs() const { return (k + 1) / 2; }
};

// Adds sum_i a(r, i) b_i to R rows of sums; b_i are G vectors, one i after the other. `multiply` is fma.
template <int R, int G, int FROM = 0, class Numbers, class Multiply>
INLINE void add_products(V (&sums)[R][G], int count, const float* b, const Numbers& a, const Multiply& multiply) {
  constexpr int AT_ONCE = R <= 2 ? 4 : WIDTH, N = G - FROM < AT_ONCE ? G - FROM : AT_ONCE;
  V part[R][N];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < N; ++g) part[r][g] = sums[r][FROM + g];
  const float* next = b + FROM * LANES;
#pragma GCC unroll 4
  for (int i = 0; i < count; ++i, next += G * LANES) {
    V vectors[N];
    for (int g = 0; g < N; ++g) vectors[g] = load(next + g * LANES);
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < N; ++g) part[r][g] = multiply(splat(a(r, i)), vectors[g], part[r][g]);
  }
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < N; ++g) sums[r][FROM + g] = part[r][g];
  if constexpr (FROM + N < G) add_products<R, G, FROM + N>(sums, count, b, a, multiply);
}

#if defined(__AVX512F__)
INLINE V multiply_pairs(V a, V b, V sum) {  // written as text: the rest of this object runs without AVX512_BF16
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}

bool supports_half() { return __builtin_cpu_supports("avx512bf16"); }
#else
INLINE V multiply_pairs(V, V, V sum) { return sum; }

bool supports_half() { return false; }
#endif

INLINE uint16_t round_to_half(float x) {  // to bfloat16, to the nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The inputs of rows `from` to `to`, rounded if the matrix is.
struct Operands {
  Input inputs[2];
  std::vector<float> words;
  std::vector<const float*> rows[2];

  Operands(const Sizes& s, const Matrix& W, const Input* in, int count, int from, int to) {
    if (!W.half) {
      for (int j = 0; j < count; ++j) inputs[j] = {in[j].rows + from, in[j].parts};
      return;
    }
    int parts = 0;
    for (int j = 0; j < count; ++j) parts += in[j].parts;
    words.resize(static_cast<size_t>(to - from) * parts * s.pairs());
    float* next = words.data();
    for (int j = 0; j < count; ++j) {
      for (int row = from; row < to; ++row) {
        rows[j].push_back(next);
        for (int part = 0; part < in[j].parts; ++part, next += s.pairs()) {
          const float* numbers = in[j].rows[row] + static_cast<ptrdiff_t>(part) * s.K;
          uint16_t* halves = reinterpret_cast<uint16_t*>(next);
          for (int i = 0; i < s.k; ++i) halves[i] = round_to_half(numbers[i]);
          if (s.k % 2) halves[s.k] = 0;
        }
      }
      inputs[j] = {rows[j].data(), in[j].parts};
    }
  }
};

template <int R, int G>
INLINE void multiply_inputs(V (&sums)[R][G], const Sizes& s, const Matrix& W, const Input* inputs, int count, int row,
                            const float* panel) {
  for (int j = 0; j < count; ++j)
    for (int part = 0; part < inputs[j].parts; ++part) {
      const int length = W.half ? s.pairs() : s.k;
      const float* a[R];
      for (int r = 0; r < R; ++r) a[r] = inputs[j].rows[row + r] + static_cast<ptrdiff_t>(part) * (W.half ? length : s.K);
      const auto get = [&](int r, int i) { return a[r][i]; };
      if (W.half) add_products(sums, length, panel, get, multiply_pairs);
      else add_products(sums, length, panel, get, fma);
      panel += static_cast<ptrdiff_t>(length) * G * LANES;
    }
}

// Calls f with `count`, at most R, as a constant.
template <int R = ROWS, class F>
INLINE void with_rows(int count, const F& f) {
  if constexpr (R > 1) {
    if (count < R) return with_rows<R - 1>(count, f);
  }
  f(std::integral_constant<int, R>());
}

// Divides rows into tiles of about the same size, and calls f with the first row of each and its size.
template <class F>
INLINE void each_tile(int from, int to, const F& f) {
  for (int tiles = (to - from + ROWS - 1) / ROWS; tiles; --tiles) {
    const int count = (to - from + tiles - 1) / tiles;
    with_rows(count, [&](auto R) { f(from, R); });
    from += count;
  }
}

struct Share {  // what one of several threads does of a number of things
  int from, to;
  Share(int count, int me, int of)
      : from(static_cast<int>(static_cast<int64_t>(count) * me / of)),
        to(static_cast<int>(static_cast<int64_t>(count) * (me + 1) / of)) {}
};

struct Linear {  // out = W inputs + bias, or out += W inputs
  Sizes s;
  Matrix W;
  const Input* inputs;
  int count;
  const float* bias;  // or null: add to what is there
  float* const* out;

  template <int R, int G>
  INLINE void tile(const Input* in, int from, int row, int panel) const {
    const int column = panel * 4 * LANES;
    V acc[R][G];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g) acc[r][g] = load((bias ? bias : out[row + r]) + column + g * LANES);
    const float* weights = W.panels + static_cast<ptrdiff_t>(W.rows) * column;
    multiply_inputs<R, G>(acc, s, W, in, count, row - from, weights);
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < G; ++g) store(out[row + r] + column + g * LANES, acc[r][g]);
  }

  template <int G>
  void rows(const Input* in, int from, int to, int panel) const {
    each_tile(from, to, [&](int row, auto R) { tile<R.value, G>(in, from, row, panel); });
  }

  void run(int total, int me, int of) const {
    constexpr int AT_ONCE = 96;  // rows that stay in the second-level cache
    const Share panels((W.vectors + 3) / 4, me, of);
    for (int from = 0; from < total; from += AT_ONCE) {
      const int to = std::min(total, from + AT_ONCE);
      const Operands operands(s, W, inputs, count, from, to);
      for (int p = panels.from; p < panels.to; ++p) switch (std::min(4, W.vectors - 4 * p)) {
          case 4: rows<4>(operands.inputs, from, to, p); break;
          case 3: rows<3>(operands.inputs, from, to, p); break;
          case 2: rows<2>(operands.inputs, from, to, p); break;
          default: rows<1>(operands.inputs, from, to, p);
        }
    }
  }
};

struct Cells {  // a step of an LSTM layer, for rows of different sequences
  Sizes s;
  Matrix W;
  const Input* inputs;
  int count;
  const float* bias;             // or null: the gates hold what is to be added
  float* const *gates, *const *h;  // gates: their activations if `keep`
  const float* const* c_before;
  float* const* c;
  bool keep;

  template <int R>
  INLINE void tile(const Input* in, int row, int panel) const {
    const int unit = panel * LANES;
    V a[R][4];
    for (int r = 0; r < R; ++r)
      for (int g = 0; g < 4; ++g) a[r][g] = load((bias ? bias : gates[row + r]) + g * s.K + unit);
    const float* weights = W.panels + static_cast<ptrdiff_t>(W.rows) * 4 * unit;
    multiply_inputs<R, 4>(a, s, W, in, count, row, weights);
    for (int r = 0; r < R; ++r) {
      const V i = sigmoid(a[r][0]), f = sigmoid(a[r][1]), g = tanh(a[r][2]), o = sigmoid(a[r][3]);
      const V cell = fma(f, load(c_before[row + r] + unit), i * g);
      store(c[row + r] + unit, cell);
      store(h[row + r] + unit, o * tanh(cell));
      if (keep) {
        float* to = gates[row + r] + unit;
        store(to, i), store(to + s.K, f), store(to + 2 * s.K, g), store(to + 3 * s.K, o);
      }
    }
  }

  void run(int total, bool backwards, int me, int of) const {
    const Share panels(s.K / LANES, me, of);
    const Operands operands(s, W, inputs, count, 0, total);
    for (int i = panels.from; i < panels.to; ++i) {
      // Every other step in the other direction: what the cache still holds of the weights comes first.
      const int p = backwards ? panels.to - 1 - (i - panels.from) : i;
      each_tile(0, total, [&](int row, auto R) { tile<R.value>(operands.inputs, row, p); });
    }
  }
};

// ---- Packing -------------------------------------------------------------------------------------------

struct Packing {  // where a matrix lies in `packed`; counting and packing walk through it in the same order
  Sizes s;
  float* base;  // null: only count
  size_t used = 0;
  int me = 0, of = 1;

  float* take(size_t count) {
    float* place = base ? base + used : nullptr;
    used += count;
    return place;
  }

  // Packs columns of one or two matrices that share columns, [rows of the first ; rows of the second]. Entry
  // (row, column) of W is at row * row_step + column * column_step. A column part of k becomes one of K.
  struct Source {
    const float* W;
    int rows;
    ptrdiff_t row_step, column_step;
  };

  Matrix add(int parts, bool gates, Source a, Source b = {nullptr, 0, 0, 0}) {
    const int rows = a.rows + b.rows, vectors = parts * s.K / LANES;
    const int stored = s.half ? rows / s.k * s.pairs() : rows;
    float* to = take(static_cast<size_t>(stored) * parts * s.K);
    if (to && a.W) {
      std::vector<float> wide(s.half ? static_cast<size_t>(rows) * 4 * LANES : 0);
      const Share share((vectors + 3) / 4, me, of);
      for (int p = share.from; p < share.to; ++p) {
        const int width = std::min(4, vectors - 4 * p);
        float *place = to + static_cast<size_t>(stored) * 4 * p * LANES, *panel = s.half ? wide.data() : place;
        for (const Source& source : {a, b}) {
          for (int g = 0; g < width; ++g)
            copy(panel + g * LANES, width * LANES, source, gates ? g * s.K / LANES + p : 4 * p + g);
          panel += static_cast<size_t>(source.rows) * width * LANES;
        }
        if (s.half) round_panel(place, wide.data(), rows, width * LANES);
      }
    }
    return {to, stored, vectors, gates, s.half};
  }

  void round_panel(float* to, const float* panel, int rows, int width) const {
    uint16_t* halves = reinterpret_cast<uint16_t*>(to);
    for (int part = 0; part < rows; part += s.k)
      for (int row = part; row < part + s.k; row += 2)
        for (int i = 0; i < width; ++i) {
          *halves++ = round_to_half(panel[row * width + i]);
          *halves++ = row + 1 < part + s.k ? round_to_half(panel[(row + 1) * width + i]) : 0;
        }
  }

  void copy(float* to, int step, const Source& source, int vector) const {
    const int part = vector * LANES / s.K, first = vector * LANES % s.K;
    const int lanes = std::max(0, std::min(LANES, s.k - first));
    const float* from = source.W + (static_cast<ptrdiff_t>(part) * s.k + first) * source.column_step;
    if (lanes == LANES && source.column_step == 1) {
      for (int row = 0; row < source.rows; ++row) store(to + row * step, load(from + row * source.row_step));
    } else if (lanes == LANES && source.row_step == 1) {
      int row = 0;
      for (; row + 4 <= source.rows; row += 4)
        for (int i = 0; i < LANES; i += 4)
          transpose(to + row * step + i, step, from + i * source.column_step + row, source.column_step);
      for (; row < source.rows; ++row)
        for (int i = 0; i < LANES; ++i) to[row * step + i] = from[i * source.column_step + row];
    } else {
      for (int row = 0; row < source.rows; ++row)
        for (int i = 0; i < LANES; ++i)
          to[row * step + i] = i < lanes ? from[row * source.row_step + i * source.column_step] : 0;
    }
  }

  static INLINE void transpose(float* to, ptrdiff_t to_step, const float* from, ptrdiff_t from_step) {  // 4 by 4
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
    const auto at = [&](int i) { return *reinterpret_cast<const Four*>(from + i * from_step); };
    const Four a = at(0), b = at(1), c = at(2), d = at(3);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const auto put = [&](int i, Four row) { *reinterpret_cast<Four*>(to + i * to_step) = row; };
    put(0, __builtin_shufflevector(ab, cd, 0, 1, 4, 5)), put(1, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    put(2, __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5)), put(3, __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7));
  }

  const float* add_bias(int parts, const float* a, const float* b) {
    float* to = take(static_cast<size_t>(parts) * s.K);
    if (to && a && me == 0)
      for (int part = 0; part < parts; ++part)
        for (int i = 0; i < s.K; ++i)
          to[part * s.K + i] = i < s.k ? a[part * s.k + i] + (b ? b[part * s.k + i] : 0) : 0;
    return to;
  }
};

constexpr int MAX_LAYERS = 4;

struct LayerWeights {
  const float *ih, *hh, *bias_ih, *bias_hh;
};

struct RawWeights {
  LayerWeights read[MAX_LAYERS], write[MAX_LAYERS];
  const float *compose = nullptr, *compose_bias = nullptr;

  RawWeights() : read{}, write{} {}
  explicit RawWeights(const Call& call) : RawWeights() {
    const float* const* next = call.weights;
    for (int i = 0; i < call.layers; ++i, next += 4) read[i] = {next[0], next[1], next[2], next[3]};
    compose = next[0], compose_bias = next[1], next += 2;
    for (int i = 0; i < call.layers; ++i, next += 4) write[i] = {next[0], next[1], next[2], next[3]};
  }
};

struct ForwardWeights {
  Matrix read_x[MAX_LAYERS], read_h[MAX_LAYERS], write[MAX_LAYERS], from_o, from_m;
  const float *read_bias[MAX_LAYERS], *write_bias[MAX_LAYERS], *bias_o;

  // With `folded`, `compose` is W_ih times the matrix of compose, and its bias that of the gates.
  ForwardWeights(const Call& call, const RawWeights& raw, Packing& packing) {
    const Sizes s = packing.s;
    const int k = s.k, width = s.d * k;
    for (int i = 0; i < call.layers; ++i) {
      read_x[i] = packing.add(4, false, {raw.read[i].ih, k, 1, k});
      read_h[i] = packing.add(4, true, {raw.read[i].hh, k, 1, k});
      read_bias[i] = packing.add_bias(4, raw.read[i].bias_ih, raw.read[i].bias_hh);
    }
    const float* W_m = raw.compose ? raw.compose + k : nullptr;
    from_o = packing.add(call.folded ? 4 : s.d, false, {raw.compose, k, 1, width});
    bias_o = packing.add_bias(call.folded ? 4 : s.d, raw.compose_bias, nullptr);
    if (call.folded)
      write[0] = packing.add(4, true, {W_m, s.n * k, 1, width}, {raw.write[0].hh, k, 1, k});
    else {
      from_m = packing.add(s.d, false, {W_m, s.n * k, 1, width});
      write[0] = packing.add(4, true, {raw.write[0].ih, width, 1, width}, {raw.write[0].hh, k, 1, k});
    }
    for (int i = 0; i < call.layers; ++i) {
      if (i) write[i] = packing.add(4, true, {raw.write[i].ih, k, 1, k}, {raw.write[i].hh, k, 1, k});
      write_bias[i] = packing.add_bias(4, raw.write[i].bias_ih, raw.write[i].bias_hh);
    }
  }
};

struct BackwardWeights {  // transposed
  Matrix read_x[MAX_LAYERS], read_h[MAX_LAYERS], write_x[MAX_LAYERS], write_h[MAX_LAYERS], to_o, to_m;

  BackwardWeights(const Call& call, const RawWeights& raw, Packing& packing) {
    const Sizes s = packing.s;
    const int k = s.k, width = s.d * k;
    for (int i = 0; i < call.layers; ++i) {
      const int inputs = i ? 1 : s.d;
      read_x[i] = packing.add(1, false, {raw.read[i].ih, 4 * k, k, 1});
      read_h[i] = packing.add(1, false, {raw.read[i].hh, 4 * k, k, 1});
      write_x[i] = packing.add(inputs, false, {raw.write[i].ih, 4 * k, inputs * k, 1});
      write_h[i] = packing.add(1, false, {raw.write[i].hh, 4 * k, k, 1});
    }
    to_o = packing.add(1, false, {raw.compose, width, width, 1});
    to_m = packing.add(s.n, false, {raw.compose ? raw.compose + k : nullptr, width, width, 1});
  }
};

// ---- Memories ------------------------------------------------------------------------------------------

constexpr int BLOCK = 16;  // slots whose rows stay in the first-level cache
constexpr int CHUNK = 64;  // slots that one thread reads; a multiple of BLOCK

// Within a piece of PIECE steps the memory is not written. Before step t it is, slot by slot,
//     M_t = D M + sum_j w_j h_j
// with the memory M before the piece and the steps j of the piece before t: D is the product of all (1 - z_j),
// and w_j that of z_j and the later (1 - z). Scores, reads and gradients follow from M in one pass that only
// reads it; every PIECE steps M is written (eq. 6, 14, 15).
constexpr int PIECE = 8;

struct Pending {  // the writes to a chunk of slots that are to come
  int count;
  const float* h[PIECE];
  float D[CHUNK], w[PIECE][CHUNK];
};

INLINE V load_some(const float* p, int count) {  // then zeros
  if (count >= LANES) return load(p);
  float a[LANES] = {};
  if (count > 0) std::memcpy(a, p, count * sizeof(float));
  return load(a);
}

INLINE float dot(const float* a, const float* b, int count) {
  V acc = V{};
  for (int i = 0; i < count; i += LANES) acc = fma(load_some(a + i, count - i), load_some(b + i, count - i), acc);
  return sum(acc);
}

template <int N>
INLINE void add_writes(V (&slots)[N], const Pending& p, int l, int i) {
  for (int n = 0; n < N; ++n) slots[n] = slots[n] * p.D[l + n];
  for (int j = 0; j < p.count; ++j) {
    const V h = load(p.h[j] + i);
    for (int n = 0; n < N; ++n) slots[n] = fma(splat(p.w[j][l + n]), h, slots[n]);
  }
}

// Calls f with the first of four slots, then of the single ones that are left.
template <class F>
INLINE void each_slots(int count, const F& f) {
  int l = 0;
  for (; l + 4 <= count; l += 4) f(l, std::integral_constant<int, 4>());
  for (; l < count; ++l) f(l, std::integral_constant<int, 1>());
}

INLINE void write_slots(float* to, const float* M, int count, int K, const Pending& p) {
  each_slots(count, [&](int l, auto N) {
    for (int i = 0; i < K; i += LANES) {
      V slots[N.value];
      for (int n = 0; n < N; ++n) slots[n] = load(M + (l + n) * K + i);
      add_writes(slots, p, l, i);
      for (int n = 0; n < N; ++n) store(to + (l + n) * K + i, slots[n]);
    }
  });
}

// Adds sum_j e_j h_j to a row.
INLINE void add_rows(float* to, const Pending& p, const float* e, int K) {
  for (int i = 0; i < K; i += LANES) {
    V v = load(to + i);
    for (int j = 0; j < p.count; ++j) v = fma(splat(e[j]), load(p.h[j] + i), v);
    store(to + i, v);
  }
}

// Multiplies rows of M by a vector; those before step t have the products D M v + sum_j w_j (h_j v).
INLINE void multiply_slots(const float* M, int count, int K, const float* v, float* out) {
  each_slots(count, [&](int l, auto N) {
    V acc[N.value] = {};
    for (int i = 0; i < K; i += LANES) {
      const V v_i = load(v + i);
      for (int n = 0; n < N; ++n) acc[n] = fma(load(M + (l + n) * K + i), v_i, acc[n]);
    }
    for (int n = 0; n < N; ++n) out[l + n] = sum(acc[n]);
  });
}

INLINE V add_pending(V product, const Pending& p, int l, const float* products) {
  if (!p.count) return product;
  product = product * load(p.D + l);
  for (int j = 0; j < p.count; ++j) product = fma(load(p.w[j] + l), splat(products[j]), product);
  return product;
}

struct Part {  // what a chunk contributes to the read: m = sum of exp(score - highest) M, and the sum of weights
  float *m, &highest, &total;
  Part(float* row, int K) : m(row), highest(row[K]), total(row[K + 1]) {}
  static constexpr int EXTRA = 16;  // numbers after m
};

// Adds up to BLOCK slots, from slot l of the chunk, to a part of the read (eq. 3), as an online softmax: the
// weights of the rows of M, and those of pending writes, e [PIECE].
INLINE void read_slots(const float* M, int count, int K, const float* scores, const Pending& p, int l, const Part& part,
                       float* e) {
  float weights[BLOCK], highest = part.highest;
  for (int i = 0; i < count; ++i) highest = scores[i] > highest ? scores[i] : highest;
  for (int i = 0; i < BLOCK; ++i) weights[i] = i < count ? scores[i] - highest : -200.0f;
  V total = V{}, sums[PIECE] = {};
  for (int i = 0; i < BLOCK; i += LANES) {
    const V w = exp(load(weights + i));
    total = total + w;
    for (int j = 0; j < p.count; ++j) sums[j] = fma(w, load(p.w[j] + l + i), sums[j]);
    store(weights + i, p.count ? w * load(p.D + l + i) : w);
  }
  const float scale = exp(splat(part.highest - highest))[0];
  part.total = part.total * scale + sum(total);
  part.highest = highest;
  for (int j = 0; j < p.count; ++j) e[j] = e[j] * scale + sum(sums[j]);
  constexpr int N = 4;
  int i = 0;
  for (; i + N * LANES <= K; i += N * LANES) {
    V acc[N];
    for (int j = 0; j < N; ++j) acc[j] = load(part.m + i + j * LANES) * scale;
    for (int r = 0; r < count; ++r)
      for (int j = 0; j < N; ++j) acc[j] = fma(splat(weights[r]), load(M + r * K + i + j * LANES), acc[j]);
    for (int j = 0; j < N; ++j) store(part.m + i + j * LANES, acc[j]);
  }
  for (; i < K; i += LANES) {
    V acc = load(part.m + i) * scale;
    for (int r = 0; r < count; ++r) acc = fma(splat(weights[r]), load(M + r * K + i), acc);
    store(part.m + i, acc);
  }
}

// Turns scores into weights: z = exp(score - highest) / total.
INLINE void normalize(float* z, int count, float highest, float inverse) {
  for (int l = 0; l < count; l += LANES) {
    float a[LANES] = {};
    const int n = std::min(LANES, count - l);
    std::memcpy(a, z + l, n * sizeof(float));
    store(a, exp(load(a) - highest) * inverse);
    std::memcpy(z + l, a, n * sizeof(float));
  }
}

// ---- Sequences -----------------------------------------------------------------------------------------

struct Arena {  // hands out pieces of one block; without a block, counts
  float* base;
  size_t used = 0;

  float* take(size_t count) {
    float* place = base ? base + used : nullptr;
    used += (count + 15) / 16 * 16;
    return place;
  }
};

struct Rows {  // one row per step, or the same one for all
  float* base = nullptr;
  ptrdiff_t step = 0;
  float* operator[](ptrdiff_t t) const { return base + t * step; }
};

struct LayerRows {
  Rows gates, h, c;  // h and c: of step t in row t + 1, the initial state in row 0
};

struct Sequence {
  int b, length;
  LayerRows read[MAX_LAYERS], write[MAX_LAYERS];
  Rows composed;  // c_t; or, folded, what o_t contributes to the gates
  Rows m, z;
  float *M, *kept;
};

// Steps between two memories that the forward pass keeps: as many pieces as there are then intervals.
int get_interval(int64_t T) {
  int pieces = 1;
  while (static_cast<int64_t>(pieces) * pieces * PIECE < T) ++pieces;
  return pieces * PIECE;
}

INLINE size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

Sizes get_sizes(const Call& call) {
  const int k = static_cast<int>(call.k), n = static_cast<int>(call.memories);
  return {k, static_cast<int>(round_up(call.k, 16)), n, n + 1, static_cast<int>(call.S), call.half != 0};
}

int get_length(const Call& call, int64_t b) {
  return static_cast<int>(std::min(call.T, std::max<int64_t>(0, call.lengths[b])));
}

Sequence lay_out(const Call& call, const Sizes& s, int b, int length, Arena& arena) {
  Sequence q{};
  q.b = b, q.length = length;
  const size_t n = length;
  for (int i = 0; i < call.layers; ++i)
    for (LayerRows* layer : {&q.read[i], &q.write[i]}) {
      const bool is_kept = call.keep || layer == &q.read[i];  // what is added to the gates of the read LSTM
      const bool needs_gates = is_kept && (call.keep || i == 0 || layer == &q.read[i]);
      if (needs_gates) layer->gates = {arena.take(n * 4 * s.K), 4 * s.K};
      layer->h = {arena.take((n + 1) * s.K), s.K};
      layer->c = {arena.take((call.keep ? n + 1 : 1) * s.K), call.keep ? s.K : 0};
    }
  const int parts = call.folded ? 4 : s.d;
  q.composed = {arena.take(n * parts * s.K), static_cast<ptrdiff_t>(parts) * s.K};
  const size_t S = round_up(s.S, 16);
  q.z = {arena.take((call.keep ? n : PIECE) * S), static_cast<ptrdiff_t>(S)};
  q.m = {arena.take(call.keep ? n * s.n * s.K : 0), static_cast<ptrdiff_t>(s.n) * s.K};
  q.M = call.keep ? nullptr : arena.take(static_cast<size_t>(s.S) * s.K);
  const size_t kept = call.keep ? (length + get_interval(call.T) - 1) / get_interval(call.T) : 0;
  q.kept = arena.take(kept * s.S * s.K);
  return q;
}

void copy_padded(float* to, const float* from, const Sizes& s) {
  if (from)
    std::memcpy(to, from, s.k * sizeof(float));
  else
    std::memset(to, 0, s.k * sizeof(float));
  std::memset(to + s.k, 0, (s.K - s.k) * sizeof(float));
}

struct Item {  // a chunk of slots of one memory of a sequence
  int memory, from, count, chunk;  // `from` counts through all memories
};

// ---- Threads -------------------------------------------------------------------------------------------

INLINE void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}

  void wait() {
    if (size_ == 1) return;
    const int phase = phase_.load(std::memory_order_relaxed);
    if (waiting_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      waiting_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int i = 0; phase_.load(std::memory_order_acquire) == phase; ++i)
      i < 4000 ? relax() : std::this_thread::yield();
  }

 private:
  const int size_;
  std::atomic<int> waiting_{0}, phase_{0};
};

// Runs f(0) ... f(count - 1) at the same time: on PyTorch's own OpenMP threads where the caller found them,
// because those spin for milliseconds after each of its operations and would take the cores from others; or
// else on threads that live as long as the call. Neither leaves anything behind that a fork could break.
template <class F>
void run_threads(const OpenMP& openmp, int count, const F& f) {
  if (count == 1) return f(0);
  if (openmp.run) {
    struct Task {
      const F& f;
      const OpenMP& openmp;
      int count;
      std::atomic<int> next{0};
      std::atomic<bool> is_done{true};
    } task{f, openmp, count};
    openmp.run([](void* data) {
      Task& task = *static_cast<Task*>(data);
      if (task.openmp.count_threads() == task.count) task.f(task.next++);
      else task.is_done = false;  // within another parallel region, or at a limit
    }, &task, static_cast<unsigned>(count), 0);
    if (task.is_done) return;
  }
  std::vector<std::thread> threads;
  std::atomic<int> state{0};  // 1: go, -1: too few threads could be started
  try {
    for (int i = 1; i < count; ++i)
      threads.emplace_back([&state, &f, i] {
        int now;
        while (!(now = state.load(std::memory_order_acquire))) std::this_thread::yield();
        if (now > 0) f(i);
      });
  } catch (...) {
    state.store(-1, std::memory_order_release);
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  state.store(1, std::memory_order_release);
  f(0);
  for (std::thread& thread : threads) thread.join();
}

struct Team {  // threads that share groups of sequences
  Barrier barrier;
  int size;
  Arena scratch{nullptr};
  explicit Team(int size) : barrier(size), size(size) {}
};

struct Plan {  // sequences from the longest to the shortest, in groups whose work is about the same
  std::vector<int> order;  // of those that are not empty
  std::vector<int> ends;   // of the groups
  int threads = 1, teams = 1;

  Plan(const Call& call, const Sizes& s) {
    int64_t words = 0;
    for (int b = 0; b < call.B; ++b)
      if (const int length = get_length(call, b)) order.push_back(b), words += length;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return get_length(call, a) > get_length(call, b); });
    if (order.empty()) return;
    const int count = static_cast<int>(order.size());
    const double work = static_cast<double>(words) * s.K * (16.0 * s.K + s.S);
    threads = static_cast<int>(std::max(1.0, std::min<double>(call.threads, work / MIN_WORK)));
    teams = std::max(1, std::min(threads, count / MIN_ROWS));
    const int rounds = (count + teams * MAX_ROWS - 1) / (teams * MAX_ROWS);
    const int64_t groups = static_cast<int64_t>(teams) * rounds;
    int64_t done = 0;
    for (int i = 0; i < count; ++i) {
      done += get_length(call, order[i]);
      const bool is_full = i + 1 - (ends.empty() ? 0 : ends.back()) == 2 * MAX_ROWS;
      if (i + 1 == count || is_full || done * groups >= words * static_cast<int64_t>(ends.size() + 1))
        ends.push_back(i + 1);
    }
  }

 private:
  static constexpr double MIN_WORK = 4e6;  // multiplications that are worth a thread
  static constexpr int MIN_ROWS = 2, MAX_ROWS = 24;  // sequences of a team; of a group
};

// Calls f(sequences, team, me) on all threads for each group; sequences are those of `order`.
template <class F>
void run_groups(const Call& call, const Plan& plan, std::deque<Team>& teams, const F& f) {
  run_threads(call.openmp, plan.threads, [&](int thread) {
    int team = 0;
    while (thread >= Share(plan.threads, team, plan.teams).to) ++team;
    const int me = thread - Share(plan.threads, team, plan.teams).from;
    for (size_t i = team; i < plan.ends.size(); i += plan.teams)
      f(i ? plan.ends[i - 1] : 0, plan.ends[i], teams[team], me);
  });
}

// Asks for large pages: what is allocated anew at each call is otherwise touched page by page.
void use_large_pages(float* from, size_t numbers) {
#if defined(MADV_HUGEPAGE)
  const uintptr_t size = 1 << 21, start = round_up(reinterpret_cast<uintptr_t>(from), size);
  const uintptr_t end = reinterpret_cast<uintptr_t>(from + numbers) / size * size;
  if (from && end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#else
  (void)from, (void)numbers;
#endif
}

// Large blocks are kept for later calls, up to a limit: new pages cost up to a third of a call. If another
// thread holds the lock, or held it when the process was forked, blocks come from the system instead.
class SpareBlocks {
 public:
  // Returns a block of at least so many bytes, which becomes its size; or null.
  void* take(size_t& bytes) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) return nullptr;
    Spare* best = nullptr;
    for (Spare& spare : spares_)
      if (spare.size >= bytes && spare.size <= 2 * bytes && (!best || spare.size < best->size)) best = &spare;
    if (!best) return nullptr;
    bytes = best->size, total_ -= best->size, best->size = 0;
    return best->block;
  }

  bool give(void* block, size_t bytes) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock || total_ + bytes > LIMIT) return false;
    for (Spare& spare : spares_)
      if (!spare.size) {
        spare = {block, bytes}, total_ += bytes;
        return true;
      }
    return false;
  }

 private:
  struct Spare {
    void* block;
    size_t size;
  };
  static constexpr size_t LIMIT = 1 << 28;
  std::mutex mutex_;
  Spare spares_[16] = {};
  size_t total_ = 0;
};

SpareBlocks spare_blocks;

struct Block {  // of numbers at the start of a cache line
  float* base;

  explicit Block(size_t numbers) : bytes_(std::max<size_t>(64, numbers * sizeof(float))) {
    void* block = bytes_ >= LARGE ? spare_blocks.take(bytes_) : nullptr;
    if (!block) {
      if (posix_memalign(&block, bytes_ >= LARGE ? LARGE : 64, bytes_)) throw std::bad_alloc();
      use_large_pages(static_cast<float*>(block), bytes_ / sizeof(float));
    }
    base = static_cast<float*>(block);
  }
  Block(const Block&) = delete;
  ~Block() {
    if (bytes_ < LARGE || !spare_blocks.give(base, bytes_)) std::free(base);
  }

  static constexpr size_t LARGE = 1 << 21;

 private:
  size_t bytes_;
};

struct Teams {
  std::deque<Team> all;
  std::deque<Block> blocks;

  Teams(const Plan& plan, size_t numbers) {  // each with scratch memory of so many numbers
    for (int i = 0; i < plan.teams; ++i) {
      const Share share(plan.threads, i, plan.teams);
      blocks.emplace_back(numbers);
      all.emplace_back(share.to - share.from).scratch.base = blocks.back().base;
    }
  }
};

// What forward and backward have in common: a thread's view of a group of sequences.
struct Worker {
  const Call& call;
  const Sizes s;
  Team& team;
  const int me;
  std::vector<Sequence*> q;  // from the longest to the shortest
  std::vector<Item> items;   // of one sequence
  size_t rows = 0;           // words of all sequences

  Worker(const Call& call, const Sizes& s, Team& team, int me, Sequence* const* from, Sequence* const* to)
      : call(call), s(s), team(team), me(me), q(from, to) {
    for (int j = 0, offset = 0; j < s.n; offset += static_cast<int>(call.slot_sizes[j++]))
      for (int l = 0; l < call.slot_sizes[j]; l += CHUNK)
        items.push_back({j, offset + l, std::min<int>(CHUNK, static_cast<int>(call.slot_sizes[j]) - l), l});
    for (Sequence* sequence : q) rows += sequence->length;
  }

  int count_running(int t) const {
    int n = 0;
    while (n < static_cast<int>(q.size()) && q[n]->length > t) ++n;
    return n;
  }

  int count_slots(const Sequence& sequence, const Item& item) const {  // without padding
    const int64_t length = call.slot_lengths[item.memory * call.B + sequence.b];
    return static_cast<int>(std::min<int64_t>(item.count, std::max<int64_t>(0, length - item.chunk)));
  }

  Share mine(size_t count) const { return Share(static_cast<int>(count), me, team.size); }

  template <class F>
  void each_item(int n, const F& f) const {  // of the first n sequences
    const int chunks = static_cast<int>(items.size());
    const Share share = mine(static_cast<size_t>(n) * chunks);
    for (int i = share.from; i < share.to; ++i) f(i / chunks, i % chunks);
  }

  template <class F>
  std::vector<float*> list_words(const F& f) const {
    std::vector<float*> list;
    list.reserve(rows);
    for (Sequence* sequence : q)
      for (int t = 0; t < sequence->length; ++t) list.push_back(f(*sequence, t));
    return list;
  }

  template <class F>
  std::vector<float*> list_running(int n, const F& f) const {
    std::vector<float*> list(n);
    for (int g = 0; g < n; ++g) list[g] = f(*q[g]);
    return list;
  }

  // z of a step: without `keep` only those of a piece are there.
  float* get_z(const Sequence& sequence, int t) const { return sequence.z[call.keep ? t : t % PIECE]; }

  // The writes of steps `from` to t - 1 to a chunk.
  void list_writes(const Sequence& a, const Item& item, int count, int from, int t, Pending& p) const {
    p.count = t - from;
    for (int j = 0; j < p.count; ++j) p.h[j] = a.write[call.layers - 1].h[from + j + 1];
    for (int l = 0; l < static_cast<int>(round_up(count, BLOCK)); l += LANES) {
      V left = splat(1);
      for (int j = p.count - 1; j >= 0; --j) {
        const V z = load_some(get_z(a, from + j) + item.from + l, count - l);
        store(p.w[j] + l, z * left);
        left = left * (1.0f - z);
      }
      store(p.D + l, left);
    }
  }

  float* get_x(const Sequence& sequence, int t) const {  // read only
    return const_cast<float*>(call.x) + (sequence.b * call.T + t) * s.k;
  }

  // Multiplies columns of c_t, or of its gradient, by the dropout mask: those of the panels of W that are mine.
  void apply_mask(const Matrix& W, const std::vector<float*>& out, int t) const {
    if (!call.mask) return;
    const Share panels((W.vectors + 3) / 4, me, team.size);
    for (size_t g = 0; g < out.size(); ++g) {
      const float* mask = call.mask + (q[g]->b * call.T + t) * s.d * s.k;
      for (int v = 4 * panels.from; v < std::min(4 * panels.to, W.vectors); ++v) {
        const int part = v * LANES / s.K, first = v * LANES % s.K;
        float* to = out[g] + v * LANES;
        store(to, load(to) * load_some(mask + part * s.k + first, s.k - first));
      }
    }
  }
};

// ---- Forward -------------------------------------------------------------------------------------------

struct Forward : Worker {
  const ForwardWeights& W;
  std::vector<Part> parts;        // [sequences, items]
  float* own_m;                   // [sequences, n K], of this thread
  std::vector<float> tops;        // highest score and 1 / total, of each sequence and memory

  static size_t count_scratch(const Sizes& s, size_t sequences, size_t items, size_t threads) {
    return sequences * (items * (s.K + Part::EXTRA) + threads * s.n * s.K);
  }

  Forward(const ForwardWeights& W, const Call& call, const Sizes& s, Team& team, int me, Sequence* const* from,
          Sequence* const* to, Arena arena)
      : Worker(call, s, team, me, from, to), W(W), tops(2 * q.size() * s.n) {
    parts.reserve(q.size() * items.size());
    while (parts.size() < q.size() * items.size()) parts.emplace_back(arena.take(s.K + Part::EXTRA), s.K);
    own_m = arena.take(static_cast<size_t>(team.size) * q.size() * s.n * s.K) + me * q.size() * s.n * s.K;
  }

  void run() {
    begin();
    for (int layer = 0; layer < call.layers; ++layer) read(layer);
    const auto o = list_words([&](Sequence& a, int t) { return a.read[call.layers - 1].h[t + 1]; });
    const auto composed = list_words([](Sequence& a, int t) { return a.composed[t]; });
    multiply_words(W.from_o, o, W.bias_o, composed);
    for (int t = 0; t < q[0]->length; ++t) step(t);
    finish();
  }

  void multiply_words(const Matrix& M, const std::vector<float*>& in, const float* bias,
                      const std::vector<float*>& out) const {
    const Input input = {in.data(), 1};
    Linear{s, M, &input, 1, bias, out.data()}.run(static_cast<int>(in.size()), me, team.size);
    team.barrier.wait();
  }

  void begin() {
    const Share share = mine(q.size());
    for (int g = share.from; g < share.to; ++g) {
      Sequence& a = *q[g];
      for (int i = 0; i < call.layers; ++i) {
        const int64_t row = (i * call.B + a.b) * s.k;
        copy_padded(a.read[i].h[0], call.read_h ? call.read_h + row : nullptr, s);
        copy_padded(a.read[i].c[0], call.read_c ? call.read_c + row : nullptr, s);
        copy_padded(a.write[i].h[0], call.write_h ? call.write_h + row : nullptr, s);
        copy_padded(a.write[i].c[0], call.write_c ? call.write_c + row : nullptr, s);
      }
    }
    each_item(static_cast<int>(q.size()), [&](int g, int chunk) {
      const Item& item = items[chunk];
      for (int l = 0, n = count_slots(*q[g], item); l < n; ++l)
        copy_padded(q[g]->M + (item.from + l) * s.K, call.slots + ((q[g]->b * call.S) + item.from + l) * s.k, s);
    });
    team.barrier.wait();
  }

  void read(int layer) {  // (eq. 1, 7)
    const auto in = list_words([&](Sequence& a, int t) { return layer ? a.read[layer - 1].h[t + 1] : get_x(a, t); });
    const auto gates = list_words([&](Sequence& a, int t) { return a.read[layer].gates[t]; });
    multiply_words(W.read_x[layer], in, W.read_bias[layer], gates);
    for (int t = 0; t < q[0]->length; ++t) {
      const int n = count_running(t);
      step_cells(W.read_h[layer], nullptr, 0, nullptr, t, n, [&](Sequence& a) { return a.read[layer]; });
    }
  }

  // A step of a layer whose input, if there is one, has rows of `input_parts` parts.
  template <class F>
  void step_cells(const Matrix& M, const float* const* input, int input_parts, const float* bias, int t, int n,
                  const F& get_layer) const {
    std::vector<float*> gates(n), h(n), c_before(n), c(n), h_before(n);
    for (int g = 0; g < n; ++g) {
      const LayerRows layer = get_layer(*q[g]);
      gates[g] = layer.gates[t], h[g] = layer.h[t + 1], h_before[g] = layer.h[t];
      c_before[g] = layer.c[t], c[g] = layer.c[t + 1];
    }
    const Input inputs[2] = {{input, input_parts}, {h_before.data(), 1}};
    const Input* first = input ? inputs : inputs + 1;
    Cells{s, M, first, input ? 2 : 1, bias, gates.data(), h.data(), c_before.data(), c.data(), call.keep != 0}
        .run(n, t % 2, me, team.size);
    team.barrier.wait();
  }

  void step(int t) {
    const int n = count_running(t);
    each_item(n, [&](int g, int chunk) { attend(*q[g], g, chunk, t); });
    team.barrier.wait();
    std::vector<float*> m(n);
    for (int g = 0; g < n; ++g) m[g] = combine(*q[g], g, t);
    std::vector<float*> composed = list_running(n, [&](Sequence& a) { return a.composed[t]; });
    if (!call.folded) {  // (eq. 4, 12)
      const Input input = {m.data(), s.n};
      Linear{s, W.from_m, &input, 1, nullptr, composed.data()}.run(n, me, team.size);
      apply_mask(W.from_m, composed, t);
      team.barrier.wait();
    }
    for (int i = 0; i < call.layers; ++i) {  // (eq. 5, 13)
      const auto below = list_running(n, [&](Sequence& a) { return a.write[i ? i - 1 : 0].h[t + 1]; });
      const float* const* input = i ? below.data() : call.folded ? m.data() : composed.data();
      const bool is_folded = call.folded && i == 0;
      step_cells(W.write[i], input, i ? 1 : call.folded ? s.n : s.d, is_folded ? nullptr : W.write_bias[i], t, n,
                 [&](Sequence& a) {
                   LayerRows layer = a.write[i];
                   if (is_folded) layer.gates = a.composed;
                   return layer;
                 });
    }
    const Share share = mine(n);
    for (int g = share.from; g < share.to; ++g)
      std::memcpy(call.outputs + (q[g]->b * call.T + t) * s.k, q[g]->write[call.layers - 1].h[t + 1],
                  s.k * sizeof(float));
  }

  // Turns the scores of step t - 1 for a chunk of slots into z.
  void finish_keys(const Sequence& a, int g, const Item& item, int count, int t) const {
    float* z = get_z(a, t - 1) + item.from;
    const float* top = &tops[2 * (g * s.n + item.memory)];
    normalize(z, count, top[0], top[1]);
    if (call.keys) std::memcpy(call.keys + (a.b * call.T + t - 1) * call.S + item.from, z, count * sizeof(float));
  }

  void attend(const Sequence& a, int g, int chunk, int t) {
    const Item& item = items[chunk];
    const int count = count_slots(a, item);
    float *M = a.M + static_cast<ptrdiff_t>(item.from) * s.K, *scores = get_z(a, t) + item.from;
    if (t) finish_keys(a, g, item, count, t);
    Pending p;
    if (t && t % PIECE == 0) {
      list_writes(a, item, count, t - PIECE, t, p);
      write_slots(M, M, count, s.K, p);
    }
    const int interval = get_interval(call.T);
    if (call.keep && t % interval == 0)
      std::memcpy(a.kept + (static_cast<ptrdiff_t>(t / interval) * s.S + item.from) * s.K, M,
                  static_cast<size_t>(count) * s.K * sizeof(float));
    list_writes(a, item, count, t - t % PIECE, t, p);
    const float* o = a.read[call.layers - 1].h[t + 1];
    float products[PIECE], e[PIECE] = {};
    for (int j = 0; j < p.count; ++j) products[j] = dot(o, p.h[j], s.K);
    const Part& part = parts[g * items.size() + chunk];
    part.highest = -__builtin_inff(), part.total = 0;
    std::memset(part.m, 0, s.K * sizeof(float));
    for (int from = 0; from < count; from += BLOCK) {
      const int n = std::min(BLOCK, count - from);
      float block[BLOCK] = {};
      multiply_slots(M + from * s.K, n, s.K, o, block);  // (eq. 2, 8, 10)
      for (int i = 0; i < BLOCK; i += LANES) store(block + i, add_pending(load(block + i), p, from + i, products));
      std::memcpy(scores + from, block, n * sizeof(float));
      read_slots(M + from * s.K, n, s.K, block, p, from, part, e);
    }
    add_rows(part.m, p, e, s.K);
  }

  // Joins the parts of each memory's read; returns m_t (eq. 3, 9, 11).
  float* combine(const Sequence& a, int g, int t) {
    float* all = call.keep && me == 0 ? a.m[t] : own_m + static_cast<ptrdiff_t>(g) * s.n * s.K;
    for (int j = 0; j < s.n; ++j) {
      const Part* part = parts.data() + g * items.size();
      float highest = -__builtin_inff(), total = 0, *m = all + j * s.K;
      for (size_t i = 0; i < items.size(); ++i)
        if (items[i].memory == j && part[i].highest > highest) highest = part[i].highest;
      std::memset(m, 0, s.K * sizeof(float));
      for (size_t i = 0; i < items.size(); ++i) {
        if (items[i].memory != j || !count_slots(a, items[i])) continue;
        const float scale = exp(splat(part[i].highest - highest))[0];
        total += part[i].total * scale;
        for (int v = 0; v < s.K; v += LANES) store(m + v, fma(load(part[i].m + v), splat(scale), load(m + v)));
      }
      const float inverse = 1 / total;
      if (total != 0)
        for (int v = 0; v < s.K; v += LANES) store(m + v, load(m + v) * inverse);
      float* top = &tops[2 * (g * s.n + j)];
      top[0] = highest, top[1] = inverse;
    }
    return all;
  }

  void finish() {
    each_item(static_cast<int>(q.size()), [&](int g, int chunk) {
      const Sequence& a = *q[g];
      const Item& item = items[chunk];
      const int count = count_slots(a, item);
      float* M = a.M + static_cast<ptrdiff_t>(item.from) * s.K;
      finish_keys(a, g, item, count, a.length);
      Pending p;
      list_writes(a, item, count, (a.length - 1) / PIECE * PIECE, a.length, p);
      write_slots(M, M, count, s.K, p);
      float* to = call.memory + (a.b * call.S + item.from) * s.k;
      for (int l = 0; l < count; ++l) std::memcpy(to + l * s.k, M + l * s.K, s.k * sizeof(float));
      std::memset(to + count * s.k, 0, static_cast<size_t>(item.count - count) * s.k * sizeof(float));
    });
    const Share share = mine(q.size());
    for (int g = share.from; g < share.to; ++g) {
      const Sequence& a = *q[g];
      std::memset(call.outputs + (a.b * call.T + a.length) * s.k, 0, (call.T - a.length) * s.k * sizeof(float));
      for (int i = 0; i < call.layers; ++i) {
        const int64_t row = (i * call.B + a.b) * s.k;
        const size_t bytes = s.k * sizeof(float);
        std::memcpy(call.read_h_end + row, a.read[i].h[a.length], bytes);
        std::memcpy(call.read_c_end + row, a.read[i].c[a.length], bytes);
        std::memcpy(call.write_h_end + row, a.write[i].h[a.length], bytes);
        std::memcpy(call.write_c_end + row, a.write[i].c[a.length], bytes);
      }
    }
    team.barrier.wait();  // the next group writes to the same scratch memory
  }
};

// ---- Backward ------------------------------------------------------------------------------------------

struct LayerGradients {
  Rows da;         // of the gates before their activation, per word: kept for the gradients of the weights
  float *dh, *dc;  // of the state, from later steps
};

struct Gradients {  // of one sequence
  LayerGradients read[MAX_LAYERS], write[MAX_LAYERS];
  Rows d_composed;              // per word, kept
  Rows d_o;                     // per word
  float *G, *rebuilt;           // gradient of the memory; memories rebuilt from a kept one
  float *change, *dm, *d_below; // per slot, G (h - M); of m_t; of the input of an upper layer
  float *do_parts, *dh_parts;   // per item
};

Gradients lay_out_gradients(const Call& call, const Sizes& s, int length, Arena& arena) {  // those kept
  Gradients d{};
  const size_t n = length;
  for (int i = 0; i < call.layers; ++i)
    for (LayerGradients* layer : {&d.read[i], &d.write[i]}) layer->da = {arena.take(n * 4 * s.K), 4 * s.K};
  d.d_composed = {arena.take(n * s.d * s.K), static_cast<ptrdiff_t>(s.d) * s.K};
  return d;
}

void lay_out_group(const Call& call, const Sizes& s, int length, size_t items, Gradients& d, Arena& arena) {
  const size_t slots = static_cast<size_t>(s.S) * s.K;
  for (int i = 0; i < call.layers; ++i)
    for (LayerGradients* layer : {&d.read[i], &d.write[i]}) layer->dh = arena.take(s.K), layer->dc = arena.take(s.K);
  d.d_o = {arena.take(static_cast<size_t>(length) * s.K), s.K};
  d.G = arena.take(slots);
  d.rebuilt = arena.take((get_interval(call.T) / PIECE - 1) * slots);
  d.change = arena.take(s.S), d.dm = arena.take(static_cast<size_t>(s.n) * s.K), d.d_below = arena.take(s.K);
  d.do_parts = arena.take(items * s.K), d.dh_parts = arena.take(items * s.K);
}

struct Later {  // what a chunk's slots need to go back through the read and softmax of step t + 1
  const float *M, *z, *dm, *o;
  float ds[BLOCK], ds_D[BLOCK], *d_o;
};

struct Now {  // and through the write of step t
  const float *M, *z, *h;
  const Pending& pending;
  float *change, *dh;
};

template <int N, bool LATER, bool WRITE>
INLINE void take_slots_back(float* G, int K, const Later& later, const Now& now, int l, int in_block) {
  V acc[N] = {};
  for (int i = 0; i < K; i += LANES) {
    V dm{}, o{}, d_o{}, h{}, dh{};
    if (LATER) dm = load(later.dm + i), o = load(later.o + i), d_o = load(later.d_o + i);
    if (WRITE) h = load(now.h + i), dh = load(now.dh + i);
    V before[N];
    if (WRITE) {
      for (int n = 0; n < N; ++n) before[n] = load(now.M + (l + n) * K + i);
      add_writes(before, now.pending, l, i);
    }
    for (int n = 0; n < N; ++n) {
      const ptrdiff_t slot = static_cast<ptrdiff_t>(l + n) * K + i;
      V g = load(G + slot);
      if (LATER) {
        g = fma(splat(later.z[l + n]), dm - g, g);  // (1 - z) G of the write, z dm of the read
        g = fma(splat(later.ds[in_block + n]), o, g);
        d_o = fma(splat(later.ds_D[in_block + n]), load(later.M + slot), d_o);
        store(G + slot, g);
      }
      if (WRITE) {
        acc[n] = fma(g, h - before[n], acc[n]);
        dh = fma(splat(now.z[l + n]), g, dh);
      }
    }
    if (LATER) store(later.d_o + i, d_o);
    if (WRITE) store(now.dh + i, dh);
  }
  if (WRITE)
    for (int n = 0; n < N; ++n) now.change[l + n] = sum(acc[n]);
}

struct Backward : Worker {
  const BackwardWeights& W;
  std::vector<Gradients*> d;
  std::vector<float> totals;  // z . dz of each sequence and memory
  const float* zeros;         // d K of them
  const int interval;

  Backward(const BackwardWeights& W, const Call& call, const Sizes& s, Team& team, int me, Sequence* const* from,
           Sequence* const* to, Gradients* const* d_from, const float* zeros)
      : Worker(call, s, team, me, from, to), W(W), d(d_from, d_from + (to - from)), totals(q.size() * s.n),
        zeros(zeros), interval(get_interval(call.T)) {}

  void run() {
    begin();
    for (int t = q[0]->length - 1; t >= 0; --t) step(t);
    const int all = static_cast<int>(q.size());
    each_item(all, [&](int g, int chunk) { take_memory_back(g, chunk, -1); });
    team.barrier.wait();
    add_parts(all, -1);
    finish_memory();
    const auto composed = list_gradients([](Gradients& a, int t) { return a.d_composed[t]; });
    const auto d_o = list_gradients([](Gradients& a, int t) { return a.d_o[t]; });
    multiply_words(W.to_o, composed, s.d, nullptr, d_o);
    for (int layer = static_cast<int>(call.layers) - 1; layer >= 0; --layer) read_back(layer, d_o);
    finish(d_o);
  }

  template <class F>
  std::vector<float*> list_gradients(const F& f) const {
    std::vector<float*> list;
    list.reserve(rows);
    for (size_t g = 0; g < q.size(); ++g)
      for (int t = 0; t < q[g]->length; ++t) list.push_back(f(*d[g], t));
    return list;
  }

  void multiply_words(const Matrix& M, const std::vector<float*>& in, int in_parts, const float* bias,
                      const std::vector<float*>& out) const {
    const Input input = {in.data(), in_parts};
    Linear{s, M, &input, 1, bias, out.data()}.run(static_cast<int>(in.size()), me, team.size);
    team.barrier.wait();
  }

  void begin() {
    const Share share = mine(q.size());
    for (int g = share.from; g < share.to; ++g)
      for (int i = 0; i < call.layers; ++i) {
        const int64_t row = (i * call.B + q[g]->b) * s.k;
        const auto copy = [&](float* to, const float* from) { copy_padded(to, from ? from + row : nullptr, s); };
        copy(d[g]->read[i].dh, call.d_read_h_end), copy(d[g]->read[i].dc, call.d_read_c_end);
        copy(d[g]->write[i].dh, call.d_write_h_end), copy(d[g]->write[i].dc, call.d_write_c_end);
      }
    each_item(static_cast<int>(q.size()), [&](int g, int chunk) {
      const Item& item = items[chunk];
      for (int l = 0, n = count_slots(*q[g], item); l < n; ++l) {
        const int64_t slot = item.from + l;
        copy_padded(d[g]->G + slot * s.K, call.d_memory ? call.d_memory + (q[g]->b * call.S + slot) * s.k : nullptr, s);
      }
    });
    team.barrier.wait();
  }

  void step(int t) {
    const int n = count_running(t), top = static_cast<int>(call.layers) - 1;
    each_item(n, [&](int g, int chunk) { take_memory_back(g, chunk, t); });
    team.barrier.wait();
    add_parts(n, t);
    for (int g = 0; g < n; ++g) sum_keys(g, t);  // before the next barrier: `change` is written again after it
    for (int i = top; i >= 0; --i) {
      take_cells_back(n, t, [&](int g) { return &q[g]->write[i]; }, [&](int g) { return &d[g]->write[i]; },
                      [&](int g, int v) { return i == top ? get_d_output(g, t, v) : load(d[g]->d_below + v); });
      team.barrier.wait();
      std::vector<float*> da(n), dh(n), below(n);
      for (int g = 0; g < n; ++g) {
        da[g] = d[g]->write[i].da[t], dh[g] = d[g]->write[i].dh;
        below[g] = i ? d[g]->d_below : d[g]->d_composed[t];
      }
      const Input input = {da.data(), 4};
      Linear{s, W.write_h[i], &input, 1, zeros, dh.data()}.run(n, me, team.size);
      Linear{s, W.write_x[i], &input, 1, zeros, below.data()}.run(n, me, team.size);
      if (i == 0) apply_mask(W.write_x[i], below, t);
      team.barrier.wait();
    }
    std::vector<float*> composed(n), dm(n);
    for (int g = 0; g < n; ++g) composed[g] = d[g]->d_composed[t], dm[g] = d[g]->dm;
    multiply_words(W.to_m, composed, s.d, zeros, dm);
    for (int g = 0; g < n; ++g) add_reads(g, t);
  }

  V get_d_output(int g, int t, int v) const {
    float row[LANES] = {};
    if (call.d_outputs)
      std::memcpy(row, call.d_outputs + (q[g]->b * call.T + t) * s.k + v,
                  std::max(0, std::min(LANES, s.k - v)) * sizeof(float));
    return load(row);
  }

  // Adds what all chunks found: dh of step t, and do of step t + 1.
  void add_parts(int n, int t) const {
    const Share vectors = mine(s.K / LANES);
    const int top = static_cast<int>(call.layers) - 1;
    for (int g = 0; g < n; ++g) {
      const bool later = t + 1 < q[g]->length;
      for (int v = vectors.from * LANES; v < vectors.to * LANES; v += LANES) {
        V dh = load(d[g]->write[top].dh + v), d_o = V{};
        for (size_t i = 0; i < items.size(); ++i) {
          if (!count_slots(*q[g], items[i])) continue;
          dh = dh + load(d[g]->dh_parts + i * s.K + v), d_o = d_o + load(d[g]->do_parts + i * s.K + v);
        }
        if (t >= 0) store(d[g]->write[top].dh + v, dh);
        if (later) store(d[g]->d_o[t + 1] + v, d_o);
      }
    }
  }

  // z . dz of each memory: what the write and the keys contribute, then the read, whose part is m . dm.
  void sum_keys(int g, int t) {
    for (int j = 0; j < s.n; ++j) {
      float total = 0;
      for (const Item& item : items)
        if (item.memory == j) {
          const int count = count_slots(*q[g], item);
          const float* z = q[g]->z[t] + item.from;
          total += dot(z, d[g]->change + item.from, count);
          if (call.d_keys) total += dot(z, get_d_keys(g, t) + item.from, count);
        }
      totals[g * s.n + j] = total;
    }
  }

  void add_reads(int g, int t) {
    for (int j = 0; j < s.n; ++j) totals[g * s.n + j] += dot(q[g]->m[t] + j * s.K, d[g]->dm + j * s.K, s.K);
  }

  const float* get_d_keys(int g, int t) const { return call.d_keys + (q[g]->b * call.T + t) * call.S; }

  // The memory before the first step t of a piece, from a slot on.
  float* get_memory(int g, int t, int slot) const {
    const size_t slots = static_cast<size_t>(s.S) * s.K;
    const int piece = t % interval / PIECE;
    float* M = piece ? d[g]->rebuilt + (piece - 1) * slots : q[g]->kept + t / interval * slots;
    return M + static_cast<ptrdiff_t>(slot) * s.K;
  }

  // Rebuilds a chunk of the memories before all pieces between a kept memory and step t.
  void rebuild(int g, const Item& item, int count, int t) const {
    Pending p;
    for (int from = t / interval * interval; from + PIECE <= t; from += PIECE) {
      list_writes(*q[g], item, count, from, from + PIECE, p);
      write_slots(get_memory(g, from + PIECE, item.from), get_memory(g, from, item.from), count, s.K, p);
    }
  }

  void take_memory_back(int g, int chunk, int t) {
    const Sequence& a = *q[g];
    const Item& item = items[chunk];
    const Gradients& e = *d[g];
    const int count = count_slots(a, item), top = static_cast<int>(call.layers) - 1, next = t + 1;
    const bool is_later = next < a.length;
    float *G = e.G + static_cast<ptrdiff_t>(item.from) * s.K, *change = e.change + item.from;
    float *do_part = e.do_parts + chunk * s.K, *dh_part = e.dh_parts + chunk * s.K;
    std::memset(do_part, 0, s.K * sizeof(float)), std::memset(dh_part, 0, s.K * sizeof(float));
    if (t >= 0 && (next % interval == 0 || !is_later)) rebuild(g, item, count, t);
    Pending before, before_next;
    Later later{};
    Now now{nullptr, nullptr, nullptr, before, change, dh_part};
    if (t >= 0) {
      list_writes(a, item, count, t - t % PIECE, t, before);
      now.M = get_memory(g, t - t % PIECE, item.from);
      now.z = a.z[t] + item.from, now.h = a.write[top].h[t + 1];
    }
    float products[PIECE], e_sums[PIECE];
    V sums[PIECE] = {};
    if (is_later) {
      list_writes(a, item, count, next - next % PIECE, next, before_next);
      later.M = get_memory(g, next - next % PIECE, item.from);
      later.z = a.z[next] + item.from, later.dm = e.dm + item.memory * s.K, later.o = a.read[top].h[next + 1];
      later.d_o = do_part;
      for (int j = 0; j < before_next.count; ++j) products[j] = dot(later.dm, before_next.h[j], s.K);
    }
    const float total = totals[g * s.n + item.memory];
    const float* d_keys = is_later && call.d_keys ? get_d_keys(g, next) + item.from : nullptr;
    for (int from = 0; from < count; from += BLOCK) {
      const int n = std::min(BLOCK, count - from);
      if (is_later) {
        std::memset(later.ds, 0, sizeof later.ds);
        multiply_slots(later.M + static_cast<ptrdiff_t>(from) * s.K, n, s.K, later.dm, later.ds);
        for (int i = 0; i < BLOCK; i += LANES) {
          const int l = from + i;
          V dz = add_pending(load(later.ds + i), before_next, l, products) + load_some(change + l, n - i) - total;
          if (d_keys) dz = dz + load_some(d_keys + l, n - i);
          const V z = load_some(later.z + l, n - i), ds = z * dz;
          store(later.ds + i, ds), store(later.ds_D + i, ds * load(before_next.D + l));
          for (int j = 0; j < before_next.count; ++j) sums[j] = fma(ds, load(before_next.w[j] + l), sums[j]);
        }
      }
      each_slots(n, [&](int i, auto N) {
        if (is_later && t >= 0) take_slots_back<N.value, true, true>(G, s.K, later, now, from + i, i);
        else if (is_later) take_slots_back<N.value, true, false>(G, s.K, later, now, from + i, i);
        else take_slots_back<N.value, false, true>(G, s.K, later, now, from + i, i);
      });
    }
    for (int j = 0; j < PIECE; ++j) e_sums[j] = sum(sums[j]);
    if (is_later) add_rows(do_part, before_next, e_sums, s.K);
  }

  // Back through the cells of a layer: da from dh and dc; dc becomes that of the step before.
  template <class Values, class Grads, class Extra>
  void take_cells_back(int n, int t, const Values& get_values, const Grads& get_gradients, const Extra& get_dh) const {
    const Share vectors = mine(s.K / LANES);
    for (int g = 0; g < n; ++g) {
      const LayerRows& a = *get_values(g);
      const LayerGradients& e = *get_gradients(g);
      for (int v = vectors.from * LANES; v < vectors.to * LANES; v += LANES) {
        const float* gates = a.gates[t] + v;
        const V i = load(gates), f = load(gates + s.K), c_gate = load(gates + 2 * s.K), o = load(gates + 3 * s.K);
        const V tanh_c = tanh(load(a.c[t + 1] + v)), dh = load(e.dh + v) + get_dh(g, v);
        const V dc = fma(dh * o, 1.0f - tanh_c * tanh_c, load(e.dc + v));
        float* da = e.da[t] + v;
        store(da, dc * c_gate * i * (1.0f - i));
        store(da + s.K, dc * load(a.c[t] + v) * f * (1.0f - f));
        store(da + 2 * s.K, dc * i * (1.0f - c_gate * c_gate));
        store(da + 3 * s.K, dh * tanh_c * o * (1.0f - o));
        store(e.dc + v, dc * f);
      }
    }
  }

  void read_back(int layer, const std::vector<float*>& d_o) const {
    for (int t = q[0]->length - 1; t >= 0; --t) {
      const int n = count_running(t);
      take_cells_back(n, t, [&](int g) { return &q[g]->read[layer]; }, [&](int g) { return &d[g]->read[layer]; },
                      [&](int g, int v) { return load(d[g]->d_o[t] + v); });
      team.barrier.wait();
      std::vector<float*> da(n), dh(n);
      for (int g = 0; g < n; ++g) da[g] = d[g]->read[layer].da[t], dh[g] = d[g]->read[layer].dh;
      multiply_words(W.read_h[layer], da, 4, zeros, dh);
    }
    const auto da = list_gradients([&](Gradients& a, int t) { return a.read[layer].da[t]; });
    multiply_words(W.read_x[layer], da, 4, zeros, d_o);  // the gradient of the layer's input, in the same place
  }

  void finish_memory() const {
    if (!call.d_slots) return;
    each_item(static_cast<int>(q.size()), [&](int g, int chunk) {
      const Item& item = items[chunk];
      const int count = count_slots(*q[g], item);
      float* to = call.d_slots + (q[g]->b * call.S + item.from) * s.k;
      for (int l = 0; l < count; ++l) std::memcpy(to + l * s.k, d[g]->G + (item.from + l) * s.K, s.k * sizeof(float));
      std::memset(to + count * s.k, 0, static_cast<size_t>(item.count - count) * s.k * sizeof(float));
    });
    team.barrier.wait();
  }

  void finish(const std::vector<float*>& d_x) const {
    const size_t bytes = s.k * sizeof(float);
    const Share share = mine(q.size());
    size_t word = 0;
    for (int g = 0; g < static_cast<int>(q.size()); word += q[g++]->length) {
      if (g < share.from || g >= share.to) continue;
      const int64_t b = q[g]->b;
      if (call.d_x) {
        for (int t = 0; t < q[g]->length; ++t) std::memcpy(call.d_x + (b * call.T + t) * s.k, d_x[word + t], bytes);
        std::memset(call.d_x + (b * call.T + q[g]->length) * s.k, 0, (call.T - q[g]->length) * bytes);
      }
      for (int i = 0; i < call.layers; ++i) {
        const int64_t row = (i * call.B + b) * s.k;
        const auto copy = [&](float* to, const float* from) {
          if (to) std::memcpy(to + row, from, bytes);
        };
        copy(call.d_read_h, d[g]->read[i].dh), copy(call.d_read_c, d[g]->read[i].dc);
        copy(call.d_write_h, d[g]->write[i].dh), copy(call.d_write_c, d[g]->write[i].dc);
      }
    }
    team.barrier.wait();
  }
};

// ---- Gradients of the weights --------------------------------------------------------------------------

using WordRows = std::vector<const float*>;  // a row per word, in the order of the batch

struct WeightTask {  // k by k numbers of a gradient: the sum over words of one part of da times one of the input
  float* to;
  int64_t step;
  const WordRows *da, *in;
  int da_part, in_part;
};

constexpr int WORDS_AT_ONCE = 256;

// Adds the products of R numbers of `da` [count, R] and a panel [count, G vectors] to rows of C, or sets these.
template <int R, int G>
INLINE void add_outer(float* C, const float* da, const float* panel, int count, bool is_first) {
  V acc[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) acc[r][g] = is_first ? V{} : load(C + (r * G + g) * LANES);
  add_products(acc, count, panel, [&](int r, int i) { return da[i * R + r]; }, fma);
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) store(C + (r * G + g) * LANES, acc[r][g]);
}

// Adds words to G vectors of columns of C. `da` holds their gradients tile by tile.
template <int G>
void add_columns(float* C, const float* da, float* panel, const float* const* in, int count, ptrdiff_t column,
                 int columns, int rows, bool is_first) {
  for (int i = 0; i < count; ++i)
    for (int g = 0; g < G; ++g)
      store(panel + (i * G + g) * LANES, load_some(in[i] + column + g * LANES, columns - g * LANES));
  each_tile(0, rows, [&](int row, auto R) {
    add_outer<R.value, G>(C + row * G * LANES, da + row * WORDS_AT_ONCE, panel, count, is_first);
  });
}

struct WeightScratch {
  float *C, *da, *panel;  // [k, K] panel by panel, [WORDS_AT_ONCE, k] tile by tile, a panel of the inputs
  static size_t count(const Sizes& s) {
    return static_cast<size_t>(s.K) * s.K + WORDS_AT_ONCE * (s.K + 4 * LANES);
  }
  WeightScratch(float* base, const Sizes& s)
      : C(base), da(C + static_cast<ptrdiff_t>(s.K) * s.K), panel(da + WORDS_AT_ONCE * s.K) {}
};

void run_task(const WeightTask& task, const Sizes& s, const WeightScratch& scratch) {
  constexpr int COLUMNS = 4 * LANES;
  for (size_t from = 0; from < task.da->size(); from += WORDS_AT_ONCE) {
    const int count = static_cast<int>(std::min<size_t>(WORDS_AT_ONCE, task.da->size() - from));
    const float *const *da = task.da->data() + from, *const *in = task.in->data() + from;
    each_tile(0, s.k, [&](int row, auto R) {
      float* to = scratch.da + row * WORDS_AT_ONCE;
      const ptrdiff_t first = static_cast<ptrdiff_t>(task.da_part) * s.K + row;
      for (int i = 0; i < count; ++i) std::memcpy(to + i * R, da[i] + first, R * sizeof(float));
    });
    for (int column = 0; column < s.k; column += COLUMNS) {
      float* C = scratch.C + static_cast<ptrdiff_t>(column) * s.K;
      const auto add = [&](auto G) {
        add_columns<G.value>(C, scratch.da, scratch.panel, in, count,
                             static_cast<ptrdiff_t>(task.in_part) * s.K + column, s.k - column, s.k, !from);
      };
      switch (std::min(4, (s.k - column + LANES - 1) / LANES)) {
        case 4: add(std::integral_constant<int, 4>()); break;
        case 3: add(std::integral_constant<int, 3>()); break;
        case 2: add(std::integral_constant<int, 2>()); break;
        default: add(std::integral_constant<int, 1>());
      }
    }
  }
  for (int column = 0; column < s.k; column += COLUMNS) {
    const int columns = std::min(COLUMNS, s.k - column), width = static_cast<int>(round_up(columns, LANES));
    for (int row = 0; row < s.k; ++row)
      std::memcpy(task.to + row * task.step + column, scratch.C + static_cast<ptrdiff_t>(column) * s.K + row * width,
                  columns * sizeof(float));
  }
}

struct WeightGradients {
  std::vector<WeightTask> tasks;
  struct BiasTask {
    float *to, *too;
    const WordRows* da;
    int parts;
  };
  std::vector<BiasTask> biases;

  void add(float* to, int in_width, int in_from, const WordRows& da, int da_parts, const WordRows& in, int in_parts,
           int k) {
    if (!to) return;
    for (int i = 0; i < da_parts; ++i)
      for (int j = 0; j < in_parts; ++j)
        tasks.push_back({to + static_cast<int64_t>(i) * k * in_width + in_from + j * k, in_width, &da, &in, i, j});
  }

  void run(const OpenMP& openmp, const Sizes& s, int threads) const {
    const size_t size = round_up(WeightScratch::count(s), 16);
    const Block block(size * threads);
    std::atomic<size_t> next{0};
    run_threads(openmp, threads, [&](int thread) {
      const WeightScratch scratch(block.base + thread * size, s);
      for (size_t i; (i = next++) < tasks.size() + biases.size();)
        i < tasks.size() ? run_task(tasks[i], s, scratch) : run_bias(biases[i - tasks.size()], s);
    });
  }

  static void run_bias(const BiasTask& task, const Sizes& s) {
    for (int part = 0; part < task.parts; ++part)
      for (int v = 0; v < s.k; v += LANES) {
        V acc = V{};
        for (const float* row : *task.da) acc = acc + load(row + part * s.K + v);
        const size_t bytes = std::min(LANES, s.k - v) * sizeof(float);
        for (float* to : {task.to, task.too})
          if (to) std::memcpy(to + part * s.k + v, &acc, bytes);
      }
  }
};

// ---- The interface -------------------------------------------------------------------------------------

struct Batch {
  std::vector<Sequence> sequences;  // in the order of the batch; the empty ones have no rows
  std::vector<Sequence*> sorted;

  Batch(const Call& call, const Sizes& s, const Plan& plan) : sequences(call.B) {
    Arena arena{call.kept};
    for (int b = 0; b < call.B; ++b) {
      const int length = get_length(call, b);
      if (call.keep && length) sequences[b] = lay_out(call, s, b, length, arena);
      else sequences[b].b = b, sequences[b].length = length;
    }
    use_large_pages(call.kept, arena.used);
    for (int b : plan.order) sorted.push_back(&sequences[b]);
  }
};

// Results of sequences without words: memory and states stay.
void copy_empty(const Call& call, const Sizes& s) {
  for (int64_t b = 0; b < call.B; ++b) {
    if (get_length(call, b)) continue;
    std::memset(call.outputs + b * call.T * s.k, 0, call.T * s.k * sizeof(float));
    int64_t slot = b * call.S;
    for (int j = 0; j < s.n; slot += call.slot_sizes[j++]) {
      const int64_t size = call.slot_sizes[j];
      const int64_t count = std::min(size, std::max<int64_t>(0, call.slot_lengths[j * call.B + b]));
      if (count) std::memcpy(call.memory + slot * s.k, call.slots + slot * s.k, count * s.k * sizeof(float));
      if (size > count) std::memset(call.memory + (slot + count) * s.k, 0, (size - count) * s.k * sizeof(float));
    }
    for (int64_t i = 0; i < call.layers; ++i) {
      const int64_t row = (i * call.B + b) * s.k;
      const auto copy = [&](float* to, const float* from) {
        from ? std::memcpy(to + row, from + row, s.k * sizeof(float)) : std::memset(to + row, 0, s.k * sizeof(float));
      };
      copy(call.read_h_end, call.read_h), copy(call.read_c_end, call.read_c);
      copy(call.write_h_end, call.write_h), copy(call.write_c_end, call.write_c);
    }
  }
}

void copy_empty_gradients(const Call& call, const Sizes& s) {
  for (int64_t b = 0; b < call.B; ++b) {
    if (get_length(call, b)) continue;
    if (call.d_x) std::memset(call.d_x + b * call.T * s.k, 0, call.T * s.k * sizeof(float));
    int64_t slot = b * call.S;
    for (int j = 0; j < s.n && call.d_slots; slot += call.slot_sizes[j++]) {
      const int64_t size = call.slot_sizes[j];
      const int64_t count = call.d_memory ? std::min(size, std::max<int64_t>(0, call.slot_lengths[j * call.B + b])) : 0;
      if (count) std::memcpy(call.d_slots + slot * s.k, call.d_memory + slot * s.k, count * s.k * sizeof(float));
      if (size > count) std::memset(call.d_slots + (slot + count) * s.k, 0, (size - count) * s.k * sizeof(float));
    }
    for (int64_t i = 0; i < call.layers; ++i) {
      const int64_t row = (i * call.B + b) * s.k;
      const auto copy = [&](float* to, const float* from) {
        if (!to) return;
        from ? std::memcpy(to + row, from + row, s.k * sizeof(float)) : std::memset(to + row, 0, s.k * sizeof(float));
      };
      copy(call.d_read_h, call.d_read_h_end), copy(call.d_read_c, call.d_read_c_end);
      copy(call.d_write_h, call.d_write_h_end), copy(call.d_write_c, call.d_write_c_end);
    }
  }
}

void run_forward(const Call& call) {
  const Sizes s = get_sizes(call);
  Packing packing{s, call.packed};
  const RawWeights none;
  const ForwardWeights W(call, none, packing);
  const Plan plan(call, s);
  Batch batch(call, s, plan);
  copy_empty(call, s);
  if (plan.order.empty()) return;
  size_t items = 0, scratch = 0;
  for (int j = 0; j < s.n; ++j) items += (call.slot_sizes[j] + CHUNK - 1) / CHUNK;
  const size_t team_size = plan.threads / plan.teams + 1;
  const auto lay_out_memory = [&](int from, int to, Arena& arena) {
    for (int i = from; i < to; ++i) {
      Sequence& a = *batch.sorted[i];
      if (call.keep) a.M = arena.take(static_cast<size_t>(s.S) * s.K);
      else a = lay_out(call, s, a.b, a.length, arena);
    }
  };
  for (size_t i = 0; i < plan.ends.size(); ++i) {
    Arena counter{nullptr};
    const int from = i ? plan.ends[i - 1] : 0;
    lay_out_memory(from, plan.ends[i], counter);
    scratch = std::max(scratch, counter.used + Forward::count_scratch(s, plan.ends[i] - from, items, team_size));
  }
  Teams teams(plan, scratch);
  run_groups(call, plan, teams.all, [&](int from, int to, Team& team, int me) {
    if (me == 0) {
      team.scratch.used = 0;
      lay_out_memory(from, to, team.scratch);
    }
    team.barrier.wait();
    Forward(W, call, s, team, me, &batch.sorted[from], batch.sorted.data() + to, team.scratch).run();
  });
}

void run_backward(const Call& call) {
  const Sizes s = get_sizes(call);
  const Plan plan(call, s);
  Batch batch(call, s, plan);
  copy_empty_gradients(call, s);
  std::vector<float> zeros(static_cast<size_t>(s.d) * s.K);
  size_t items = 0, kept = 0, packed = 0, scratch = 0;
  for (int j = 0; j < s.n; ++j) items += (call.slot_sizes[j] + CHUNK - 1) / CHUNK;
  const RawWeights raw(call);
  std::vector<Gradients> gradients(plan.order.size());
  const auto lay_out_kept = [&](Arena& arena) {
    for (size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = lay_out_gradients(call, s, batch.sorted[i]->length, arena);
  };
  {
    Packing packing{s, nullptr};
    BackwardWeights(call, raw, packing);
    packed = packing.used;
    Arena arena{nullptr};
    lay_out_kept(arena);
    kept = arena.used;
    for (size_t i = 0; i < plan.ends.size(); ++i) {
      Arena counter{nullptr};
      for (int g = i ? plan.ends[i - 1] : 0; g < plan.ends[i]; ++g)
        lay_out_group(call, s, batch.sorted[g]->length, items, gradients[g], counter);
      scratch = std::max(scratch, counter.used);
    }
  }
  const Block packed_block(packed), kept_block(kept);
  Teams teams(plan, scratch);
  Arena arena{kept_block.base};
  lay_out_kept(arena);
  run_threads(call.openmp, plan.threads, [&](int thread) {
    Packing packing{s, packed_block.base, 0, thread, plan.threads};
    BackwardWeights(call, raw, packing);
  });
  Packing packing{s, packed_block.base};
  const RawWeights none;
  const BackwardWeights W(call, none, packing);
  std::vector<Gradients*> sorted;
  for (Gradients& d : gradients) sorted.push_back(&d);
  run_groups(call, plan, teams.all, [&](int from, int to, Team& team, int me) {
    if (me == 0) {
      Arena group = team.scratch;
      for (int g = from; g < to; ++g) lay_out_group(call, s, batch.sorted[g]->length, items, gradients[g], group);
    }
    team.barrier.wait();
    Backward(W, call, s, team, me, &batch.sorted[from], batch.sorted.data() + to, &sorted[from], zeros.data()).run();
  });

  // Gradients of the weights: words in the order of the batch.
  std::vector<const Gradients*> by_sequence(call.B);
  for (size_t i = 0; i < gradients.size(); ++i) by_sequence[plan.order[i]] = &gradients[i];
  const auto list = [&](auto f) {
    WordRows rows;
    for (const Sequence& a : batch.sequences)
      for (int t = 0; t < a.length; ++t) rows.push_back(f(a, *by_sequence[a.b], t));
    return rows;
  };
  const int layers = static_cast<int>(call.layers), k = s.k, top = layers - 1;
  const WordRows x = list([&](const Sequence& a, const Gradients&, int t) { return call.x + (a.b * call.T + t) * k; });
  const WordRows c = list([](const Sequence& a, const Gradients&, int t) { return a.composed[t]; });
  const WordRows m = list([](const Sequence& a, const Gradients&, int t) { return a.m[t]; });
  const WordRows dc = list([](const Sequence&, const Gradients& d, int t) { return d.d_composed[t]; });
  struct LayerWords {
    WordRows h_before, h, da;
  };
  std::vector<LayerWords> words;
  for (int i = 0; i < 2 * layers; ++i) {
    const bool is_read = i < layers;
    const int j = i % layers;
    const auto values = [=](const Sequence& a) -> const LayerRows& { return is_read ? a.read[j] : a.write[j]; };
    words.push_back({list([&](const Sequence& a, const Gradients&, int t) { return values(a).h[t]; }),
                     list([&](const Sequence& a, const Gradients&, int t) { return values(a).h[t + 1]; }),
                     list([&](const Sequence&, const Gradients& d, int t) {
                       return (is_read ? d.read[j] : d.write[j]).da[t];
                     })});
  }
  WeightGradients sums;
  float* const* to = call.d_weights;
  const auto add_layer = [&](const LayerWords& layer, const WordRows& in, int parts) {
    sums.add(to[0], parts * k, 0, layer.da, 4, in, parts, k);
    sums.add(to[1], k, 0, layer.da, 4, layer.h_before, 1, k);
    if (to[2] || to[3]) sums.biases.push_back({to[2], to[3], &layer.da, 4});
    to += 4;
  };
  for (int i = 0; i < layers; ++i) add_layer(words[i], i ? words[i - 1].h : x, 1);
  sums.add(to[0], s.d * k, 0, dc, s.d, words[top].h, 1, k);
  sums.add(to[0], s.d * k, k, dc, s.d, m, s.n, k);
  if (to[1]) sums.biases.push_back({to[1], nullptr, &dc, s.d});
  to += 2;
  for (int i = 0; i < layers; ++i) add_layer(words[layers + i], i ? words[layers + i - 1].h : c, i ? 1 : s.d);
  sums.run(call.openmp, s, plan.threads);
}

template <class F>
int catch_errors(const F& f) {
  try {
    f();
    return 0;
  } catch (const std::exception&) {  // no memory, or no threads
    return 1;
  }
}

}  // namespace

extern "C" {

// Whether this CPU can run these instructions.
EXPORT_INT(supports)() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}

// Whether it multiplies bfloat16 in pairs.
EXPORT_INT(supports_half)() { return supports_half(); }

// Numbers that `packed` holds.
EXPORT_SIZE(count_packed)(const Call* call) {
  Packing packing{get_sizes(*call), nullptr};
  const RawWeights none;
  ForwardWeights(*call, none, packing);
  return static_cast<int64_t>(packing.used);
}

// Numbers that `kept` holds.
EXPORT_SIZE(count_kept)(const Call* call) {
  Arena arena{nullptr};
  const Sizes s = get_sizes(*call);
  for (int64_t b = 0; b < call->B; ++b) lay_out(*call, s, static_cast<int>(b), static_cast<int>(call->T), arena);
  return static_cast<int64_t>(arena.used);
}

// Allocates a block of numbers that outlives the call; null if there is no memory.
static Block* make_block(int64_t numbers) {
  try {
    return new Block(static_cast<size_t>(numbers));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
__attribute__((visibility("default"))) void* JOIN(nse_allocate_, ISA)(int64_t numbers) { return make_block(numbers); }
__attribute__((visibility("default"))) float* JOIN(nse_get_numbers_, ISA)(void* block) {
  return static_cast<Block*>(block)->base;
}
__attribute__((visibility("default"))) void JOIN(nse_release_, ISA)(void* block) { delete static_cast<Block*>(block); }

// Writes the weights to `packed`.
EXPORT_INT(pack)(const Call* call) {
  return catch_errors([&] {
    const int threads = static_cast<int>(std::max<int64_t>(1, call->threads));
    run_threads(call->openmp, threads, [&](int thread) {
      Packing packing{get_sizes(*call), call->packed, 0, thread, threads};
      ForwardWeights(*call, RawWeights(*call), packing);
    });
  });
}

EXPORT_INT(forward)(const Call* call) {
  return catch_errors([&] { run_forward(*call); });
}

EXPORT_INT(backward)(const Call* call) {
  return catch_errors([&] { run_backward(*call); });
}

// Computes out = a b, [n, k] times [k, m], in an order that does not depend on the number of threads.
EXPORT_INT(multiply)(float* out, const float* a, const float* b, int64_t n, int64_t k, int64_t m, int64_t threads) {
  return catch_errors([&] {
    const int rows = static_cast<int>(n), inner = static_cast<int>(k), columns = static_cast<int>(m);
    const Sizes outer = {columns, static_cast<int>(round_up(columns, 16)), 1, 1, 0, false};
    Packing count{outer, nullptr}, packing{outer, nullptr};
    count.add(1, false, {nullptr, inner, m, 1});
    const Block packed(count.used), padded(static_cast<size_t>(rows) * outer.K);
    packing.base = packed.base;
    const Matrix W = packing.add(1, false, {b, inner, m, 1});
    const std::vector<float> zeros(outer.K);
    std::vector<const float*> in(rows);
    std::vector<float*> to(rows);
    for (int i = 0; i < rows; ++i) in[i] = a + i * k, to[i] = padded.base + static_cast<ptrdiff_t>(i) * outer.K;
    const Input input = {in.data(), 1};
    const Sizes s = {inner, inner, 1, 1, 0, false};
    run_threads({nullptr, nullptr}, static_cast<int>(threads), [&](int thread) {
      Linear{s, W, &input, 1, zeros.data(), to.data()}.run(rows, thread, static_cast<int>(threads));
    });
    for (int i = 0; i < rows; ++i) std::memcpy(out + i * m, to[i], m * sizeof(float));
  });
}

// Computes a checksum of a sample of the weights, to notice most changes to them.
EXPORT_SIZE(sample)(const float* const* weights, const int64_t* sizes, int64_t count) {
  uint64_t sum = 1469598103934665603u;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < sizes[i]; j += 61) {
      uint32_t bits;
      std::memcpy(&bits, weights[i] + j, sizeof bits);
      sum = (sum ^ bits) * 1099511628211u;
    }
  return static_cast<int64_t>(sum);
}

// Applies exp (0), sigmoid (1) or tanh (2) to numbers in place, for tests.
EXPORT_INT(apply)(int64_t function, float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES) {
    float a[LANES] = {};
    const size_t bytes = static_cast<size_t>(std::min<int64_t>(LANES, count - i)) * sizeof(float);
    std::memcpy(a, x + i, bytes);
    const V v = load(a), y = function == 0 ? exp(v) : function == 1 ? sigmoid(v) : tanh(v);
    std::memcpy(x + i, &y, bytes);
  }
  return 0;
}
}
