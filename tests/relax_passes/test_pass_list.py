"""The text that names passes: what it may say, and where an error is."""

from __future__ import annotations

import re

import pytest

import relax_passes.pipeline  # noqa: F401  (registers every pass)
from relax_passes.pass_list import PassListError, parse_pass_list, read_passes


def test_names_aliases_options_and_spaces() -> None:
    text = " fold_batch_norm ,cse{max_constant_bytes=64}, dce {} ,"
    passes = read_passes(text + "schedule_kernels{without_rules=[a, b]},")
    assert [p.name for p in passes] == [
        "fold_batch_norm",
        "eliminate_common_subexpressions",
        "eliminate_dead_code",
        "schedule_kernels",
    ]
    assert passes[1].options.max_constant_bytes == 64
    assert passes[3].options.without_rules == ("a", "b")
    assert read_passes("") == read_passes("  ") == []


def test_the_same_pass_may_come_twice_with_other_options() -> None:
    first, second = read_passes("plan_memory{reuse=false,strategy=best_fit},plan_memory")
    assert (first.options.reuse, first.options.strategy) == (False, "best_fit")
    assert (second.options.reuse, second.options.strategy) == (True, "search")


def test_positions_count_from_one() -> None:
    (spec,) = parse_pass_list("  cse{ max_constant_bytes=64 }")
    assert (spec.position, spec.positions) == (3, {"max_constant_bytes": 8})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("cse,,dce", "at position 5: expected a pass, got ','"),
        ("cse dce", "at position 5: expected ',' between two passes, got 'dce'"),
        ("cse{", "at position 5: expected an option of 'cse', or '}', got the end"),
        ("cse{max=", "at position 9: expected a value for option 'max', got the end"),
        ("cse{max}", "at position 8: expected '=' after option 'max' of pass 'cse', got '}'"),
        ("cse{a=1 b=2}", "at position 9: expected ',' or '}' after option 'a'"),
        ("cse{a=1,a=2}", "at position 9: option 'a' is given twice"),
        ("cse{a=[b c]}", "at position 10: expected ',' or ']' in the list of option 'a', got 'c'"),
        ("dce}", "at position 4: expected ',' between two passes, got '}'"),
        ("dce,fuze", "at position 5: no pass is called 'fuze'; did you mean 'fuse'?"),
        ("cse,sorcery", "at position 5: no pass is called 'sorcery'; `relaxc opt --list`"),
        (
            "dce,cse{max_bytes=1}",
            "at position 9: pass 'eliminate_common_subexpressions' has no option 'max_bytes'; "
            "it has max_constant_bytes; did you mean 'max_constant_bytes'?",
        ),
        ("cse{max_constant_bytes=-1}", "at position 5: .*expected at least 0"),
        ("dce{deep=true}", "at position 5: .*it has none"),
    ],
)
def test_errors_name_the_place(text: str, error: str) -> None:
    pattern = error if ".*" in error else re.escape(error)
    with pytest.raises(PassListError, match=pattern):
        read_passes(text)
