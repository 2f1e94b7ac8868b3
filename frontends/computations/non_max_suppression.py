"""Non-maximum suppression: of boxes that overlap much, keep the one with the best score."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    divided,
    index,
    kernel,
    parallel,
    serial,
    when,
)
from frontends.computations.sort import merge_sort, precedes


def suppress(
    boxes: te.Tensor,
    scores: te.Tensor,
    max_boxes: te.Tensor,
    iou_threshold: te.Tensor,
    score_threshold: te.Tensor | None,
    *,
    center: bool,
) -> list[te.Tensor]:
    """Choose boxes, for each image and class by itself.

    Boxes are taken by falling score, equal ones by place; one is dropped if its intersection over
    union with a box already chosen is above the threshold.

    Args:
        boxes: (images, n, 4), two corners in any order, or center and size.
        scores: (images, classes, n).
        max_boxes: int64 (1,): most boxes of one image and class.
        iou_threshold: (1,).
        score_threshold: (1,): boxes that do not score above it are never chosen; None keeps all.
        center: Whether boxes are x, y of the center, width and height.

    Returns:
        The chosen boxes, int64 (2, images, classes, n), of which row 0 counts; how many of them
        there are, int64 (images, classes); their total, int64 (1,).
    """
    images, classes, n = scores.shape
    thresholds = [score_threshold] if score_threshold is not None else []

    def body(ins: list[Any], outs: list[Any]) -> None:
        corners, score, most, overlap = ins[:4]
        chosen, number, total = outs
        with parallel(images * classes) as row:
            b, c = divided(row, classes)
            merge_sort(
                n,
                lambda side, j: (side, b, c, j),
                chosen,
                lambda a, other: precedes(score[b, c, a], score[b, c, other], True),
            )
            # Chosen boxes are written over the front of the order, which is behind the reader.
            count = Scalar(0)
            with serial(n) as j:
                box = Scalar(chosen[0, b, c, j])
                kept = Scalar(count() < most[0], "bool")
                if thresholds:
                    with when(tirx.Not(score[b, c, box()] > ins[4][0])):
                        kept.set(False)
                other = Scalar(0)
                with T.While(tirx.all(kept(), other() < count())):
                    rival = chosen[0, b, c, other()]
                    with when(_overlaps(corners, b, box(), rival, overlap[0], center)):
                        kept.set(False)
                    other.set(other() + 1)
                with when(kept()):
                    chosen[0, b, c, count()] = box()
                    count.set(count() + 1)
            number[b, c] = count()
        total[0] = index(0)
        with serial(images) as b, serial(classes) as c:
            total[0] = total[0] + number[b, c]

    shapes = [((2, images, classes, n), "int64"), ((images, classes), "int64"), ((1,), "int64")]
    tensors = [boxes, scores, max_boxes, iou_threshold, *thresholds]
    return kernel(tensors, shapes, body, "suppress")


def _overlaps(boxes: Any, b: Any, one: Any, two: Any, threshold: Any, center: bool) -> Any:
    """Tell whether intersection over union is above the threshold; boxes without area never do."""
    dtype = str(boxes.dtype)

    def spans(box: Any) -> list[tuple[Any, Any]]:
        v = [boxes[b, box, k] for k in range(4)]
        if center:
            half = as_dtype(0.5, dtype)
            return [(v[k] - v[k + 2] * half, v[k] + v[k + 2] * half) for k in range(2)]
        return [(tirx.min(v[k], v[k + 2]), tirx.max(v[k], v[k + 2])) for k in range(2)]

    areas, common = [], as_dtype(1.0, dtype)
    for box in (one, two):
        (top, bottom), (left, right) = spans(box)
        areas.append((bottom - top) * (right - left))
    for (low, high), (other_low, other_high) in zip(spans(one), spans(two), strict=True):
        extent = tirx.min(high, other_high) - tirx.max(low, other_low)
        common = common * tirx.max(extent, as_dtype(0.0, dtype))
    zero = as_dtype(0.0, dtype)
    union = areas[0] + areas[1] - common
    return tirx.all(
        areas[0] > zero, areas[1] > zero, union > zero, common / union > as_dtype(threshold, dtype)
    )


def selected_boxes(chosen: te.Tensor, number: te.Tensor, total: Any) -> te.Tensor:
    """Return (image, class, box) of each box that `suppress` chose, int64 (total, 3)."""
    images, classes = number.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        boxes, counts = ins
        row = Scalar(0)
        with serial(images) as b, serial(classes) as c, serial(counts[b, c]) as j:
            for column, value in enumerate((b, c, boxes[0, b, c, j])):
                outs[0][row(), column] = value
            row.set(row() + 1)

    return kernel([chosen, number], [((total, 3), "int64")], body, "selected_boxes")[0]
