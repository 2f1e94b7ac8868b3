// Device math functions that C++ lacks or names otherwise. Fast variants are computed exactly.
#pragma once
#include <cmath>
#include <type_traits>

// CUDA's max and min drop a NaN operand, as fmax and fmin do.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmax((C)a, (C)b);
  else return (C)a < (C)b ? (C)b : (C)a;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
static inline std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmin((C)a, (C)b);
  else return (C)b < (C)a ? (C)b : (C)a;
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
#define CUDART_INF_F HUGE_VALF
#define CUDART_INF HUGE_VAL
#define CUDART_NAN_F NAN
#define __expf expf
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __exp10f exp10f
template <class T>
static inline T __ldg(const T* p) {
  return *p;
}
