"""Results and arguments that share memory: written to, viewed, returned twice."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from relaxc.errors import RunError  # noqa: E402
from relaxc.torch_compile import backend, compiled_graphs  # noqa: E402
from tests.relaxc.torch_compile.compiled_modules import close, compiled, outcomes  # noqa: E402


@torch.no_grad()
def test_mutation_of_inputs_and_buffers():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            self.count += 1
            x.mul_(2)
            return x + self.count

    module, twin = Counter().eval(), Counter().eval()
    fast = compiled(module)
    x, y = torch.ones(2), torch.ones(2)
    for _ in range(3):
        close(fast(x), twin(y))
        close(x, y)
        close(module.count, twin.count)


@torch.no_grad()
def test_outputs_that_alias_inputs_and_each_other():
    def function(x):
        y = x + 1
        return x, x.view(-1), y, y[0], x.clone()

    x = torch.randn(2, 3)
    same, flat, y, row, copy = compiled(function)(x)
    assert same is x and flat.data_ptr() == x.data_ptr()
    row.zero_()
    assert torch.equal(y[0], torch.zeros(3))
    copy.zero_()
    assert not torch.equal(x, copy)


@torch.no_grad()
def test_results_that_are_views_at_places_that_sizes_decide():
    """AOTAutograd takes a view by the place that the result has in its storage."""

    def function(x):
        y, rows = x * 2, x.shape[0]
        strided = y.as_strided((rows // 2, 2), (4, 1), rows)  # nothing computes it
        parts = y.t()[1:, : rows // 2], y.view(2, -1)[1], strided
        return y, y[rows - 2 :], *parts, x[rows - 2 :], x[0]

    fast = compiled(function, dynamic=True)
    for rows in (4, 6):
        x = torch.randn(rows, 5)
        twin = x.clone()
        for have, want in zip(fast(x), function(twin), strict=True):
            close(have, want)
            assert have.stride() == want.stride()
            close(have.add_(1), want.add_(1))  # seen in those that share its memory
        close(x, twin)
    assert outcomes() == ["compiled"]


@torch.no_grad()
def test_results_that_are_views_of_arguments_alone_need_no_code():
    x = torch.randn(5, 4)
    first, rest = compiled(lambda x: (x[0], x[x.shape[0] - 2 :]), dynamic=True)(x)
    x.zero_()
    assert not first.any() and not rest.any() and not outcomes()


@torch._dynamo.config.patch(capture_scalar_outputs=True)
@torch.no_grad()
def test_a_view_at_a_place_that_only_the_data_decides_is_left_to_eager():
    def function(x, n):
        y, first = x + 1, n.item()
        torch._check(first >= 0)
        torch._check(first <= x.shape[0])
        return y, y[first:]

    x = torch.randn(4)
    y, rest = torch.compile(function, backend=backend)(x, torch.tensor(1))
    assert rest.data_ptr() == y[1:].data_ptr()
    assert "only the data decides" in compiled_graphs()[-1].reason


@torch.no_grad()
def test_arguments_that_share_memory_in_another_way_than_those_it_was_compiled_for(caplog):
    """torch's guards let such calls through."""

    def function(a, b):
        a.add_(1)
        return a * b

    def apart():
        return torch.ones(4), torch.ones(4)

    def overlapping(size=6):
        whole = torch.arange(float(size))
        return whole[:4], whole[size - 4 :]

    for calls in ((apart, overlapping, apart), (overlapping, lambda: overlapping(8), apart)):
        torch._dynamo.reset()
        fast = torch.compile(function, backend=backend)
        for make in calls:
            given, expected = make(), make()
            close(fast(*given), function(*expected))
            close(list(given), list(expected))
    assert "share memory in another way" in caplog.text
    torch._dynamo.reset()
    fast = compiled(function)
    fast(*apart())
    with pytest.raises(RunError, match="share memory in another way"):
        fast(*overlapping())
