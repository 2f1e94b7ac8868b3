"""`compile(keep_params=True)`: parameters by position, by name, and bound for all calls."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from relaxc import bound_parameters  # noqa: E402
from relaxc.compiled_model import CompiledModel  # noqa: E402
from relaxc.element_sample import parameters_changed  # noqa: E402

X = torch.arange(8.0).reshape(2, 4)


class Tied(nn.Module):
    """Two layers that share a weight, and a buffer that no state_dict has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) + self.shift


@pytest.fixture(scope="module")
def module() -> Tied:
    return Tied().eval()


@pytest.fixture(scope="module")
def saved(module, tmp_path_factory):
    model = relaxc.compile(module, (X,), keep_params=True, threads=1, progress=False)
    return model.save(tmp_path_factory.mktemp("models") / "tied.so")


@pytest.fixture
def model(saved) -> CompiledModel:
    return relaxc.load(saved)


def close(have: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


def test_inputs_are_named_as_the_module_names_them(model) -> None:
    names = ["first.bias", "second.weight", "second.bias", "shift"]
    assert [spec.name for spec in model.inputs] == ["x", *names]
    assert [spec.name for spec in model.parameters] == names


@torch.no_grad()
def test_parameters_by_position_and_by_name(model, module) -> None:
    given = {spec.name: torch.randn(spec.shape) for spec in model.parameters}
    want = torch.func.functional_call(module, given, X)
    close(model(X, *given.values()), want)
    close(model(X, **given), want)


@torch.no_grad()
def test_bound_parameters_are_those_of_the_module_as_they_are(model, module) -> None:
    model.bind_parameters(module)
    close(model(X), module(X))
    module.first.weight.mul_(1.5)
    close(model(X), module(X))
    other = torch.randn(4)
    given = {"shift": other}
    close(model(X, **given), module(X) - module.shift + other)
    assert isinstance(model(X.numpy()), type(X.numpy()))  # what is bound does not decide


@torch.no_grad()
def test_a_parameter_that_is_copied_is_read_in_each_call(model, module) -> None:
    values = {spec.name: torch.zeros(spec.shape) for spec in model.parameters}
    values["second.weight"] = torch.randn(4, 4).t()
    model.bind_parameters(values)
    for _ in range(2):
        close(model(X), torch.func.functional_call(module, values, X))
        values["second.weight"].mul_(2)
        values["second.bias"].add_(1)


def test_memory_that_is_shared_is_converted_once(model, module, monkeypatch) -> None:
    model.bind_parameters(module)
    calls = []
    plain = bound_parameters.to_tensor
    monkeypatch.setattr(bound_parameters, "to_tensor", lambda *a: calls.append(a) or plain(*a))
    model(X), model(X)
    assert len(calls) == len(model.parameters)


@torch.no_grad()
def test_weights_are_prepared_once_for_a_binding(model, module, monkeypatch) -> None:
    assert model.preparation is not None
    calls = []
    plain = bound_parameters.results_of
    monkeypatch.setattr(bound_parameters, "results_of", lambda r: calls.append(1) or plain(r))
    twin = Tied().eval()
    model.bind_parameters(twin)
    changes = [
        lambda: None,
        lambda: twin.first.weight.mul_(2),  # counted by torch
        lambda: twin.first.weight.data.mul_(0.5),  # not counted
        lambda: setattr(twin.first.weight, "data", torch.randn(4, 4)),  # elsewhere
        lambda: twin.first.bias.add_(1),  # read as it is
        parameters_changed,
        lambda: model.bind_parameters(twin),
    ]
    counts = []
    for change in changes:
        change()
        for _ in range(2):
            close(model(X), twin(X))
        counts.append(len(calls))
    assert counts == [1, 2, 3, 4, 4, 5, 6]
    model.bind_parameters({name: p.numpy() for name, p in params(twin).items()})
    for _ in range(2):
        close(model(X), twin(X))
        params(twin)["second.weight"].data[1, 1] += 1  # nobody counts what is NumPy's
    assert len(calls) == 8


@torch.no_grad()
def test_data_that_lies_otherwise_in_the_same_memory_is_seen(model) -> None:
    twin = Tied().eval()
    model.bind_parameters(twin)
    shift = twin.shift
    for _ in range(2):
        close(model(X), twin(X))
        twin.first.weight.data = twin.first.weight.data.t()  # prepared
        shift.set_(shift.untyped_storage(), 0, (4,), (0,))  # read as it is
    shift.data = shift.data[:2]
    with pytest.raises(relaxc.InvalidInput, match="'shift': wrong shape"):
        model(X)
    shift.set_(torch.ones(4).untyped_storage(), 0, (4,), (1,))
    twin.first.weight.data = twin.first.weight.data[:2]
    with pytest.raises(relaxc.InvalidInput, match="weight': wrong shape"):
        model(X)


@torch.no_grad()
def test_a_prepared_weight_that_is_returned_is_the_callers() -> None:
    class Returns(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x), self.weight.exp()

    layer = Returns(4, 4).eval()
    model = relaxc.compile(layer, (X,), keep_params=True, threads=1, progress=False)
    model.bind_parameters(layer)
    for _ in range(2):
        y, weight = model(X)
        close(y, layer(X)[0])
        close(weight, layer.weight.exp())
        weight.zero_()


def params(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return what the model takes, with the names it has for them."""
    named = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers()),
    }
    return {name: named[name] for name in ("first.bias", "second.weight", "second.bias", "shift")}


def test_a_mapping_may_hold_more_but_not_less(model, module) -> None:
    state = dict(module.state_dict())
    with pytest.raises(relaxc.InvalidInput, match="missing parameter: shift"):
        model.bind_parameters(state)
    model.bind_parameters({**state, "shift": module.shift, "unused": X})
    with pytest.raises(relaxc.InvalidInput, match="'shift': wrong rank"):
        model.bind_parameters({**state, "shift": X})
    with pytest.raises(relaxc.InvalidInput, match="parameter 'shift'.*str"):
        model.bind_parameters({**state, "shift": "text"})
    with pytest.raises(relaxc.InvalidInput, match="got int"):
        model.bind_parameters(3)


def test_models_without_such_inputs_refuse() -> None:
    model = relaxc.compile(nn.Linear(4, 2).eval(), (X,), threads=1, progress=False)
    with pytest.raises(relaxc.InvalidInput, match="keep_params=True"):
        model.bind_parameters({})
    with pytest.raises(relaxc.InvalidInput, match="keep_params is for"):
        relaxc.compile("model.onnx", keep_params=True)
    with pytest.raises(relaxc.InvalidInput, match="True or False"):
        relaxc.compile(nn.Linear(4, 2), (X,), keep_params=1)
