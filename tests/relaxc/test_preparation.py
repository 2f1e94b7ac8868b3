"""A compiled model whose inputs are prepared by a function of their own."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

import relaxc
from relaxc.preparation import Preparation
from tests.relax_passes.fixed_parameters import fixed_module
from tests.relax_passes.pass_checks import normal

R = relax.op


def test_it_is_called_as_any_other_saved_and_loaded(tmp_path) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var, w: relax.Var, v: relax.Var) -> relax.Expr:
        return bb.emit(R.add(bb.emit(R.matmul(x, w)), v))

    mod = fixed_module((3, 6), {"w": (6, 5), "v": (5,)}, build)
    model = relaxc.compile(mod, threads=1, progress=False)
    x, w, v = normal(3, 6), normal(6, 5), normal(5)
    loaded = relaxc.load(model.save(tmp_path / "model.so"))
    for whole in (model, loaded):
        assert whole.preparation == Preparation(takes=(1,), rest=(0, 2))
        for weight in (w, 2 * w):
            np.testing.assert_allclose(whole(x, weight, v), x @ weight + v, rtol=1e-5, atol=1e-5)
        prepare, main = whole.prepared_entry()
        kept = prepare(tvm.runtime.tensor(w))
        for given in (x, x + 1):
            result = main(tvm.runtime.tensor(given), tvm.runtime.tensor(v), kept).numpy()
            np.testing.assert_allclose(result, given @ w + v, rtol=1e-5, atol=1e-5)
