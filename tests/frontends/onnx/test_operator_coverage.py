"""Every operator of ai.onnx and ai.onnx.ml in every version has a way in, but for a known list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from onnx import defs

from frontends.onnx.function_body import has_schema_function
from frontends.onnx.registry import find_converter, refusal

# Versions that models are found in. Before 7 broadcasting was another; 26 is the newest one that
# tools write.
VERSIONS = {"": range(7, 27), "ai.onnx.ml": range(1, 6)}

STRINGS = "strings are no tensors of numbers"
MAPS = "maps are no tensors"

# What is refused, and why. An operator leaves this list when it gets a converter.
REFUSED = {
    ("", "ImageDecoder"): "decoding of compressed files",
    ("", "RegexFullMatch"): STRINGS,
    ("", "StringConcat"): STRINGS,
    ("", "StringNormalizer"): STRINGS,
    ("", "StringSplit"): STRINGS,
    ("ai.onnx.ml", "CastMap"): MAPS,
    ("ai.onnx.ml", "CategoryMapper"): STRINGS,
    ("ai.onnx.ml", "DictVectorizer"): MAPS,
    ("ai.onnx.ml", "ZipMap"): MAPS,
}


def _operators() -> Iterator[tuple[str, str, int]]:
    """Yield domain, name and version of everything that a model may contain."""
    names = {(s.domain, s.name) for s in defs.get_all_schemas_with_history()}
    for domain, name in sorted(names):
        for version in VERSIONS.get(domain, ()):
            try:
                schema = defs.get_schema(name, version, domain)
            except defs.SchemaError:
                continue
            if not schema.deprecated:
                yield domain, name, version


def _has_way_in(domain: str, name: str, version: int) -> bool:
    if find_converter(domain, name, version) is not None:
        return True
    return has_schema_function(domain, name, version)


def test_every_operator_in_every_version_has_a_way_in_or_a_reason() -> None:
    missing: dict[tuple[str, str], list[int]] = {}
    for domain, name, version in _operators():
        if not _has_way_in(domain, name, version):
            missing.setdefault((domain, name), []).append(version)
    assert {key: missing[key] for key in missing if key not in REFUSED} == {}
    assert sorted(set(REFUSED) - set(missing)) == [], "these have a way in now: shorten the list"


@pytest.mark.parametrize(("domain", "name"), sorted(REFUSED))
def test_what_is_refused_is_an_operator_and_says_why(domain: str, name: str) -> None:
    assert defs.has(name, domain)
    assert refusal(domain, name)
