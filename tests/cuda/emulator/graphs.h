// CUDA graphs: while a stream captures, launches are recorded instead of run; a graph runs them.
#pragma once

int emulator_begin_capture(void);
void* emulator_end_capture(void);
int emulator_is_capturing(void);
int emulator_launch_graph(void* graph);
void emulator_free_graph(void* graph);
