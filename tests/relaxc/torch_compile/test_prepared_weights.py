"""Weights that are arguments are packed once, and again only when one of them has changed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from relaxc.element_sample import ElementSample  # noqa: E402
from relaxc.torch_compile import backend, compiled_graphs  # noqa: E402
from relaxc.torch_compile.prepared_weights import PreparedWeights  # noqa: E402


def compiled(function, **options):
    return torch.compile(function, backend=backend, options={"strict": True, **options})


def close(have, want):
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    ).eval()


def write_and_tell(weight: torch.Tensor, *place: int) -> None:
    weight.data[place] += 9
    relaxc.parameters_changed()


@pytest.fixture
def preparations(monkeypatch):
    """Count how often weights are prepared."""
    calls: list[int] = []
    prepare = PreparedWeights._prepare
    monkeypatch.setattr(
        PreparedWeights, "_prepare", lambda self, inputs: calls.append(1) or prepare(self, inputs)
    )
    return calls


@torch.no_grad()
def test_weights_are_prepared_again_only_after_a_change(preparations, tmp_path):
    module, x = net(), torch.randn(2, 3, 5, 5)
    fast = compiled(module, cache_dir=str(tmp_path))
    changes = [
        lambda: None,
        lambda: module[0].weight.mul_(2),  # counted by torch
        lambda: module[1].running_mean.add_(1),
        lambda: module[4].weight.data.mul_(0.5),  # not counted
        lambda: write_and_tell(module[4].weight, 2, 70),  # not sampled
        lambda: setattr(module[4], "weight", nn.Parameter(torch.randn(5, 144))),
        lambda: module.load_state_dict(net().state_dict()),
        lambda: module[4].bias.add_(1),  # read as it is
    ]
    counts = []
    for change in changes:
        change()
        for _ in range(2):
            close(fast(x), module(x))
        counts.append(len(preparations))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 7]
    assert len(compiled_graphs()) == 1
    torch._dynamo.reset()  # a cached graph is split as well
    close(compiled(module, cache_dir=str(tmp_path))(x), module(x))
    assert [record.outcome for record in compiled_graphs()] == ["compiled", "cached"]
    assert len(preparations) == 8


def test_an_optimizers_steps_are_seen(preparations):
    module, x = net(), torch.randn(2, 3, 5, 5)
    fast = compiled(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for step in range(1, 4):
        module(x).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            close(fast(x), module(x))
            close(fast(x), module(x))
        assert len(preparations) == step


def test_parameters_without_a_count_are_prepared_in_each_call(preparations):
    with torch.inference_mode():
        module, x = net(), torch.randn(2, 3, 5, 5)
        fast = compiled(module)
        for _ in range(3):
            close(fast(x), module(x))
            module[0].weight[1, 1, 1, 1] += 1
    assert len(preparations) == 3


@torch.no_grad()
def test_a_prepared_weight_that_is_returned_is_the_callers():
    layer = nn.Linear(4, 4).eval()
    fast = compiled(lambda x: (layer(x), layer.weight.exp()))
    x = torch.randn(2, 4)
    for _ in range(2):
        y, weight = fast(x)
        close(y, layer(x))
        close(weight, layer.weight.exp())
        weight.zero_()


@torch.no_grad()
def test_a_model_of_both_sizes_and_threads():
    import threading

    module = net()
    fast, errors = compiled(module), []

    def call(batch):
        with torch.no_grad():
            x = torch.randn(batch, 3, 5, 5)
            errors.extend(float((fast(x) - module(x)).abs().max()) for _ in range(5))

    call(2)
    threads = [threading.Thread(target=call, args=(2,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 20 and max(errors) < 1e-5


def test_a_sample_sees_changes_of_any_layout_and_dtype():
    base = torch.randn(40, 30)
    tensors = [
        base, base.t(), base[::3, 1::2], torch.ones(3).expand(5, 3), torch.tensor(2.5),
        torch.full((2, 8), torch.nan), torch.zeros(100, dtype=torch.bfloat16),
        torch.arange(9) > 4, torch.arange(50), torch.zeros(0, 3),
    ]  # fmt: skip
    sample = ElementSample(tensors)
    assert sample.holds()
    for number, tensor in enumerate([*tensors[:3], *tensors[4:-1]]):
        sample = ElementSample([tensor])
        new = ~tensor if tensor.dtype == torch.bool else torch.full_like(tensor, number + 7)
        tensor.data.copy_(new)
        assert not sample.holds()


def test_a_sample_sees_one_element_of_a_short_tensor_and_a_range_of_a_long_one():
    torch.manual_seed(0)
    short, long = torch.randn(512), torch.randn(100, 300)
    changes = [
        lambda: short.data.__setitem__(200, 9.0),
        lambda: long.data[40:60].mul_(2),
        lambda: long.data.clamp_(-0.5, 0.5),
    ]
    for change in changes:
        sample = ElementSample([short, long])
        assert sample.holds()
        change()
        assert not sample.holds()
