"""Tutorial 10: `torch.compile(module, backend="relaxc")`, and what Dynamo and relaxc each do.

    python tutorials/10_torch_compile_backend.py

Shows the graphs of a function with a graph break, a recompilation that turns a size symbolic,
parameters that change, graphs kept on disk, frozen parameters, a fall back to eager, and how to
look for a wrong number.
"""

from __future__ import annotations

import logging
import sys
import tempfile

import torch
from stage_printing import columns, title
from torch import nn

from relaxc.torch_compile import backend, compiled_graphs

# An installed relaxc is found by its name: backend="relaxc".


def graphs() -> None:
    """Print what became of each captured graph so far."""
    rows = []
    for record in compiled_graphs():
        inputs = record.model.inputs if record.model else ()
        shapes = ", ".join(str(list(spec.shape)) for spec in inputs)
        rows.append((record.name, record.outcome, record.operators, shapes or record.reason[:60]))
    columns(rows, "graph", "outcome", "operators", "inputs, or the reason")


@torch.no_grad()
def main() -> int:
    logging.basicConfig(format="    log: %(message).150s")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()

    title("1. Guards: the same sizes run the same code; a second size makes one symbolic")
    fast = torch.compile(module, backend=backend, options={"strict": True})
    for batch in (2, 2, 3, 5, 7):
        x = torch.randn(batch, 4)
        error = (fast(x) - module(x)).abs().max().item()
        print(f"    batch {batch}: {len(compiled_graphs())} graph(s), error {error:.1e}")
        if error > 1e-5:
            return 1
    graphs()
    if len(compiled_graphs()) != 2:
        return 1

    title("2. Parameters are arguments: a change is seen, and nothing is compiled anew")
    split = compiled_graphs()[-1].model.preparation
    assert split is not None
    print(
        f"    inputs {list(split.takes)} are packed by a function of its own, when one has changed"
    )
    module[0].weight.mul_(2)
    error = (fast(x) - module(x)).abs().max().item()
    print(f"    error {error:.1e}, {len(compiled_graphs())} graphs")
    if error > 1e-5:
        return 1

    title("3. Compiled graphs on disk: a new process finds them by the graph, not by the weights")
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1.0, 3.0):
            torch._dynamo.reset()  # what a new process begins with
            module[2].weight.mul_(factor)
            kept = torch.compile(module, backend=backend, options={"cache_dir": folder})
            error = (kept(x) - module(x)).abs().max().item()
            print(f"    weight * {factor}: {compiled_graphs()[-1].outcome}, error {error:.1e}")
            if error > 1e-5:
                return 1
    if compiled_graphs()[-1].outcome != "cached":
        return 1

    title('4. mode="max-autotune" freezes them: fewer inputs, and one compilation for each change')
    torch._dynamo.reset()
    frozen = torch.compile(module, backend=backend, mode="max-autotune")
    for factor in (1.0, 0.5):
        module[0].weight.mul_(factor)
        error = (frozen(x) - module(x)).abs().max().item()
        print(f"    weight * {factor}: error {error:.1e}")
        if error > 1e-5:
            return 1
    graphs()

    title("5. A graph break: two graphs, and Python in between")

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.softmax(-1)
        torch._dynamo.graph_break()
        return y * 2

    before = len(compiled_graphs())
    error = (torch.compile(broken, backend=backend)(x) - broken(x)).abs().max().item()
    print(f"    {len(compiled_graphs()) - before} graphs, error {error:.1e}")

    title("6. What cannot be compiled is left to eager, with a reason; strict raises it")
    spectrum = torch.compile(torch.linalg.eigvalsh, backend=backend)
    spectrum(torch.eye(3))
    graphs()

    title("7. Staged debugging: torch's eager backends first, then relaxc without a pass")
    from relax_passes.pipeline import default_pipeline

    stages = {
        'backend="eager" (Dynamo alone)': {"backend": "eager"},
        'backend="aot_eager" (and AOTAutograd)': {"backend": "aot_eager"},
        "relaxc without operator fusion": {
            "backend": backend,
            "options": {"passes": default_pipeline().without("fuse_operators")},
        },
        "relaxc": {"backend": backend},
    }
    for name, choice in stages.items():
        torch._dynamo.reset()
        error = (torch.compile(module, **choice)(x) - module(x)).abs().max().item()
        print(f"    {name:40} error {error:.1e}")
        if error > 1e-5:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
