// ldmatrix and mma.sync, with the register layouts of the PTX manual ("Matrix Fragments").
#pragma once
#include <type_traits>

#include "fibers.hpp"
#include "half.hpp"
#include "traffic.hpp"

namespace emulator {

// Element types: how wide, and how an element of a 32-bit register is read.
struct F16 {
  static constexpr int kPerRegister = 2;
  using Sum = float;
  static float get(const unsigned* r, int i) {
    _Float16 value;
    memcpy(&value, (const char*)r + 2 * i, 2);
    return (float)value;
  }
};
struct BF16 {
  static constexpr int kPerRegister = 2;
  using Sum = float;
  static float get(const unsigned* r, int i) {
    unsigned bits = *r >> 16 * i << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
};
struct TF32 {  // a float whose last 13 bits are ignored
  static constexpr int kPerRegister = 1;
  using Sum = float;
  static float get(const unsigned* r, int) {
    unsigned bits = *r & ~0x1fffu;
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
};
struct S8 {
  static constexpr int kPerRegister = 4;
  using Sum = int;
  static int get(const unsigned* r, int i) { return (int8_t)(*r >> 8 * i); }
};
struct U8 {
  static constexpr int kPerRegister = 4;
  using Sum = int;
  static int get(const unsigned* r, int i) { return (uint8_t)(*r >> 8 * i); }
};

// dp4a: c and the products of four bytes of each register, each signed or not; sums wrap around.
template <class A, class B>
static inline int dot_of_bytes(unsigned a, unsigned b, int c) {
  for (int i = 0; i < 4; i++) c += A::get(&a, i) * B::get(&b, i);
  return c;
}

// Loads `Count` matrices of 8 x 8 16-bit elements; lane 8 j + i holds the address of row i of
// matrix j. Lane 4 r + c gets elements (r, 2 c) and (r, 2 c + 1), or, transposed, (2 c, r) and
// (2 c + 1, r).
template <int Count, bool Transposed>
static EMULATOR_UNCHECKED void load_matrices(unsigned* registers, unsigned row, int line) {
  int parity = current->parity ^= 1, lane = current->lane;
  uint64_t* rows = warp_of_current().exchange[parity];
  if (lane < 8 * Count) {
    char* address = from_window(row, 16);
    shadow_access(address, 16, false);
    traffic_access(address, 16, false, __builtin_return_address(0));
    rows[lane] = (uint64_t)address;
  }
  warp_sync(~0u, line);
  for (int j = 0; j < Count; j++) {
    uint16_t pair[2];
    for (int k = 0; k < 2; k++) {
      int r = Transposed ? lane % 4 * 2 + k : lane / 4;
      int c = Transposed ? lane / 4 : lane % 4 * 2 + k;
      memcpy(&pair[k], (const char*)rows[8 * j + r] + 2 * c, 2);
    }
    memcpy(&registers[j], pair, 4);
  }
}

// D = A B + C for a tile of 16 x 8 with `Depth` products a result. With E elements a register,
// groups of 4 E columns of A take two registers, rows 0-7 and rows 8-15, and one register of B.
template <class T, class U, int Depth>
static EMULATOR_UNCHECKED void multiply(typename T::Sum* d, const unsigned* a, const unsigned* b,
                     const typename T::Sum* c, int line) {
  static_assert(T::kPerRegister == U::kPerRegister);
  constexpr int E = T::kPerRegister, kGroups = Depth / (4 * E);
  int parity = current->parity ^= 1, lane = current->lane;
  auto fragments = warp_of_current().fragments[parity];
  for (int i = 0; i < 2 * kGroups; i++) fragments[lane][i] = a[i];
  for (int i = 0; i < kGroups; i++) fragments[lane][4 + i] = b[i];
  if (!lane) traffic.matrix_instructions++;
  if (warp_sync(~0u, line) != ~0u) fail_here("a matrix instruction without all lanes of the warp");
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    typename T::Sum sum = c[i];
    for (int k = 0; k < Depth; k++) {
      int group = k / (4 * E), at = k % (4 * E);
      const unsigned* left = &fragments[row % 8 * 4 + at / E][row / 8 + 2 * group];
      const unsigned* right = &fragments[column * 4 + at / E][4 + group];
      sum += T::get(left, at % E) * U::get(right, at % E);
    }
    d[i] = sum;
  }
}

}  // namespace emulator
