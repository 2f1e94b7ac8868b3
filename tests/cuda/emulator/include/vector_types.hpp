// CUDA's vector types (float4, uint2, ...) with their alignments.
#pragma once
#include <cstddef>

#define EMULATOR_VECTOR(N, T)                                                    \
  struct N##1 { T x; };                                                          \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; };                              \
  struct N##3 { T x, y, z; };                                                    \
  struct __align__(sizeof(T) > 4 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };   \
  static inline N##1 make_##N##1(T x) { return {x}; }                            \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }                    \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }            \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTOR(char, signed char)
EMULATOR_VECTOR(uchar, unsigned char)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(ushort, unsigned short)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(uint, unsigned)
EMULATOR_VECTOR(longlong, long long)
EMULATOR_VECTOR(ulonglong, unsigned long long)
EMULATOR_VECTOR(long, long)
EMULATOR_VECTOR(ulong, unsigned long)
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)

