"""A CUDA device emulated on the CPU, for tests.

`install.py` makes `tvm.cuda(0)` exist, so that whole models run; `launch.py` runs one kernel from
its source. Either way the generated CUDA C becomes C++ (`compile_kernel.py`, `inline_ptx.py`) on
top of `include/`, whose files have one idea each: fibers, scheduling, shuffles, asynchronous
copies, Tensor Cores, and, in checked mode, who touched each byte of shared memory and what the
memory system moved.
"""
