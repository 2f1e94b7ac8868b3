// cvt: two floats to one register of 16-bit floats, and a float to tf32.
#pragma once
#include <cmath>

#include "half.hpp"

namespace emulator {

// The first operand becomes the upper half.
template <class T>
static inline unsigned pack(float upper, float lower) {
  T parts[2] = {lower, upper};
  unsigned word;
  static_assert(sizeof parts == sizeof word);
  memcpy(&word, parts, sizeof word);
  return word;
}

// To nearest, ties away from zero; ten bits of the mantissa are left.
static inline unsigned to_tf32(float value) {
  unsigned word;
  memcpy(&word, &value, 4);
  return std::isfinite(value) ? (word + 0x1000) & ~0x1fffu : word;
}

}  // namespace emulator
