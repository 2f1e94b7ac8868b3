"""What may be measured: few options, all of them sound, the cost model's first."""

from __future__ import annotations

import dataclasses

import pytest

from tests.tir_schedules.llvm.scheduled_kernel import AVX2, AVX512, machine
from tir_schedules.llvm.conv_algorithm import MAX_ERROR_GROWTH, ConvAlgorithm, choose_winograd
from tir_schedules.llvm.conv_tile import ConvSizes, choose_conv_tile, fits
from tir_schedules.llvm.depthwise_conv2d import TaskRows
from tir_schedules.llvm.row_block import RowBlock
from tir_schedules.llvm.winograd_matrices import winograd
from tir_schedules.questions import Question, decide, record_questions

LAYERS = [(8, 3136, 576), (32, 196, 2304), (12, 12544, 16), (64, 49, 512), (1, 1, 8)]


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize(("blocks", "pixels", "depth"), LAYERS)
def test_tiles_stay_in_registers(target: object, blocks: int, pixels: int, depth: int) -> None:
    model = machine(target)  # type: ignore[arg-type]
    sizes = ConvSizes(blocks, model.lanes(), pixels, depth, 4 * depth * pixels)
    options = sizes.options(model)
    assert options[0] == choose_conv_tile(sizes, model)
    assert len(set(options)) == len(options) <= 6
    for tile in options:
        assert fits(tile.blocks, tile.pixels, model.vector_registers)
        assert blocks % tile.blocks == 0 and tile.pixels * tile.task_tiles < 2 * pixels + 8


def test_a_symbolic_number_of_pixels_has_one_tile() -> None:
    sizes = ConvSizes(8, 8, None, 576, 0)
    assert len(sizes.options(machine(AVX2))) == 1


def test_algorithms_are_all_of_a_tolerable_error() -> None:
    model = machine(AVX2)
    question = ConvAlgorithm(1, 64, 8, 8, (56, 56))
    options = question.options(model)
    assert options[0] == choose_winograd(1, 64, 8, 8, (56, 56), model)
    assert sorted(options, key=lambda m: m or 0) == [None, 2, 4]
    assert all(winograd(m).error_growth <= MAX_ERROR_GROWTH for m in options if m)


@pytest.mark.parametrize(
    ("rows", "most", "options"), [(14, 14, [14, 7]), (56, 20, [14, 8, 28]), (7, 3, [1, 7])]
)
def test_rows_of_a_task_divide_the_image(rows: int, most: int, options: list[int]) -> None:
    assert TaskRows(rows, most, 0).options(machine(AVX2)) == options


def test_row_blocks_are_some_halves_and_all() -> None:
    model = dataclasses.replace(machine(AVX2), cores=1, l2_bytes=512 << 10)
    question = RowBlock(rows=3136, depth=96, tile_rows=6, tile_cols=16, tasks=24)
    chosen, *others = question.options(model)
    assert chosen is not None and others == [None, -(-chosen // 2)]
    assert len(RowBlock(None, 96, 6, 16, 24).options(model)) == 1


def test_an_answer_counts_where_it_is_an_option() -> None:
    model = machine(AVX2)
    question = TaskRows(14, 14, 0)

    def answered(rows: int) -> int:
        known: frozenset[tuple[Question, int]] = frozenset({(question, rows)})
        return decide(question, dataclasses.replace(model, answers=known))

    assert (decide(question, model), answered(7), answered(5)) == (14, 7, 14)


def test_questions_are_recorded_in_their_order() -> None:
    model = machine(AVX2)
    first, second = TaskRows(14, 14, 0), RowBlock(64, 64, 6, 16, 4)
    with record_questions() as asked:
        decide(first, model)
        decide(second, model)
        decide(first, model)
    assert list(asked) == [first, second]
    decide(TaskRows(7, 7, 0), model)
    assert len(asked) == 2


def test_no_answer_is_not_the_answer_none() -> None:
    question, model = ConvAlgorithm(1, 64, 8, 8, (56, 56)), machine(AVX2)
    assert decide(question, model) == question.options(model)[0] is not None
    direct: frozenset[tuple[Question, None]] = frozenset({(question, None)})
    assert decide(question, dataclasses.replace(model, answers=direct)) is None
