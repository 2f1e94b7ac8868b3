"""A CUDA device emulated on the CPU, for tests: numbers, memory faults, barriers, races."""
