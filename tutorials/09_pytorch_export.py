"""Tutorial 9: a PyTorch module on its way to a Relax graph.

    python tutorials/09_pytorch_export.py

A small module with a mask, an in-place write and a counter. Each step prints what became of it:
torch's exported graph, the core ATen operators, the Relax graph, and the compiled model. Then
parameters that stay inputs, and loops and branches that the data decides.
"""

from __future__ import annotations

import sys

import torch
from stage_printing import columns, show, title
from torch import nn
from torch._higher_order_ops import while_loop

import relaxc
from frontends.torch import import_torch
from frontends.torch.export_program import decompositions
from frontends.torch.registry import REGISTRY


class Scorer(nn.Module):
    """Scores rows, hides masked ones, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a score for each row, and the rows that are kept."""
        self.calls += 1
        scores = nn.functional.softplus(self.layer(x)).sum(-1)
        scores[~keep] = -1.0
        return {"scores": scores, "kept": x[keep]}


def main() -> int:
    torch.manual_seed(0)
    module = Scorer().eval()
    x, keep = torch.randn(5, 4), torch.tensor([True, False, True, True, False])

    title("1. torch.export: one graph, whatever Python did to make it")
    shapes = {"x": {0: "rows"}, "keep": {0: "rows"}}
    rows = torch.export.Dim("rows", min=1, max=1000)
    program = torch.export.export(
        module, (x, keep), dynamic_shapes={"x": {0: rows}, "keep": {0: rows}}
    )
    show(program.graph_module.code, 40)

    title("2. Decomposition: functional core ATen operators, and those worth keeping whole")
    core = program.run_decompositions(decompositions())
    names = [str(n.target) for n in core.graph.nodes if n.op == "call_function"]
    columns([(n, "yes" if n in REGISTRY else "a size or an assertion") for n in names],
            "operator", "has a converter")  # fmt: skip
    print("\nThe write to `calls` became a result of the graph:")
    print("   ", dict(core.graph_signature.buffers_to_mutate))

    title("3. The Relax graph: a size that only the data decides is read into a symbol")
    imported = import_torch(module, (x, keep), dynamic_shapes=shapes)
    show(imported.module["main"].script(), 60)

    title("4. The compiled model: state goes in, state comes out")
    model = relaxc.compile(module, (x, keep), dynamic_shapes=shapes)
    columns([(s.name, s.shape, s.dtype) for s in (*model.inputs, *model.outputs)],
            "tensor", "shape", "dtype")  # fmt: skip
    expected = Scorer().eval()
    expected.load_state_dict(module.state_dict())
    calls = torch.zeros((), dtype=torch.int64)
    for length in (5, 3, 8):
        x, keep = torch.randn(length, 4), torch.rand(length) > 0.4
        scores, kept, calls = model(x, keep, calls)
        want = expected(x, keep)
        error = (scores - want["scores"]).abs().max().item()
        print(f"    {length} rows, {int(keep.sum())} kept: error {error:.1e}, calls {int(calls)}")
        if error > 1e-5 or not torch.equal(kept, want["kept"]) or calls != expected.calls:
            return 1

    title("5. Parameters as inputs: bound once, and a change in place is seen")
    layer = nn.Linear(4, 3).eval()
    model = relaxc.compile(layer, (x,), keep_params=True)
    columns([(s.name, s.shape, s.is_parameter) for s in model.inputs],
            "input", "shape", "parameter")  # fmt: skip
    model.bind_parameters(layer)
    with torch.no_grad():
        layer.weight.mul_(2)
        error = (model(x) - layer(x)).abs().max().item()
    print(f"\nthe weight doubled after it was bound: error {error:.1e}")
    if error > 1e-5:
        return 1

    title("6. Control flow: torch.cond is an If of two functions, a while_loop a recursive one")

    class Halve(nn.Module):
        """Halves rows until they are small; negative ones become zero."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (small,) = while_loop(lambda x: x.abs().sum() > 1, lambda x: (x / 2,), (x,))
            return torch.cond(x.sum() > 0, lambda x: x * 1, lambda x: x * 0, (small,))

    imported = import_torch(Halve().eval(), (x,))
    names = [var.name_hint for var in imported.module.get_global_vars()]
    print("    functions:", ", ".join(sorted(name for name in names if "steps" not in name)))
    halve = relaxc.compile(Halve().eval(), (x,))
    for scale in (0.01, 100.0, -100.0):
        want = Halve()(x.abs() * scale)
        error = (halve(x.abs() * scale) - want).abs().max().item()
        print(f"    rows * {scale}: error {error:.1e}")
        if error > 1e-5:
            return 1

    title("7. What has no converter is listed at once, with your own lines")

    class Spectrum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            values = torch.linalg.eigvalsh(x)
            return values + torch.special.i0(x).sum()

    try:
        relaxc.compile(Spectrum().eval(), (torch.eye(3),))
    except relaxc.UnsupportedOperator as fault:
        print("   ", fault)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
