// Counts what a kernel asks of the memory system, per warp instruction as a GPU does.
//
// Fibers run one by one, so the accesses of a warp are put together again: the n-th time that a
// thread passes an instruction belongs with the n-th time of the other threads of its warp.
//  - Global memory moves in sectors of 32 bytes: each one touched by an instruction counts once.
//  - Shared memory has 32 banks of 4 bytes. The 32 lanes of an access of up to 4 bytes go in one
//    wavefront, 16 lanes where it is 8 bytes, 8 lanes where it is 16. Lanes that want different
//    words of one bank need further wavefronts: those are the bank conflicts.
#pragma once
#include <map>
#include <set>
#include <utility>

#include "shadow_memory.hpp"

// Finds the device buffer that holds an address; defined by the fake CUDA runtime.
extern "C" int emulator_find_allocation(const void* address, const char** start, size_t* bytes);

namespace emulator {

struct Traffic {
  uint64_t global_read_bytes, global_written_bytes;
  uint64_t shared_instructions, bank_conflicts;
  uint64_t matrix_instructions, barriers;
};
static Traffic traffic;

}  // namespace emulator

#ifndef EMULATOR_CHECKED
namespace emulator {
static inline void traffic_new_block() {}
static inline void traffic_end_block() {}
static inline void traffic_access(const void*, unsigned, bool, const void*) {}
}  // namespace emulator
#else
namespace emulator {

struct WarpAccess {
  unsigned lanes = 0, bytes = 0;
  bool writes = false, shared = false;
  const char* address[32];
};
using Visit = std::pair<const void*, unsigned>;  // an instruction, and how often it was passed
static std::vector<std::map<Visit, WarpAccess>> open_accesses;  // of each warp
static std::vector<std::map<const void*, unsigned>> visits;     // of each thread

static uint64_t EMULATOR_UNCHECKED count_conflicts(const WarpAccess& access) {
  unsigned together = access.bytes <= 4 ? 32 : access.bytes == 8 ? 16 : 8;
  uint64_t conflicts = 0;
  for (unsigned first = 0; first < 32; first += together) {
    std::set<uintptr_t> words[32];
    size_t wavefronts = 1;
    for (unsigned lane = first; lane < first + together; lane++) {
      if (!(access.lanes >> lane & 1)) continue;
      uintptr_t begin = (uintptr_t)access.address[lane];
      for (uintptr_t word = begin / 4; word <= (begin + access.bytes - 1) / 4; word++) {
        words[word % 32].insert(word);
        wavefronts = std::max(wavefronts, words[word % 32].size());
      }
    }
    conflicts += wavefronts - 1;
  }
  return conflicts;
}

static uint64_t EMULATOR_UNCHECKED count_sectors(const WarpAccess& access) {
  std::set<uintptr_t> sectors;
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(access.lanes >> lane & 1)) continue;
    uintptr_t begin = (uintptr_t)access.address[lane];
    for (uintptr_t s = begin / 32; s <= (begin + access.bytes - 1) / 32; s++) sectors.insert(s);
  }
  return sectors.size();
}

static void EMULATOR_UNCHECKED close_access(const WarpAccess& access) {
  if (access.shared) {
    traffic.shared_instructions++;
    traffic.bank_conflicts += count_conflicts(access);
  } else {
    (access.writes ? traffic.global_written_bytes : traffic.global_read_bytes) +=
        32 * count_sectors(access);
  }
}

static void EMULATOR_UNCHECKED traffic_new_block() {
  open_accesses.assign(warps.size(), {});
  visits.assign(fibers.size(), {});
}

static void EMULATOR_UNCHECKED traffic_end_block() {
  for (auto& warp : open_accesses)
    for (auto& [visit, access] : warp) close_access(access);
}

static void EMULATOR_UNCHECKED check_bounds(const char* p, unsigned bytes, bool writes) {
  const char* start;
  size_t size;
  if (!emulator_find_allocation(p, &start, &size)) return;
  if (p >= start && p + bytes <= start + size) return;
  fail(writes ? "a write outside a buffer" : "a read outside a buffer");
}

// Adds one thread's access at `site`, the address of an instruction, to its warp's.
static void EMULATOR_UNCHECKED traffic_access(const void* pointer, unsigned bytes, bool writes,
                                              const void* site) {
  const char* p = (const char*)pointer;
  bool shared = is_static_shared(p) || is_dynamic_shared(p);
  const char* start;
  size_t size;
  if (!shared && !emulator_find_allocation(p, &start, &size)) return;  // a local array
  if (!shared) check_bounds(p, bytes, writes);
  if (error[0]) fail_here("");
  Visit visit{site, visits[thread_number()][site]++};
  auto& open = open_accesses[current->warp];
  WarpAccess& access = open[visit];
  access.lanes |= 1u << current->lane;
  access.address[current->lane] = p;
  access.bytes = bytes;
  access.writes = writes;
  access.shared = shared;
  if (access.lanes == 0xffffffffu) {
    close_access(access);
    open.erase(visit);
  }
}

}  // namespace emulator
#endif
