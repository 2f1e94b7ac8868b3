// Device memory in which an access outside of a buffer is seen.
#pragma once
#include <stddef.h>

void* emulator_allocate(size_t bytes);  // filled with 0xFF bytes; NULL when memory is out
int emulator_free(void* buffer);        // nonzero: the slack behind the buffer was written
size_t emulator_allocated(void);
int emulator_find_allocation(const void* address, const char** start, size_t* bytes);
