"""The structure of generated CUDA C as a few readable lines, whatever its variables are called.

    96 blocks of 128 threads
    shared uchar[dynamic], registers float[8] uint[16]
    for 12:
      cp.async.wait_group 1
      barrier
      if:
        2 x cp.async.cg 16
      4 x ldmatrix.x4
      8 x mma.m16n8k16.f32.f16.f16.f32
    4 x store 16 bytes

Loops and branches nest as in the source. Of the statements, those are listed that a schedule
decides: barriers, instructions written as PTX, shuffles, and how wide global and shared memory is
read and written. Arithmetic and addresses are left out, so are branches with nothing of these in
them; lines that repeat are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.cuda.emulator.launch import Grid

_HELPER = re.compile(
    r"__device__ \w+ (\w+)\([^)]*\)\s*\{\s*(?:[^}]*?)asm volatile\(\"([^\"]*)\"", re.S
)
_KERNEL = re.compile(r'extern "C" __global__ void [^{;]*?(\w+)\([^)]*\)\s*\{')
_LOOP = re.compile(r"for \(\w+ \w+ = 0; \w+ < (.+?); \+\+\w+\) \{")
_ALIGNED = r"(?:(?:__align__|alignas)\(\d+\) )?"
_SHARED = re.compile(rf"(?:extern )?__shared__ {_ALIGNED}([\w ]+?) (\w+)\[(\d*)\];")
_LOCAL = re.compile(rf"{_ALIGNED}([\w ]+?) (\w+)\[(\d+)\];")
_WIDE = re.compile(r"\*\((\w+)\*\)\(\(?&?\(?(\w+)")
_SHUFFLE = re.compile(r"__shfl_(\w+)_sync\(")
_SIZES = {"char": 1, "uchar": 1, "half": 2, "short": 2, "ushort": 2, "double": 8, "int64_t": 8}


@dataclass
class _Scope:
    """A loop, a branch or a whole kernel, and what is in it."""

    title: str
    lines: list[str | _Scope] = field(default_factory=list)

    def text(self) -> list[str]:
        """Return the lines, nested ones indented; empty scopes are left out."""
        inner: list[list[str]] = []
        for line in self.lines:
            part = line.text() if isinstance(line, _Scope) else [line]
            if part:
                inner.append(part)
        if not inner:
            return []
        body = [line for part in _counted(inner) for line in part]
        return [self.title, *(f"  {line}" for line in body)] if self.title else body


def structure(source: str, kernel: str, grid: Grid | None = None) -> str:
    """Return the structure of one kernel of a CUDA file.

    Args:
        source: What TVM generated.
        kernel: The kernel's name.
        grid: How it is launched, None where that is not known.
    """
    instructions = dict(_HELPER.findall(source))
    *_, found = (match for match in _KERNEL.finditer(source) if match[1] == kernel)
    lines = list(_body(source, found.end()))
    shared, local, names = _arrays(lines)
    whole = _Scope("")
    stack = [whole]
    for line in lines:
        if _LOCAL.match(line) or _SHARED.match(line):
            continue
        for _ in range(line.startswith("}")):
            stack.pop()
        for event in _events(line, instructions, names):
            stack[-1].lines.append(event)
        if line.endswith("{"):
            inner = _Scope(_title(line))
            stack[-1].lines.append(inner)
            stack.append(inner)
    local = [text if count == 1 else f"{count} x {text}" for text, count in Counter(local).items()]
    head = (
        [] if grid is None else [f"{_times(grid.blocks)} blocks of {_times(grid.threads)} threads"]
    )
    memory = [f"shared {' '.join(shared)}"] if shared else []
    memory += [f"registers {' '.join(local)}"] if local else []
    return "\n".join([*head, *memory, *whole.text()]) + "\n"


def _body(source: str, start: int) -> Iterator[str]:
    """Yield the lines of a kernel, up to the brace that closes it."""
    depth = 1
    for line in source[start:].splitlines():
        depth += line.count("{") - line.count("}")
        if not depth:
            return
        if line.strip():
            yield line.strip()


def _arrays(lines: Sequence[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """Return the shared and the register arrays, and the memory of each name."""
    shared, local, names = [], [], {}
    for line in lines:
        if match := _SHARED.match(line):
            shared.append(f"{match[1]}[{match[3] or 'dynamic'}]")
            names[match[2]] = "shared"
        elif match := _LOCAL.match(line):
            local.append(f"{match[1]}[{match[3]}]")
            names[match[2]] = "registers"
    return shared, local, names


def _title(line: str) -> str:
    if match := _LOOP.search(line):
        return f"for {match[1] if match[1].isdigit() else 'n'}:"
    if "else" in line:
        return "else:"
    return "if:" if line.startswith("if") else "block:"


def _events(line: str, instructions: dict[str, str], names: dict[str, str]) -> Iterator[str]:
    """Yield what a line does that a schedule decides."""
    for word in re.findall(r"\b(\w+)\(", line):
        if word in instructions:
            yield _instruction(instructions[word], word)
        elif word == "__syncthreads":
            yield "barrier"
        elif word == "__syncwarp":
            yield "warp barrier"
        elif word == "atomicAdd":
            yield "atomic add"
    yield from (f"shuffle {kind}" for kind in _SHUFFLE.findall(line))
    left, _, right = line.partition(" = ")
    for side, does in ((left, "store"), (right, "load")):
        for kind, name in _WIDE.findall(side):
            if (where := names.get(name, "global")) != "registers":
                yield f"{does} {_bytes(kind)} bytes of {where}"
        for name in re.findall(r"(?<![&\w])(\w+)\[", re.sub(r"&\(?\w+\[", "", side)):
            if (where := names.get(name, "global")) != "registers":
                yield f"{does} an element of {where}"


def _instruction(text: str, helper: str) -> str:
    """Return a PTX instruction without what all of its kind have in common."""
    name = text.partition(" ")[0].rstrip(";")
    for word in (
        ".sync",
        ".aligned",
        ".shared",
        ".global",
        ".row",
        ".col",
        ".m8n8",
        ".L2::128B",
        ".b16",
    ):
        name = name.replace(word, "") if name.startswith(("mma", "ldmatrix", "cp.async")) else name
    if re.match(r"cp\.async\.c[ag]", name):
        return f"{name} {helper.rpartition('_')[2]}"
    if name.startswith("cp.async"):
        immediate = re.fullmatch(r"[\w.]+ (\d+);", text)
        return f"{name} {immediate[1]}" if immediate else name
    return name


def _bytes(kind: str) -> int:
    """Return the size of a vector type such as float4."""
    base, lanes = re.fullmatch(r"(\w+?)(\d?)", kind.replace("int64_t", "longlong1")).groups()  # type: ignore[union-attr]
    return _SIZES.get(base, 8 if base == "longlong" else 4) * int(lanes or 1)


def _counted(parts: Sequence[list[str]]) -> list[list[str]]:
    """Return lines with repetitions counted: of one line, or of a run of up to eight."""
    done: list[list[str]] = []
    at = 0
    while at < len(parts):
        run, times = 1, 1
        for length in range(1, 9):
            count = 1
            pattern = list(parts[at : at + length])
            while list(parts[at + count * length : at + (count + 1) * length]) == pattern:
                count += 1
            if (count - 1) * length > (times - 1) * run:
                run, times = length, count
        pattern = list(parts[at : at + run])
        if times == 1:
            done.append(parts[at])
            at += 1
            continue
        if run == 1 and len(pattern[0]) == 1:
            done.append([f"{times} x {pattern[0][0]}"])
        else:
            inner = [f"  {line}" for part in _counted(pattern) for line in part]
            done.append([f"{times} x:", *inner])
        at += run * times
    return done


def _times(sizes: Sequence[int]) -> str:
    long = [str(size) for size in sizes if size != 1]
    return " x ".join(long) or "1"
