"""Converters by operator: which function imports which version of an ONNX operator.

ONNX versions operators: a node of a model at opset 13 means the definition with the greatest
version not above 13. A converter states since when it holds and serves until a newer one takes
over.
"""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontends.onnx.op import Op

Converter = Callable[["Op"], Any]

_CONVERTERS: dict[tuple[str, str], list[tuple[int, Converter]]] = {}
_REFUSED: dict[tuple[str, str], str] = {}
_LOADED = False


def normalize_domain(domain: str) -> str:
    """Return the domain's canonical name: "ai.onnx" and "" are the same."""
    return "" if domain == "ai.onnx" else domain


def converter(*names: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated function as converter of operators `names` from opset `since` on."""

    def register(function: Converter) -> Converter:
        for name in names:
            versions = _CONVERTERS.setdefault((normalize_domain(domain), name), [])
            if any(version == since for version, _ in versions):
                raise ValueError(f"{name} since {since} has two converters")
            versions.append((since, function))
            versions.sort(key=lambda entry: entry[0])
        return function

    return register


def refuse(*names: str, reason: str, domain: str = "") -> None:
    """State why operators will not have a converter; `reason` is shown wherever one is met."""
    _REFUSED.update({(normalize_domain(domain), name): reason for name in names})


def refusal(domain: str, name: str) -> str:
    """Return why an operator is refused, "" if nothing was stated."""
    _load_operators()
    return _REFUSED.get((normalize_domain(domain), name), "")


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """Return the converter with the greatest version <= `opset`, or None."""
    _load_operators()
    versions = _CONVERTERS.get((normalize_domain(domain), name), [])
    place = bisect_right([version for version, _ in versions], opset)
    return versions[place - 1][1] if place else None


def registered_operators() -> dict[tuple[str, str], list[int]]:
    """Return the versions of every (domain, operator) that has a converter."""
    _load_operators()
    return {key: [version for version, _ in versions] for key, versions in _CONVERTERS.items()}


def _load_operators() -> None:
    """Import every module of `operators` once: importing one registers its converters."""
    global _LOADED
    if not _LOADED:
        from frontends.onnx import operators

        for module in pkgutil.iter_modules(operators.__path__):
            importlib.import_module(f"{operators.__name__}.{module.name}")
        _LOADED = True
