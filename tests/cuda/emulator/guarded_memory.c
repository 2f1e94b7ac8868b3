// Each buffer lies between two inaccessible margins, so wide that an index that is far out of range
// meets no other buffer. It ends at the second one, up to an alignment of 256 bytes; the slack in
// between is checked when the buffer is freed.
#define _GNU_SOURCE
#include "guarded_memory.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE ((size_t)4096)
#define MARGIN ((size_t)64 << 20)  // addresses only: no memory is behind them
#define POISON 0xFF
#define MOST 65536

typedef struct {
  char* mapping;
  size_t mapped;
  char* user;
  size_t bytes;
} Allocation;
static Allocation allocations[MOST];
static int allocation_count;
static size_t used;

void* emulator_allocate(size_t bytes) {
  size_t body = ((bytes ? bytes : 1) + PAGE - 1) / PAGE * PAGE;
  if (allocation_count == MOST) return NULL;
  size_t mapped = body + 2 * MARGIN;
  char* base = mmap(0, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return NULL;
  if (mprotect(base + MARGIN, body, PROT_READ | PROT_WRITE)) return munmap(base, mapped), NULL;
  memset(base + MARGIN, POISON, body);
  size_t offset = (body - bytes) & ~(size_t)255;
  Allocation made = {base, mapped, base + MARGIN + offset, bytes};
  allocations[allocation_count++] = made;
  used += bytes;
  return made.user;
}

static int slack_was_written(const Allocation* a) {
  for (char* p = a->user + a->bytes; p < a->mapping + a->mapped - MARGIN; p++)
    if (*(unsigned char*)p != POISON) return 1;
  return 0;
}

int emulator_free(void* buffer) {
  for (int i = allocation_count - 1; i >= 0; i--) {
    if (allocations[i].user != buffer) continue;
    int written = slack_was_written(&allocations[i]);
    munmap(allocations[i].mapping, allocations[i].mapped);
    used -= allocations[i].bytes;
    allocations[i] = allocations[--allocation_count];
    return written;
  }
  return 0;
}

size_t emulator_allocated(void) { return used; }

// Finds the mapping that holds an address, margins included; tells where its buffer lies.
int emulator_find_allocation(const void* address, const char** start, size_t* bytes) {
  const char* p = address;
  for (int i = 0; i < allocation_count; i++) {
    const Allocation* a = &allocations[i];
    if (p < a->mapping || p >= a->mapping + a->mapped) continue;
    *start = a->user;
    *bytes = a->bytes;
    return 1;
  }
  return 0;
}
