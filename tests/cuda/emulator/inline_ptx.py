"""Turn the inline PTX of generated CUDA C into calls of the emulator's functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_STATEMENT = re.compile(r"\b(?:__asm__|asm)\s*(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r'\s*"([=+]?)\w+"\s*\((.*)\)\s*', re.DOTALL)
_ELEMENTS = {"f16": "F16", "bf16": "BF16", "tf32": "TF32", "s8": "S8", "u8": "U8"}
_BYTES = {"s32": "S8", "u32": "U8"}  # as dp4a names them


@dataclass(frozen=True)
class Instruction:
    """A PTX instruction: its name, and its operands as C++ expressions, braces as lists."""

    name: str
    operands: list[list[str]]

    def only(self, at: int) -> str:
        """Return the operand at `at`, which is not in braces."""
        (operand,) = self.operands[at]
        return operand.strip("[] ")


def replace_inline_ptx(source: str) -> str:
    """Return the source with each asm statement replaced.

    Raises:
        NotImplementedError: If an instruction is not emulated; the text names it.
    """
    done, at = [], 0
    for match in _STATEMENT.finditer(source):
        end = _closing(source, match.end())
        done += [source[at : match.start()], _emulate(source[match.end() : end])]
        at = end + 1
    return "".join([*done, source[at:]])


def _closing(text: str, at: int) -> int:
    """Return the position of the parenthesis that closes the one before `at`."""
    depth, quoted = 1, False
    while True:
        quoted ^= text[at] == '"' and text[at - 1] != "\\"
        if not quoted:
            depth += (text[at] in "([{") - (text[at] in ")]}")
        if not depth:
            return at
        at += 1


def _split(text: str, separator: str) -> list[str]:
    """Split at separators outside of brackets and strings; empty parts are kept."""
    parts, depth, quoted = [""], 0, False
    for at, char in enumerate(text):
        quoted ^= char == '"' and text[at - 1 : at] != "\\"
        if not quoted:
            depth += (char in "([{") - (char in ")]}")
        if char == separator and not quoted and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _emulate(body: str) -> str:
    """Return the C++ of one asm statement, given what stands in its parentheses."""
    template, *rest = _split(body, ":")
    text = "".join(_STRING.findall(template)).replace("\\n", " ").replace("\\t", " ").strip()
    values = [
        _OPERAND.fullmatch(operand)[2]  # type: ignore[index]
        for section in rest[:2]
        for operand in _split(section, ",")
        if operand
    ]
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    guards: dict[str, str] = {}
    calls = [_one(statement, values, guards) for statement in _split(text, ";") if statement]
    return "{ " + " ".join(calls) + " }"


def _one(statement: str, values: list[str], guards: dict[str, str]) -> str:
    """Return the C++ of one PTX instruction; a predicate register lands in `guards`."""

    def filled(text: str) -> str:
        return re.sub(r"%(\d+)", lambda m: f"({values[int(m[1])]})", text)

    if statement.startswith(".reg .pred"):
        return ""
    if match := re.match(r"setp\.ne\.\w+ (\w+), (\S+), 0$", statement):
        guards[match[1]] = f"{filled(match[2])} != 0"
        return ""
    guard = ""
    if match := re.match(r"@(!?)(\w+) (.*)", statement, re.DOTALL):
        guard, statement = f"if ({match[1]}({guards[match[2]]})) ", match[3]
    name, _, operands = statement.partition(" ")
    lists = [
        [filled(part) for part in _split(operand.strip().strip("{}"), ",")]
        for operand in _split(operands, ",")
        if operand
    ]
    for pattern, call in _CALLS:
        if pattern.match(name):
            return guard + call(Instruction(name, lists))
    raise NotImplementedError(f"the emulator does not run {name}")


def _load_matrices(instruction: Instruction) -> str:
    registers, count = instruction.operands[0], len(instruction.operands[0])
    transposed = str(".trans" in instruction.name).lower()
    kept = " ".join(f"{register} = ptx_r[{at}];" for at, register in enumerate(registers))
    address = instruction.only(1)
    return (
        f"{{ unsigned ptx_r[{count}]; "
        f"emulator::load_matrices<{count}, {transposed}>(ptx_r, {address}, __LINE__); {kept} }}"
    )


def _multiply(instruction: Instruction) -> str:
    parts = instruction.name.split(".")
    depth = int(parts[3].partition("k")[2])
    result, left, right, _ = parts[6:10]
    known = left in _ELEMENTS and right in _ELEMENTS and result in ("f32", "s32")
    mixed = left != right and result != "s32"
    if parts[3][:6] != "m16n8k" or parts[4:6] != ["row", "col"] or mixed or not known:
        raise NotImplementedError(f"the emulator does not run {instruction.name}")
    sums = "int" if result == "s32" else "float"
    d, a, b, c = instruction.operands
    kept = " ".join(f"{register} = ptx_d[{at}];" for at, register in enumerate(d))
    types = f"emulator::{_ELEMENTS[left]}, emulator::{_ELEMENTS[right]}"
    call = f"emulator::multiply<{types}, {depth}>"
    return (
        f"{{ unsigned ptx_a[] = {{{', '.join(a)}}}, ptx_b[] = {{{', '.join(b)}}}; "
        f"{sums} ptx_c[] = {{{', '.join(c)}}}, ptx_d[4]; "
        f"{call}(ptx_d, ptx_a, ptx_b, ptx_c, __LINE__); {kept} }}"
    )


def _dot_of_bytes(instruction: Instruction) -> str:
    left, right = (f"emulator::{_BYTES[part]}" for part in instruction.name.split(".")[1:3])
    result, a, b, c = (instruction.only(at) for at in range(4))
    return f"{result} = emulator::dot_of_bytes<{left}, {right}>({a}, {b}, {c});"


def _load(instruction: Instruction) -> str:
    kind, registers = _register_type(instruction), instruction.operands[0]
    kept = " ".join(f"{register} = ptx_r[{at}];" for at, register in enumerate(registers))
    space, address = instruction.name.split(".")[1], instruction.only(1)
    address = f"(const void*){address}" if space == "global" else address
    call = f"emulator::load_{space}(ptx_r, {address}, sizeof ptx_r);"
    return f"{{ {kind} ptx_r[{len(registers)}]; {call} {kept} }}"


def _store(instruction: Instruction) -> str:
    kind, registers = _register_type(instruction), ", ".join(instruction.operands[1])
    space, address = instruction.name.split(".")[1], instruction.only(0)
    address = f"(void*){address}" if space == "global" else address
    call = f"emulator::store_{space}({address}, ptx_r, sizeof ptx_r);"
    return f"{{ {kind} ptx_r[] = {{{registers}}}; {call} }}"


def _pack(instruction: Instruction) -> str:
    kind = "__half" if ".f16x2." in instruction.name else "__nv_bfloat16"
    result, upper, lower = (instruction.only(at) for at in range(3))
    return f"{result} = emulator::pack<{kind}>({upper}, {lower});"


def _register_type(instruction: Instruction) -> str:
    return "float" if instruction.name.endswith("f32") else "unsigned"


def _copy_async(instruction: Instruction) -> str:
    to, source, size = (instruction.only(at) for at in range(3))
    read = instruction.only(3) if len(instruction.operands) > 3 else size
    return f"emulator::copy_async({to}, (const void*){source}, {size}, {read});"


_CALLS: list[tuple[re.Pattern[str], Callable[[Instruction], str]]] = [
    (
        re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x\d(\.trans)?\.shared(::cta)?\.b16"),
        _load_matrices,
    ),
    (re.compile(r"ld\.(shared|global)\.(v[24]\.)?[fbus]32"), _load),
    (re.compile(r"dp4a\.[su]32\.[su]32"), _dot_of_bytes),
    (re.compile(r"st\.(shared|global)\.(v[24]\.)?[fbus]32"), _store),
    (re.compile(r"cvt\.rn\.b?f16x2\.f32"), _pack),
    (
        re.compile(r"cvt\.rna\.tf32\.f32"),
        lambda i: f"{i.only(0)} = emulator::to_tf32({i.only(1)});",
    ),
    (re.compile(r"mma\.sync\.aligned\."), _multiply),
    (re.compile(r"cp\.async\.c[ag]\.shared(::cta)?\.global"), _copy_async),
    (re.compile(r"cp\.async\.commit_group"), lambda i: "emulator::commit_copies();"),
    (re.compile(r"cp\.async\.wait_group"), lambda i: f"emulator::wait_copies({i.only(0)});"),
    (
        re.compile(r"cp\.async\.wait_all"),
        lambda i: "emulator::commit_copies(); emulator::wait_copies(0);",
    ),
]
