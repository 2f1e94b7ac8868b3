// float16 and bfloat16: stored in 16 bits, computed in float and rounded after each operation.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct __half {
  _Float16 value;
  __half() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  __half(T x) : value((_Float16)x) {}
  operator float() const { return (float)value; }
};

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  __nv_bfloat16(T x) {  // to nearest, ties to even
    float value = (float)x;
    uint32_t word;
    memcpy(&word, &value, 4);
    bits = value != value ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
  }
  operator float() const {
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
};

using half = __half;
using nv_bfloat16 = __nv_bfloat16;
struct __align__(4) __half2 { __half x, y; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
using half2 = __half2;
using nv_bfloat162 = __nv_bfloat162;
static inline half2 make_half2(half x, half y) { return {x, y}; }
static inline nv_bfloat162 make_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return {x, y}; }

#define EMULATOR_OPERATOR(T, op)                                               \
  static inline T operator op(T a, T b) { return T((float)a op (float)b); }    \
  static inline T& operator op##=(T& a, T b) { return a = a op b; }
#define EMULATOR_COMPARISON(T, op, name)                                       \
  static inline bool operator op(T a, T b) { return (float)a op (float)b; }    \
  static inline bool name(T a, T b) { return a op b; }
#define EMULATOR_BINARY(T, name, value)                                        \
  static inline T name(T p, T q) { float a = p, b = q; return T(value); }
#define EMULATOR_UNARY(T, name, f) \
  static inline T name(T a) { return T(f((float)a)); }
#define EMULATOR_HALF(T)                                                       \
  EMULATOR_OPERATOR(T, +) EMULATOR_OPERATOR(T, -)                              \
  EMULATOR_OPERATOR(T, *) EMULATOR_OPERATOR(T, /)                              \
  EMULATOR_COMPARISON(T, <, __hlt) EMULATOR_COMPARISON(T, >, __hgt)            \
  EMULATOR_COMPARISON(T, <=, __hle) EMULATOR_COMPARISON(T, >=, __hge)          \
  EMULATOR_COMPARISON(T, ==, __heq) EMULATOR_COMPARISON(T, !=, __hne)          \
  EMULATOR_BINARY(T, __hadd, a + b) EMULATOR_BINARY(T, __hsub, a - b)          \
  EMULATOR_BINARY(T, __hmul, a * b) EMULATOR_BINARY(T, __hdiv, a / b)          \
  EMULATOR_BINARY(T, __hmax, fmaxf(a, b)) EMULATOR_BINARY(T, __hmin, fminf(a, b)) \
  EMULATOR_UNARY(T, operator-, -) EMULATOR_UNARY(T, __habs, fabsf)             \
  EMULATOR_UNARY(T, hexp, expf) EMULATOR_UNARY(T, hexp2, exp2f)                \
  EMULATOR_UNARY(T, hlog, logf) EMULATOR_UNARY(T, hlog2, log2f)                \
  EMULATOR_UNARY(T, hsqrt, sqrtf) EMULATOR_UNARY(T, hrsqrt, 1 / sqrtf)         \
  EMULATOR_UNARY(T, hsin, sinf) EMULATOR_UNARY(T, hcos, cosf)                  \
  EMULATOR_UNARY(T, htanh, tanhf) EMULATOR_UNARY(T, hfloor, floorf)            \
  EMULATOR_UNARY(T, hceil, ceilf) EMULATOR_UNARY(T, htrunc, truncf)            \
  EMULATOR_UNARY(T, hrint, rintf)                                              \
  static inline T __hfma(T a, T b, T c) { return T(fmaf(a, b, c)); }           \
  static inline bool __hisnan(T a) { return std::isnan((float)a); }
EMULATOR_HALF(__half)
EMULATOR_HALF(__nv_bfloat16)

static inline float __half2float(half x) { return x; }
static inline half __float2half(float x) { return x; }
static inline half __float2half_rn(float x) { return x; }
static inline float __bfloat162float(nv_bfloat16 x) { return x; }
static inline nv_bfloat16 __float2bfloat16(float x) { return x; }
static inline nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
