"""`torch.compile(backend=relaxc)`: equal to eager over guards, breaks, sizes; options, caches."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from relaxc.torch_compile import backend, compiled_graphs  # noqa: E402
from tests.relaxc.torch_compile.compiled_modules import close, compiled, outcomes, small_net  # noqa: E402


def test_the_entry_point_is_declared():
    from pathlib import Path

    text = Path(relaxc.__file__).parents[1].joinpath("pyproject.toml").read_text()
    assert 'entry-points.torch_dynamo_backends]\nrelaxc = "relaxc.torch_compile:backend"' in text


def test_compiled_graphs_are_at_hand_once_relaxc_is_imported():
    import subprocess
    import sys

    code = "import relaxc; assert relaxc.torch_compile.compiled_graphs() == []"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_entry_point_is_a_function_once_it_was_used():
    import importlib

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert callable(importlib.import_module("relaxc.torch_compile").backend)


@torch.no_grad()
def test_compiled_graphs_are_kept_on_disk(tmp_path):
    module, x = small_net(), torch.randn(2, 3, 8, 8)
    for change in (None, lambda: module[0].weight.mul_(2)):
        torch._dynamo.reset()
        if change is not None:
            change()  # weights are arguments: they are not part of the key
        close(compiled(module, cache_dir=str(tmp_path))(x), module(x))
    torch._dynamo.reset()
    close(compiled(module, cache_dir=str(tmp_path), precision="strict")(x), module(x))
    assert outcomes() == ["compiled", "cached", "compiled"]
    assert len(list(tmp_path.glob("*.so"))) == 2


@torch.no_grad()
def test_changing_the_batch_three_times_compiles_twice():
    module = small_net()
    fast = compiled(module)
    for batch in (2, 3, 4, 7):
        x = torch.randn(batch, 3, 8, 8)
        close(fast(x), module(x))
    assert outcomes() == ["compiled", "compiled"]
    assert compiled_graphs()[0].model.outputs[0].shape == (2, 5)
    assert isinstance(compiled_graphs()[1].model.outputs[0].shape[0], str)


@torch.no_grad()
def test_dynamic_true_compiles_once_and_false_each_size():
    def function(x):
        return x.softmax(-1) + x.shape[0]

    for dynamic, graphs in ((True, 1), (False, 3)):
        torch._dynamo.reset()
        before = len(compiled_graphs())
        fast = compiled(function, dynamic=dynamic)
        for batch in (2, 3, 4):
            x = torch.randn(batch, 5)
            close(fast(x), function(x))
        assert len(compiled_graphs()) - before == graphs


@torch.no_grad()
def test_a_size_that_no_tensor_has():
    def function(x, n):
        return x + torch.arange(n).sum() * n

    fast = compiled(function, dynamic=True)
    for n in (3, 5, 9):
        close(fast(torch.ones(2), n), function(torch.ones(2), n))


@torch.no_grad()
def test_parameters_that_change_are_seen():
    module = small_net()
    fast = compiled(module)
    x = torch.randn(2, 3, 8, 8)
    close(fast(x), module(x))
    module[0].weight.mul_(2)
    close(fast(x), module(x))
    module[4].bias.data.add_(1)  # torch does not count changes made this way
    close(fast(x), module(x))
    module[4].weight = nn.Parameter(torch.randn(5, 144))
    close(fast(x), module(x))
    assert outcomes()[0] == "compiled"


@torch.no_grad()
def test_graph_breaks_give_several_graphs():
    def function(x):
        y = x * 2 + 1
        torch._dynamo.graph_break()
        return y.relu() - 1

    x = torch.randn(4)
    close(compiled(function)(x), function(x))
    assert outcomes() == ["compiled", "compiled"]


@torch.no_grad()
def test_channels_last_goes_in_without_a_copy(monkeypatch):
    """D5: the strides of a channels_last tensor are an order of axes."""
    from relaxc.torch_compile import call_plan

    taken = []
    plain = call_plan._plain
    monkeypatch.setattr(call_plan, "_plain", lambda t: taken.append((t, plain(t))) or taken[-1][1])
    pool = nn.MaxPool2d(2)
    fast = compiled(lambda x: pool(x) * 2)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    y = fast(x)
    close(y, pool(x) * 2)
    assert taken and all(given.data_ptr() == passed.data_ptr() for given, passed in taken)
    assert taken[0][0].data_ptr() == x.data_ptr()
    assert y.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def test_strided_unaligned_and_empty_tensors():
    def function(x):
        return x * 2 + x.sum()

    base = torch.randn(8, 9)
    for x in (base[:, 1:5], base.view(-1)[3:20], torch.randn(3, 0), base.t(), base[::2, ::3]):
        torch._dynamo.reset()
        close(compiled(function)(x), function(x))


@torch.no_grad()
def test_unsupported_operators_fall_back_with_a_logged_reason(caplog):
    def function(x):
        return torch.linalg.eigvalsh(x) + 1

    x = torch.eye(3)
    with caplog.at_level(logging.WARNING, logger="relaxc.torch_compile"):
        close(torch.compile(function, backend=backend)(x), function(x))
    assert outcomes() == ["eager"]
    assert "_linalg_eigh" in caplog.text and "test_backend.py" in caplog.text


def test_a_tensor_on_another_device_is_left_to_eager():
    x = torch.empty(3, device="meta")  # the one other device that every machine has
    assert torch.compile(lambda x: x + 1, backend=backend)(x).device == x.device
    assert "a tensor on meta, for which there is no target" in compiled_graphs()[0].reason


@torch.no_grad()
def test_strict_raises():
    fast = compiled(lambda x: torch.linalg.eigvalsh(x))
    with pytest.raises(Exception, match="_linalg_eigh"):
        fast(torch.eye(3))


@pytest.mark.parametrize(
    "options",
    [
        *({"colour": 1}, {"strict": 3}, {"precision": "low"}, {"target": "no such"}),
        *({"target": "cuda"}, {"target": 3}, {"cache_dir": 3}, {"dump_dir": 3}, {"threads": 0}),
        {"threads": True},
    ],
)
def test_bad_options_are_named(options):
    """They are a user's mistake: no reason to leave the graph to eager."""
    with pytest.raises(Exception, match=next(iter(options))):
        torch.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))


def test_a_backward_pass_tracks_eager():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    twin = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    twin.load_state_dict(module.state_dict())
    fast = torch.compile(module, backend=backend)
    x = torch.randn(5, 4)
    for net, call in ((module, fast), (twin, twin)):
        call(x).square().sum().backward()
        assert net[0].weight.grad is not None
    close(module[0].weight.grad, twin[0].weight.grad)
    assert outcomes()[0] == "compiled"


@torch.no_grad()
def test_random_operators_follow_torchs_seed():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5, True) + torch.rand(3)

    fast, x = compiled(function), torch.ones(3)
    torch.manual_seed(1)
    first, second = fast(x), fast(x)
    torch.manual_seed(1)
    assert torch.equal(first, fast(x))
    assert not torch.equal(first, second)


@torch.no_grad()
def test_a_parameter_is_converted_again_only_where_its_memory_moved(monkeypatch):
    from relaxc.torch_compile import held_parameters

    converted = []
    plain = held_parameters._converted
    monkeypatch.setattr(held_parameters, "_converted", lambda t: converted.append(t) or plain(t))
    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = compiled(module)
    moves = [
        lambda: None,
        lambda: module.weight.mul_(2),
        lambda: setattr(module.weight, "data", torch.randn(3, 4)),
        lambda: setattr(module.weight, "data", torch.randn(13)[1:].view(3, 4)),  # not aligned
        lambda: module.weight.data.add_(1),
        lambda: setattr(module, "weight", nn.Parameter(torch.randn(3, 4))),
    ]
    counts = []
    for move in moves:
        move()
        close(fast(x), module(x))
        close(fast(x), module(x))
        counts.append(len(converted))
    assert counts == [2, 2, 4, 5, 5, 7]
    assert outcomes() == ["compiled"]


@torch.no_grad()
def test_a_cached_graph_is_not_imported(tmp_path, monkeypatch):
    from frontends.torch.captured_graph import CapturedGraph

    module, x = small_net(), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    want = compiled(module, cache_dir=str(tmp_path))(x)
    torch._dynamo.reset()
    monkeypatch.setattr(CapturedGraph, "import_model", None)
    close(compiled(module, cache_dir=str(tmp_path))(x), want)
    assert outcomes() == ["compiled", "cached"]


def test_a_key_names_no_address_of_this_process():
    from relaxc.torch_compile.graph_cache import _graph_text

    graph = torch.fx.Graph()
    size = graph.placeholder("size")
    graph.output(graph.call_function(torch.sym_max, (size, 2)))
    text = _graph_text(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert "torch.sym_max" in text and "0x" not in text


@torch.no_grad()
def test_branches_are_part_of_the_key(tmp_path):
    def choose(factor):
        def function(x):
            return torch.cond(x.sum() > 0, lambda x: x * factor, lambda x: x - factor, (x,))

        return function

    for factor in (2.0, 3.0):
        torch._dynamo.reset()
        close(
            compiled(choose(factor), cache_dir=str(tmp_path))(torch.ones(2)), torch.ones(2) * factor
        )


@torch.no_grad()
def test_threads_call_one_compiled_module():
    import threading

    module, x = small_net(), torch.randn(2, 3, 8, 8)
    fast, want, errors = compiled(module), module(x), []

    def call():
        with torch.no_grad():
            errors.extend(float((fast(x) - want).abs().max()) for _ in range(10))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 30 and max(errors) < 1e-5


@torch.no_grad()
def test_compiled_modules_are_copied_and_pickled():
    import copy
    import pickle

    module, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = compiled(module)
    fast(x)
    for twin in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        close(twin(x), module(x))


@torch.no_grad()
def test_a_number_that_changes_from_call_to_call_is_compiled():
    """Dynamo makes a float that has changed a tensor of float64, cast by a primitive of torch."""
    fast = compiled(lambda x, *, scale: x * scale)
    x = torch.randn(3)
    for scale in (3.0, 2.0, 0.5):
        close(fast(x, scale=scale), x * scale)
    assert outcomes() == ["compiled"] * 2


@torch.no_grad()
@pytest.mark.parametrize("masked", ["", "queries", "keys", "both"])
def test_an_encoder_layer_as_inference_calls_it(masked):
    """Dynamo sees one operator there, `_transformer_encoder_layer_fwd`."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8,
        2,
        16,
        activation="gelu" if masked else "relu",
        batch_first=True,
        norm_first=masked in ("keys", "both"),
    ).eval()
    ahead = torch.ones(5, 5, dtype=torch.bool).triu(1) if masked in ("queries", "both") else None
    padding = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]) > 0
    padding = padding if masked in ("keys", "both") else None

    def function(x):
        return layer(x, src_mask=ahead, src_key_padding_mask=padding)

    x = torch.randn(2, 5, 8)
    close(compiled(function)(x), function(x))
    assert outcomes() == ["compiled"]


@torch.no_grad()
def test_autocast_leaves_the_parameters_of_norms_wide():
    layers = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.LayerNorm(6)).eval()

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layers(x)

    x = torch.randn(2, 3, 8)
    have, want = compiled(function)(x), function(x)
    assert have.dtype == want.dtype
    torch.testing.assert_close(have, want, rtol=2e-2, atol=2e-2)


def test_what_is_computed_equals_itself_unless_it_is_nan():
    """Fusion gives the operand a name, and TVM's simplifier takes `name == name` for true."""

    def function(x):
        return x.abs() == x.abs(), x.isfinite(), x.relu(), x.sum(), x.half() != x.half()

    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0])
    torch.testing.assert_close(compiled(function)(x), function(x), equal_nan=True)
