"""The text that names passes: `fold_batch_norm,cse{max_constant_bytes=64},dce`.

    list    := pass ("," pass)*
    pass    := name [ "{" [ option ("," option)* ] "}" ]
    option  := name "=" value
    value   := word | "[" [ word ("," word)* ] "]"

Space may stand between any two of these. Names and words are what holds none of `,{}[]=` and space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from relax_passes.pass_base import GraphPass, find_pass
from relax_passes.pass_options import OptionError

_TOKEN = re.compile(r"\s*([,{}\[\]=]|[^\s,{}\[\]=]+)")
_MARKS = frozenset(",{}[]=")


class PassListError(ValueError):
    """A list of passes that cannot be read; the text gives the position, counted from 1."""


@dataclass
class PassSpec:
    """One pass as written: its name, its options as text, and where each stands."""

    name: str
    position: int
    values: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)


def read_passes(text: str) -> list[GraphPass]:
    """Return the registered passes that `text` names, in order, with their options set.

    Raises:
        PassListError: If the text does not follow the grammar, or a pass or an option is unknown.
    """
    passes = []
    for spec in parse_pass_list(text):
        position = spec.position
        try:
            found = find_pass(spec.name)
            passes.append(found.with_options(**spec.values))
        except ValueError as fault:
            if isinstance(fault, OptionError):
                position = spec.positions[fault.option]
            raise PassListError(f"at position {position}: {fault}") from fault
    return passes


def parse_pass_list(text: str) -> list[PassSpec]:
    """Return the passes as written, without looking them up.

    Raises:
        PassListError: If the text does not follow the grammar.
    """
    tokens = _Tokens(text)
    specs: list[PassSpec] = []
    while tokens.shown != "":
        spec = PassSpec(tokens.word("a pass"), tokens.last)
        if tokens.take("{"):
            _parse_options(tokens, spec)
        specs.append(spec)
        if tokens.shown != "":
            tokens.expect(",", "between two passes")
    return specs


def _parse_options(tokens: _Tokens, spec: PassSpec) -> None:
    while not tokens.take("}"):
        name = tokens.word(f"an option of {spec.name!r}, or '}}'")
        position = tokens.last
        if name in spec.values:
            raise PassListError(f"at position {position}: option {name!r} is given twice")
        tokens.expect("=", f"after option {name!r} of pass {spec.name!r}")
        spec.values[name] = _parse_value(tokens, name)
        spec.positions[name] = position
        if tokens.shown != "}":
            tokens.expect(",", f"or '}}' after option {name!r} of pass {spec.name!r}")


def _parse_value(tokens: _Tokens, name: str) -> str | tuple[str, ...]:
    if not tokens.take("["):
        return tokens.word(f"a value for option {name!r}")
    words = []
    while not tokens.take("]"):
        words.append(tokens.word(f"a word in the list of option {name!r}, or ']'"))
        if tokens.shown != "]":
            tokens.expect(",", f"or ']' in the list of option {name!r}")
    return tuple(words)


class _Tokens:
    """The tokens of a text, one ahead: `shown` is the next, "" at the end; `last` was taken at."""

    def __init__(self, text: str) -> None:
        self._found = [(m[1], m.start(1) + 1) for m in _TOKEN.finditer(text)]
        self._found.append(("", len(text) + 1))
        self._index = 0
        self.last = 0

    @property
    def shown(self) -> str:
        return self._found[self._index][0]

    def take(self, mark: str) -> bool:
        """Take the next token if it is `mark`."""
        if self.shown != mark:
            return False
        self._advance()
        return True

    def expect(self, mark: str, where: str) -> None:
        if not self.take(mark):
            self._fail(f"{mark!r} {where}")

    def word(self, what: str) -> str:
        word = self.shown
        if not word or word in _MARKS:
            self._fail(what)
        self._advance()
        return word

    def _advance(self) -> None:
        self.last = self._found[self._index][1]
        self._index += 1

    def _fail(self, expected: str) -> None:
        token, position = self._found[self._index]
        got = repr(token) if token else "the end"
        raise PassListError(f"at position {position}: expected {expected}, got {got}")
