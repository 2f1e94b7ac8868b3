"""Tree ensembles of the ai.onnx.ml domain: the node lists of versions 1 and 3, and of version 5."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.post_transform import transform_scores
from frontends.computations.tree_ensemble import AGGREGATES, MODES, TABLES, TreeTables, evaluate
from frontends.dims import is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.machine_learning import ML, integer_labels, label_of_greatest
from frontends.onnx.registry import converter

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@converter("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(op: Op) -> relax.Expr:
    """Return the leaves' votes for each target, combined, plus base values (versions 1 and 3)."""
    trees = _legacy_tables(op, "target")
    n_targets = int(op.attr("n_targets", 1))
    result = _evaluate(op, trees, n_targets, op.attr("aggregate_function", "SUM"))
    result = _add_base_values(op, result, n_targets)
    return transform_scores(op.emit, _as_float(op, result), op.attr("post_transform", "NONE"))


@converter("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(op: Op) -> Any:
    """Return the label of the greatest sum of votes, and the sums (versions 1 and 3).

    If all votes are for one class of two, the other one's score is 1 - score for votes that look
    like probabilities (none is negative, no transform), else -score, as in ONNX Runtime.
    """
    labels = integer_labels(op, "classlabels_int64s")
    trees = _legacy_tables(op, "class")
    transform = op.attr("post_transform", "NONE")
    voted = np.unique(trees.targets)
    binary = len(labels) == 2 and len(voted) == 1
    if len(labels) == 1:
        raise op.unsupported("one class")
    scores = _evaluate(op, trees, len(labels), "SUM")
    if not binary:
        scores = _add_base_values(op, scores, len(labels))
        scores = _as_float(op, scores)
        return (
            label_of_greatest(op, scores, labels),
            transform_scores(op.emit, scores, transform),
        )
    return _binary(op, trees, scores, labels, int(voted[0]), transform)


def _binary(
    op: Op, trees: TreeTables, scores: relax.Expr, labels: np.ndarray, voted: int, transform: str
) -> Any:
    """Return label and scores of two classes of which one has votes."""
    if transform not in ("", "NONE", "LOGISTIC"):
        raise op.unsupported(f"{transform} of a single score, which runtimes take differently")
    if len(_array(op, "base_values", "float64")) > 1:
        raise op.unsupported("base values of both classes where only one has votes")
    score = op.emit(R.strided_slice(scores, [1], [voted], [voted + 1]))
    score = _as_float(op, _add_base_values(op, score, 1))
    positive_weights = bool((trees.weights >= 0).all())
    threshold = 0.5 if positive_weights else 0.0
    above = op.emit(R.greater(score, op.const(threshold, "float32")))
    names = op.emit(R.where(above, op.const(labels[1], "int64"), op.const(labels[0], "int64")))
    names = op.emit(R.squeeze(names, [1]))
    if positive_weights and transform != "LOGISTIC":
        other = op.emit(R.subtract(op.const(1, "float32"), score))
    else:
        other = op.emit(R.negative(score))
    both = op.emit(R.concat([other, score], 1))
    return names, transform_scores(op.emit, both, transform)


@converter("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(op: Op) -> relax.Expr:
    """Return the leaves' votes for each target, combined (version 5)."""
    trees = _tables(op)
    aggregate = int(op.attr("aggregate_function", 1))
    transform = int(op.attr("post_transform", 0))
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise InvalidModel("aggregate_function or post_transform out of range")
    n_targets = int(op.attr("n_targets", int(trees.targets.max(initial=0)) + 1))
    result = _evaluate(op, trees, n_targets, AGGREGATES[aggregate])
    result = transform_scores(op.emit, result, _TRANSFORMS[transform])
    wanted = op.dtype()
    return result if str(result.ty.dtype.dtype) == wanted else R.astype(result, wanted)


def _evaluate(op: Op, trees: TreeTables, n_targets: int, aggregate: str) -> relax.Expr:
    """Emit the kernel."""
    if op.ndim() != 2:
        raise InvalidModel(f"a matrix is needed, not a tensor of rank {op.ndim()}")
    width = op.shape()[1]
    try:
        trees.check(int(width) if is_static(width) else None, n_targets)
    except ValueError as error:
        raise InvalidModel(str(error)) from error
    op.require(prim(width) > int(trees.features.max(initial=-1)), "has_all_features")
    arrays = {name: getattr(trees, name) for name in TABLES}
    # TVM has no empty constants; a table that is empty is never read.
    filled = [a if a.size else np.zeros(1, a.dtype) for a in arrays.values()]

    def compute(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
        tables = dict(zip(arrays, tensors, strict=True))
        return evaluate(x, tables, trees, n_targets=n_targets, aggregate=aggregate)

    constants = [op.const(array, str(array.dtype)) for array in filled]
    return op.te(compute, op.x(), *constants, name="tree_ensemble")


def _array(op: Op, name: str, dtype: str) -> np.ndarray:
    """Return a list attribute, or its `_as_tensor` form, as array of `dtype`."""
    found = op.attr(f"{name}_as_tensor")
    if found is None:
        found = op.attr(name, [])
    return np.asarray(found, dtype).reshape(-1)


def _number_type(op: Op, *names: str) -> str:
    """Return float64 if an attribute is given as tensor of doubles, else float32."""
    tensors = [op.attr(f"{name}_as_tensor") for name in names]
    wide = any(t is not None and t.dtype == np.float64 for t in tensors)
    return "float64" if wide or op.dtype() == "float64" else "float32"


def _legacy_tables(op: Op, kind: str) -> TreeTables:
    """Return the trees of a node list whose nodes are named by (tree, node); `kind` of votes."""
    number = _number_type(op, "nodes_values", f"{kind}_weights", "base_values")
    tree_ids, node_ids = (_array(op, name, "int64") for name in ("nodes_treeids", "nodes_nodeids"))
    count = len(tree_ids)
    names = [*op.attr("nodes_modes", [])]
    columns = {
        name: _array(op, name, "int64")
        for name in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    }
    values = _array(op, "nodes_values", number)
    lengths = {len(node_ids), len(names), len(values), *(len(part) for part in columns.values())}
    if lengths != {count}:
        raise InvalidModel("the lists nodes_* differ in length")
    unknown = {name for name in names if name != "LEAF" and name[7:] not in MODES[:6]}
    if unknown:
        raise InvalidModel(f"nodes_modes {sorted(unknown)}")
    is_leaf = np.asarray([name == "LEAF" for name in names], bool)
    # Interior nodes and leaves are numbered apart, each in the order of the list.
    number_of = np.where(is_leaf, ~(np.cumsum(is_leaf) - 1), np.cumsum(~is_leaf) - 1)
    place = {
        key: int(at)
        for key, at in zip(zip(tree_ids.tolist(), node_ids.tolist(), strict=True), number_of,
                           strict=True)
    }  # fmt: skip
    if len(place) != count:
        raise InvalidModel("a node of a tree is listed twice")

    def branch(name: str) -> np.ndarray:
        pairs = zip(tree_ids[~is_leaf].tolist(), columns[name][~is_leaf].tolist(), strict=True)
        try:
            return np.asarray([place[pair] for pair in pairs], "int64")
        except KeyError as error:
            raise InvalidModel(f"{name} leads to node {error} that does not exist") from error

    true_next, false_next = branch("nodes_truenodeids"), branch("nodes_falsenodeids")
    roots = []
    seen = set()
    for tree, at in zip(tree_ids.tolist(), number_of.tolist(), strict=True):
        if tree not in seen:
            seen.add(tree)
            roots.append(at)
    missing = _array(op, "nodes_missing_value_tracks_true", "bool")
    missing = missing if len(missing) == count else np.zeros(count, bool)
    votes = [_array(op, f"{kind}_{part}", "int64") for part in ("treeids", "nodeids", "ids")]
    weights = _array(op, f"{kind}_weights", number)
    if any(len(part) != len(weights) for part in votes):
        raise InvalidModel(f"the lists {kind}_* differ in length")
    leaf_of = []
    for tree, node in zip(votes[0].tolist(), votes[1].tolist(), strict=True):
        at = place.get((tree, node))
        if at is None:
            raise InvalidModel(f"{kind}_nodeids names node {node} of tree {tree}, which is missing")
        leaf_of.append(~at if at < 0 else -1)
    # Votes at interior nodes are never collected.
    owner = np.asarray(leaf_of, "int64")
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    counts = np.bincount(owner[order], minlength=int(is_leaf.sum()))
    return TreeTables(
        roots=np.asarray(roots, "int64"),
        features=columns["nodes_featureids"][~is_leaf],
        thresholds=values[~is_leaf],
        modes=np.asarray(
            [MODES.index(name[7:]) for name, leaf in zip(names, is_leaf, strict=True) if not leaf],
            "uint8",
        ),
        missing=missing[~is_leaf],
        true_next=true_next,
        false_next=false_next,
        members=np.zeros(0, number),
        member_ends=np.zeros(len(true_next), "int64"),
        leaf_ends=np.cumsum(counts).astype("int64"),
        targets=votes[2][order],
        weights=weights[order],
    )


def _tables(op: Op) -> TreeTables:
    """Return the trees of a node list of version 5."""
    number = "float64" if op.dtype() == "float64" else "float32"
    modes = np.asarray(op.attr("nodes_modes"), "uint8").reshape(-1)
    features, true_ids, false_ids, true_leafs, false_leafs = (
        _array(op, f"nodes_{name}", "int64")
        for name in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    )
    splits = np.asarray(op.attr("nodes_splits"), number).reshape(-1)
    count = len(modes)
    if any(len(p) != count for p in (features, true_ids, false_ids, true_leafs, false_leafs,
                                     splits)):  # fmt: skip
        raise InvalidModel("the lists nodes_* differ in length")
    if count and modes.max() >= len(MODES):
        raise InvalidModel(f"nodes_modes {modes.max()}")
    missing = _array(op, "nodes_missing_value_tracks_true", "bool")
    members, ends = _members(op, modes, number)
    weights = np.asarray(op.attr("leaf_weights"), number).reshape(-1)
    return TreeTables(
        roots=_array(op, "tree_roots", "int64"),
        features=features,
        thresholds=splits,
        modes=modes,
        missing=missing if len(missing) == count else np.zeros(count, bool),
        true_next=np.where(true_leafs != 0, ~true_ids, true_ids),
        false_next=np.where(false_leafs != 0, ~false_ids, false_ids),
        members=members,
        member_ends=ends,
        leaf_ends=np.arange(1, len(weights) + 1, dtype="int64"),
        targets=_array(op, "leaf_targetids", "int64"),
        weights=weights,
    )


def _members(op: Op, modes: np.ndarray, number: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all MEMBER nodes, and for each node where its own end."""
    is_member = modes == MODES.index("MEMBER")
    listed = op.attr("membership_values")
    listed = np.zeros(0, number) if listed is None else np.asarray(listed, number).reshape(-1)
    stops = np.nonzero(np.isnan(listed))[0]
    if len(stops) != int(is_member.sum()):
        raise InvalidModel(f"{len(stops)} sets of members for {int(is_member.sum())} nodes")
    sizes = np.zeros(len(modes), "int64")
    sizes[is_member] = np.diff(np.concatenate([[-1], stops])) - 1
    return listed[~np.isnan(listed)], np.cumsum(sizes).astype("int64")


def _add_base_values(op: Op, scores: relax.Expr, count: int) -> relax.Expr:
    dtype = str(scores.ty.dtype.dtype)
    base = _array(op, "base_values", dtype)
    if not base.size:
        return scores
    if base.size not in (1, count):
        raise InvalidModel(f"{base.size} base values for {count} targets")
    return op.emit(R.add(scores, op.const(base, dtype)))


def _as_float(op: Op, scores: relax.Expr) -> relax.Expr:
    """Return scores as float32, the type of the results of versions 1 and 3."""
    if str(scores.ty.dtype.dtype) == "float32":
        return scores
    return op.emit(R.astype(scores, "float32"))
