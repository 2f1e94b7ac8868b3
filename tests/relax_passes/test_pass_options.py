"""Options as frozen dataclasses: typed values, text, ranges, and errors that name what there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from relax_passes.pass_base import REGISTRY
from relax_passes.pass_options import OptionError, describe_options, option, replace_options
from relax_passes.pipeline import default_pipeline


@dataclass(frozen=True)
class Sample:
    """One option of each kind."""

    count: int = option(3, "how many", at_least=1)
    ratio: float = option(0.5, "how much")
    deep: bool = option(True, "whether to go on")
    order: Literal["first", "best"] = option("best", "which comes first")
    names: tuple[str, ...] = option((), "what to leave out")
    limit: int | None = option(None, "largest size in bytes")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("count", "7", 7),
        ("count", 7, 7),
        ("ratio", "2", 2.0),
        ("ratio", 2, 2.0),
        ("deep", "False", False),
        ("order", "first", "first"),
        ("names", ("a", "b"), ("a", "b")),
        ("names", ["a"], ("a",)),
        ("limit", "64", 64),
        ("limit", "none", None),
    ],
)
def test_values_and_their_text(name: str, given: Any, value: Any) -> None:
    changed = replace_options("sample", Sample(limit=1), {name: given})
    assert getattr(changed, name) == value and type(getattr(changed, name)) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("count", "many", "option count=many: expected a whole number"),
        ("count", 1.5, "expected a whole number"),
        ("count", True, "expected a whole number"),
        ("count", "0", "expected at least 1"),
        ("ratio", "nan?", "expected a number"),
        ("deep", "maybe", "expected true or false"),
        ("order", "worst", "expected one of first, best"),
        ("names", "a", r"expected \[name,...\]"),
        ("limit", "x", "expected a whole number"),
        ("cuont", 3, "has no option 'cuont'; it has count, .*did you mean 'count'"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, given: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        replace_options("sample", Sample(), {name: given})
    assert caught.value.option == name


def test_a_pass_without_options_says_so() -> None:
    with pytest.raises(OptionError, match="it has none"):
        REGISTRY["eliminate_dead_code"].with_options(deep=True)


def test_every_option_of_every_pass_is_described_and_takes_its_own_text() -> None:
    assert default_pipeline()
    described = 0
    for graph_pass in REGISTRY.values():
        for name, kind, value, meaning in describe_options(graph_pass.options):
            assert kind and meaning and len(meaning) < 100
            text: Any = value
            if value.startswith("["):
                text = tuple(word for word in value[1:-1].split(",") if word)
            assert graph_pass.with_options(**{name: text}).options == graph_pass.options
            described += 1
    assert described >= 7


def test_setting_nothing_gives_the_very_pass() -> None:
    graph_pass = REGISTRY["fuse_operators"]
    assert graph_pass.with_options() is graph_pass
    assert graph_pass.with_options(max_blocks=7).options.max_blocks == 7
    assert graph_pass.options.max_blocks != 7
