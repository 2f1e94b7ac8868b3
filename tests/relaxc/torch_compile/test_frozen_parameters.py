"""Parameters as constants of the compiled graph (`freeze`): seen where they change."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relaxc.torch_compile import backend, compiled_graphs  # noqa: E402
from tests.relaxc.torch_compile.compiled_modules import close, compiled, outcomes, small_net  # noqa: E402


@torch.no_grad()
def test_frozen_parameters_are_constants_until_they_change():
    module = small_net()
    fast = compiled(module, freeze=True)
    x = torch.randn(2, 3, 8, 8)
    close(fast(x), module(x))
    close(fast(x), module(x))
    assert outcomes() == ["compiled"]
    assert len(compiled_graphs()[0].model.inputs) == 1
    module[0].weight.mul_(2)
    close(fast(x), module(x))
    assert outcomes() == ["compiled", "compiled"]


def test_max_autotune_freezes():
    module = small_net()
    fast = torch.compile(module, backend=backend, mode="max-autotune")
    x = torch.randn(2, 3, 8, 8)
    with torch.inference_mode():
        close(fast(x), module(x))
    assert len(compiled_graphs()[0].model.inputs) == 1


class WithoutConverter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x):
        return torch.special.i0(x * self.weight)


@torch.no_grad()
def test_frozen_graphs_fall_back_too(caplog):
    module, x = WithoutConverter(), torch.ones(3)
    fast = torch.compile(module, backend=backend, mode="max-autotune")
    with caplog.at_level(logging.WARNING, logger="relaxc.torch_compile"):
        for _ in range(3):
            close(fast(x), module(x))
            module.weight.add_(1)
    assert outcomes() == ["eager"]  # once: other parameters do not help
    assert "aten.i0" in caplog.text
    torch._dynamo.reset()
    with pytest.raises(Exception, match="aten.i0"):
        compiled(module, freeze=True)(x)


def test_no_thread_runs_old_constants_while_the_last_version_is_compiled():
    import threading

    from relaxc.torch_compile.call_plan import CallPlan
    from relaxc.torch_compile.frozen import MOST_VERSIONS, FrozenGraph

    class Plan(CallPlan):
        def __init__(self, version):
            self.version = version

        def __call__(self, arguments):
            return [self.version]

    parameter, found, versions = torch.ones(1), [], []
    other = threading.Thread(target=lambda: found.extend(frozen([parameter])))

    def build(constants):
        versions.append(Plan(len(versions)))
        if not constants:  # parameters are arguments from here on
            other.start()
            other.join(0.1)  # it waits for this version
        return versions[-1]

    frozen = FrozenGraph(build, [0])
    for _ in range(MOST_VERSIONS + 1):
        frozen([parameter])
        parameter.add_(1)
    other.join()
    assert found == [MOST_VERSIONS] and len(versions) == MOST_VERSIONS + 1


@torch.no_grad()
def test_frozen_parameters_that_are_replaced_are_seen():
    """Memory of a parameter that is gone may be given to the next one."""
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = compiled(module, freeze=True)
    for _ in range(6):
        module.weight = nn.Parameter(torch.randn(3, 4))
        close(fast(x), module(x))


def test_parameters_made_in_inference_mode_are_not_frozen():
    with torch.inference_mode():
        module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
        fast = compiled(module, freeze=True)
        for _ in range(2):
            close(fast(x), module(x))
            module.weight.mul_(2)  # not counted


@torch.no_grad()
def test_frozen_parameters_changed_through_data_are_seen():
    """torch does not count these changes; a short tensor is compared as a whole."""
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = compiled(module, freeze=True)
    changes = [
        lambda: module.weight.data.mul_(2),
        lambda: module.bias.data.__setitem__(1, 5.0),
        lambda: None,
    ]
    for change in changes:
        close(fast(x), module(x))
        change()
    close(fast(x), module(x))
    assert outcomes() == ["compiled"] * 3
