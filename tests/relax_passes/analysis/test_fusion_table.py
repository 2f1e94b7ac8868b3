"""The table in the documentation is the table in the code, and it forbids what it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax_passes.analysis.category import Category
from relax_passes.analysis.fusion_table import FUSION_TABLE, When, as_markdown

DOCUMENT = Path(__file__).parents[3] / "docs" / "fusion.md"


def test_documentation_shows_this_table():
    text = DOCUMENT.read_text()
    table = text.split("<!-- table -->\n")[1].split("\n<!-- end -->")[0]
    assert table == as_markdown()


@pytest.mark.parametrize("other", Category)
def test_opaque_fuses_with_nothing(other: Category):
    assert (Category.OPAQUE, other) not in FUSION_TABLE
    assert (other, Category.OPAQUE) not in FUSION_TABLE


def test_two_anchors_never_fuse():
    anchors = (Category.REDUCTION, Category.COMPLEX_OUT_FUSABLE)
    assert not {(a, b) for a in anchors for b in anchors} & FUSION_TABLE.keys()


def test_an_epilogue_must_keep_the_anchors_shape():
    for (producer, _), entry in FUSION_TABLE.items():
        if producer in (Category.REDUCTION, Category.COMPLEX_OUT_FUSABLE):
            assert entry.when is When.SAME_SHAPE


def test_every_entry_has_a_reason():
    assert all(entry.why for entry in FUSION_TABLE.values())
