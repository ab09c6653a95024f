// Sixteen floats at a time, in the compiler's vector extension: the same source for AVX-512, AVX2 and NEON.

#pragma once

#include <cstdint>

namespace {

constexpr int kLanes = 16;
typedef float vfloat __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vint __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t vbits __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t vhalf __attribute__((vector_size(32), aligned(2), may_alias));

struct bf16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  uint32_t wide = uint32_t(x.bits) << 16;
  float out;
  __builtin_memcpy(&out, &wide, 4);
  return out;
}

inline void from_float(float x, float& out) { out = x; }
inline void from_float(float x, bf16& out) {
  uint32_t wide;
  __builtin_memcpy(&wide, &x, 4);
  const bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
  out.bits = is_nan ? uint16_t((wide >> 16) | 0x40) : uint16_t((wide + 0x7fffu + ((wide >> 16) & 1)) >> 16);
}

inline vfloat load(const float* p) { return *reinterpret_cast<const vfloat*>(p); }
inline vfloat load(const bf16* p) {
  vbits wide = __builtin_convertvector(*reinterpret_cast<const vhalf*>(p), vbits) << 16;
  return reinterpret_cast<vfloat>(wide);
}
inline void store(float* p, vfloat x) { *reinterpret_cast<vfloat*>(p) = x; }

// exp for x <= 0: 2^n times a polynomial on [-ln2/2, ln2/2], relative error below 2e-7; exactly 0 below -87.
inline vfloat exp_nonpositive(vfloat x) {
  const vint is_zero = x < -87.0f;
  x = is_zero ? (vfloat{} - 87.0f) : x;
  const vint n = __builtin_convertvector(x * 1.44269504f - 0.5f, vint);
  const vfloat whole = __builtin_convertvector(n, vfloat);
  const vfloat r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  vfloat poly = vfloat{} + 1.9875691e-4f;
  poly = poly * r + 1.3981999e-3f;
  poly = poly * r + 8.3334519e-3f;
  poly = poly * r + 4.1665796e-2f;
  poly = poly * r + 1.6666665e-1f;
  poly = poly * r + 0.5f;
  poly = poly * r * r + r + 1.0f;
  const vint power = (n + 127) << 23;
  const vfloat out = poly * reinterpret_cast<vfloat>(power);
  return is_zero ? vfloat{} : out;
}

// score[r][column..column+16) = sum over d of query[r][d] * key[d][column..], R rows at a time.
template <int R, class T>
inline void score_rows(const float* query, const T* key, float* score, int dim, int block_tokens, int padded) {
  int column = 0;
  for (; column + 2 * kLanes <= block_tokens; column += 2 * kLanes) {
    vfloat low[R] = {}, high[R] = {};
    for (int d = 0; d < dim; ++d) {
      const vfloat k0 = load(key + d * block_tokens + column);
      const vfloat k1 = load(key + d * block_tokens + column + kLanes);
      for (int r = 0; r < R; ++r) {
        low[r] += k0 * query[r * dim + d];
        high[r] += k1 * query[r * dim + d];
      }
    }
    for (int r = 0; r < R; ++r) {
      store(score + r * padded + column, low[r]);
      store(score + r * padded + column + kLanes, high[r]);
    }
  }
  for (; column + kLanes <= block_tokens; column += kLanes) {
    vfloat sum[R] = {};
    for (int d = 0; d < dim; ++d) {
      const vfloat k = load(key + d * block_tokens + column);
      for (int r = 0; r < R; ++r) sum[r] += k * query[r * dim + d];
    }
    for (int r = 0; r < R; ++r) store(score + r * padded + column, sum[r]);
  }
  for (; column < block_tokens; ++column)
    for (int r = 0; r < R; ++r) {
      float sum = 0.0f;
      for (int d = 0; d < dim; ++d) sum += query[r * dim + d] * to_float(key[d * block_tokens + column]);
      score[r * padded + column] = sum;
    }
}

// out[r] += sum over tokens begin..end of weight[r][t] * value[t].
template <int R, class T>
inline void mix_rows(const float* weight, const T* value, float* out, int dim, int padded, int begin, int end) {
  int d = 0;
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
    vfloat low[R], high[R];
    for (int r = 0; r < R; ++r) {
      low[r] = load(out + r * dim + d);
      high[r] = load(out + r * dim + d + kLanes);
    }
    for (int t = begin; t < end; ++t) {
      const vfloat v0 = load(value + t * dim + d), v1 = load(value + t * dim + d + kLanes);
      for (int r = 0; r < R; ++r) {
        low[r] += v0 * weight[r * padded + t];
        high[r] += v1 * weight[r * padded + t];
      }
    }
    for (int r = 0; r < R; ++r) {
      store(out + r * dim + d, low[r]);
      store(out + r * dim + d + kLanes, high[r]);
    }
  }
  for (; d < dim; ++d)
    for (int r = 0; r < R; ++r) {
      float sum = out[r * dim + d];
      for (int t = begin; t < end; ++t) sum += weight[r * padded + t] * to_float(value[t * dim + d]);
      out[r * dim + d] = sum;
    }
}

}  // namespace
