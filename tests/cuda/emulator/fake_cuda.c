// Stand-ins for libcuda.so.1 (compiled with -DDRIVER) and libcudart.so.13, holding just the symbols
// that TVM's CUDA runtime imports. There is one device; its memory is this process's memory.
//
// A kernel image is "EMULATOR:" and the path of a shared library that compile_kernel.py made.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graphs.h"
#include "guarded_memory.h"

typedef int Result;
typedef void* Ptr;
enum {
  SUCCESS = 0,
  OUT_OF_MEMORY = 2,
  INVALID_IMAGE = 200,
  NOT_FOUND = 500,
  LAUNCH_FAILED = 700,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900
};

#ifdef DRIVER
static const char kImagePrefix[] = "EMULATOR:";
static char last_error[600] = "emulator: error";

typedef struct {
  int (*launch)(void**, const unsigned*, const unsigned*, unsigned);
  const char* (*error)(void);
  const unsigned* argument_bytes;  // ends with 0
} Function;

typedef struct {
  unsigned grid[3], block[3], dynamic_shared;
  Ptr stream, attributes;
  unsigned attribute_count;
} LaunchConfig;

Result cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, length, "CUDA emulated on the CPU");
  return SUCCESS;
}
Result cuFuncSetAttribute(Ptr function, int attribute, int value) { return SUCCESS; }
Result cuGetErrorName(Result result, const char** text) {
  *text = last_error;
  return SUCCESS;
}
Result cuGetErrorString(Result result, const char** text) {
  *text = last_error;
  return SUCCESS;
}

Result cuModuleLoadData(Ptr* module, const void* image) {
  size_t prefix = strlen(kImagePrefix);
  if (strncmp(image, kImagePrefix, prefix)) {
    snprintf(last_error, sizeof last_error, "emulator: not an emulated kernel");
    return INVALID_IMAGE;
  }
  *module = dlopen((const char*)image + prefix, RTLD_NOW | RTLD_LOCAL);
  if (*module) return SUCCESS;
  snprintf(last_error, sizeof last_error, "emulator: %s", dlerror());
  return INVALID_IMAGE;
}
Result cuModuleUnload(Ptr module) { return SUCCESS; }

Result cuModuleGetFunction(Ptr* result, Ptr module, const char* name) {
  char symbol[512];
  snprintf(symbol, sizeof symbol, "emulator_launch_%s", name);
  Function* function = malloc(sizeof *function);
  *(void**)&function->launch = dlsym(module, symbol);
  *(void**)&function->error = dlsym(module, "emulator_error");
  snprintf(symbol, sizeof symbol, "emulator_argument_bytes_%s", name);
  function->argument_bytes = dlsym(module, symbol);
  if (!function->launch) {
    snprintf(last_error, sizeof last_error, "emulator: no kernel %s", name);
    free(function);
    return NOT_FOUND;
  }
  *result = function;
  return SUCCESS;
}

typedef struct Launch {
  Function* function;
  LaunchConfig config;
  uint64_t values[64];
  struct Launch* next;
} Launch;
typedef struct {
  Launch *first, **end;
} Graph;
static Graph* capturing;

static Result record_launch(const LaunchConfig* config, Function* function, void** arguments) {
  Launch* launch = calloc(1, sizeof *launch);
  launch->function = function;
  launch->config = *config;
  for (int at = 0; function->argument_bytes[at]; at++)
    memcpy(&launch->values[at], arguments[at], function->argument_bytes[at]);
  *capturing->end = launch;
  capturing->end = &launch->next;
  return SUCCESS;
}
int emulator_begin_capture(void) {
  capturing = calloc(1, sizeof *capturing);
  capturing->end = &capturing->first;
  return SUCCESS;
}
void* emulator_end_capture(void) {
  Graph* graph = capturing;
  capturing = 0;
  return graph;
}
int emulator_is_capturing(void) { return capturing != 0; }

Result cuLaunchKernelEx(const LaunchConfig* config, Ptr handle, void** arguments, void** extra) {
  Function* function = handle;
  if (capturing) return record_launch(config, function, arguments);
  if (!function->launch(arguments, config->grid, config->block, config->dynamic_shared))
    return SUCCESS;
  snprintf(last_error, sizeof last_error, "%s", function->error());
  return LAUNCH_FAILED;
}
int emulator_launch_graph(void* graph) {
  for (Launch* launch = ((Graph*)graph)->first; launch; launch = launch->next) {
    void* arguments[64];
    for (int at = 0; at < 64; at++) arguments[at] = &launch->values[at];
    Result result = cuLaunchKernelEx(&launch->config, launch->function, arguments, 0);
    if (result) return result;
  }
  return SUCCESS;
}
void emulator_free_graph(void* graph) {
  for (Launch *launch = ((Graph*)graph)->first, *next; launch; launch = next) {
    next = launch->next;
    free(launch);
  }
  free(graph);
}
Result cuTensorMapEncodeTiled() { return NOT_SUPPORTED; }

#else  // the runtime library

Result cudaMalloc(Ptr* result, size_t bytes) {
  if (emulator_is_capturing()) return CAPTURE_UNSUPPORTED;
  *result = emulator_allocate(bytes);
  return *result ? SUCCESS : OUT_OF_MEMORY;
}
Result cudaFree(Ptr pointer) {
  if (emulator_free(pointer)) fprintf(stderr, "emulator: a write past the end of a buffer\n");
  return SUCCESS;
}
Result cudaMallocHost(Ptr* result, size_t bytes) {
  return posix_memalign(result, 256, bytes) ? OUT_OF_MEMORY : SUCCESS;
}
Result cudaFreeHost(Ptr pointer) {
  free(pointer);
  return SUCCESS;
}
Result cudaMemGetInfo(size_t* available, size_t* total) {
  *total = (size_t)16 << 30;
  *available = *total - emulator_allocated();
  return SUCCESS;
}
Result cudaMemcpyAsync(Ptr to, const void* from, size_t bytes, int kind, Ptr stream) {
  if (emulator_is_capturing()) return CAPTURE_UNSUPPORTED;  // none is recorded yet
  memcpy(to, from, bytes);
  return SUCCESS;
}
Result cudaMemcpyPeerAsync(Ptr to, int a, const void* from, int b, size_t bytes, Ptr stream) {
  memcpy(to, from, bytes);
  return SUCCESS;
}

// Attribute numbers as in the CUDA runtime API; an sm_80.
Result cudaDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: *value = 1024; break;       // threads per block
    case 2: *value = 1024; break;       // block size in x
    case 3: *value = 1024; break;       // in y
    case 4: *value = 64; break;         // in z
    case 8: *value = 49152; break;      // shared memory per block
    case 10: *value = 32; break;        // warp size
    case 12: *value = 65536; break;     // registers per block
    case 13: *value = 1410000; break;   // clock, kHz
    case 16: *value = 108; break;       // multiprocessors
    case 38: *value = 40 << 20; break;  // L2 cache
    case 75: *value = 8; break;         // compute capability, major
    case 76: *value = 0; break;         // and minor
    default: *value = 0;
  }
  return SUCCESS;
}
Result cudaGetDevice(int* device) {
  *device = 0;
  return SUCCESS;
}
Result cudaSetDevice(int device) { return SUCCESS; }
Result cudaGetDeviceCount(int* count) {
  *count = 1;
  return SUCCESS;
}
// Only the fields TVM reads: the name at offset 0, the global memory size at 288.
Result cudaGetDeviceProperties(Ptr properties, int device) {
  memset(properties, 0, 296);
  strcpy(properties, "emulated");
  *(size_t*)((char*)properties + 288) = (size_t)16 << 30;
  return SUCCESS;
}
const char* cudaGetErrorName(Result result) { return "cudaError"; }
const char* cudaGetErrorString(Result result) { return "emulator error"; }
Result cudaGetLastError(void) { return SUCCESS; }
Result cudaPeekAtLastError(void) { return SUCCESS; }

Result cudaEventCreate(Ptr* event) {
  *event = calloc(1, sizeof(struct timespec));
  return SUCCESS;
}
Result cudaEventDestroy(Ptr event) {
  free(event);
  return SUCCESS;
}
Result cudaEventRecord(Ptr event, Ptr stream) {
  clock_gettime(CLOCK_MONOTONIC, event);
  return SUCCESS;
}
Result cudaEventSynchronize(Ptr event) { return SUCCESS; }
Result cudaEventElapsedTime(float* ms, struct timespec* from, struct timespec* to) {
  *ms = (to->tv_sec - from->tv_sec) * 1e3 + (to->tv_nsec - from->tv_nsec) * 1e-6;
  return SUCCESS;
}
Result cudaStreamCreate(Ptr* stream) {
  *stream = 0;
  return SUCCESS;
}
Result cudaStreamCreateWithFlags(Ptr* stream, unsigned flags) {
  *stream = 0;
  return SUCCESS;
}
Result cudaStreamDestroy(Ptr stream) { return SUCCESS; }
Result cudaStreamSynchronize(Ptr stream) { return SUCCESS; }
Result cudaStreamWaitEvent(Ptr stream, Ptr event, unsigned flags) { return SUCCESS; }
static int graph_launches;
int emulator_graph_launches(void) { return graph_launches; }
Result cudaStreamBeginCapture(Ptr stream, int mode) { return emulator_begin_capture(); }
Result cudaStreamEndCapture(Ptr stream, Ptr* graph) {
  *graph = emulator_end_capture();
  return SUCCESS;
}
Result cudaGraphInstantiate(Ptr* executable, Ptr graph, unsigned long long flags) {
  *executable = graph;
  return SUCCESS;
}
Result cudaGraphLaunch(Ptr graph, Ptr stream) {
  graph_launches++;
  return emulator_launch_graph(graph);
}
Result cudaGraphDestroy(Ptr graph) { return SUCCESS; }  // its executable goes on
Result cudaGraphExecDestroy(Ptr graph) {
  emulator_free_graph(graph);
  return SUCCESS;
}
#endif
