"""The options of a pass: a frozen dataclass is at once the API, the command line and the docs.

    @dataclass(frozen=True)
    class FuseOptions:
        max_blocks: int = option(48, "most compute blocks in one kernel", at_least=1)

A field has a default, a meaning and one of these types: int, float, bool, str, a `Literal` of
words, a tuple of words, or one of them `| None`. `replace_options` takes values of these types from
Python and their text from the command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

_TRUTH = {"true": True, "false": False}


class OptionError(ValueError):
    """An option that a pass does not have, or a value that does not fit; `option` is its name."""

    def __init__(self, text: str, option: str) -> None:
        super().__init__(text)
        self.option = option


def option(default: Any, meaning: str, *, at_least: float | None = None) -> Any:
    """Return a field of an options dataclass.

    Args:
        default: The value that holds unless it is set.
        meaning: One line for the reader of `relaxc opt --list`; it gives the unit.
        at_least: The smallest number allowed.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "at_least": at_least})


def describe_options(options: Any) -> list[tuple[str, str, str, str]]:
    """Return (name, type, value, meaning) of each option of a dataclass instance or None."""
    if options is None:
        return []
    hints = typing.get_type_hints(type(options))
    return [
        (f.name, _type_text(hints[f.name]), show(getattr(options, f.name)), f.metadata["meaning"])
        for f in dataclasses.fields(options)
    ]


def replace_options(owner: str, options: Any, values: Mapping[str, Any]) -> Any:
    """Return `options` with some values replaced.

    Args:
        owner: The pass, for error texts.
        options: An instance of its options dataclass; None if it has no options.
        values: New values by option name, typed or as text.

    Raises:
        OptionError: If the pass has no such option, or the value does not fit.
    """
    fields = {} if options is None else {f.name: f for f in dataclasses.fields(options)}
    hints = typing.get_type_hints(type(options)) if fields else {}
    checked = {}
    for name, value in values.items():
        if name not in fields:
            has = f"it has {', '.join(fields)}" if fields else "it has none"
            raise OptionError(
                f"pass {owner!r} has no option {name!r}; {has}{did_you_mean(name, fields)}", name
            )
        expected = hints[name]
        try:
            checked[name] = _convert(value, expected)
            _check_range(checked[name], fields[name].metadata["at_least"])
        except ValueError as fault:
            raise OptionError(
                f"pass {owner!r}: option {name}={show(value)}: {fault}", name
            ) from None
    return dataclasses.replace(options, **checked) if checked else options


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name closest to `name`, "" if none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def show(value: Any) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, tuple | list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _convert(value: Any, expected: Any) -> Any:
    """Return `value` as one of the type `expected`, from its text if it is text."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (types.UnionType, typing.Union):
        if value is None or value == "none":
            return None
        return _convert(value, next(a for a in arguments if a is not types.NoneType))
    if origin is typing.Literal:
        if value in arguments:
            return value
    elif origin is tuple:
        if isinstance(value, tuple | list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif expected is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _TRUTH:
            return _TRUTH[value.lower()]
    elif expected in (int, float):
        if isinstance(value, str):
            try:
                return expected(value)
            except ValueError:
                pass
        elif isinstance(value, int | expected) and not isinstance(value, bool):
            return expected(value)
    elif isinstance(value, str):
        return value
    raise ValueError(f"expected {_type_text(expected)}")


def _check_range(value: Any, at_least: float | None) -> None:
    if at_least is not None and value is not None and not value >= at_least:
        raise ValueError(f"expected at least {at_least}")


def _type_text(expected: Any) -> str:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("none" if a is types.NoneType else _type_text(a) for a in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is tuple:
        return "[name,...]"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names[expected]
