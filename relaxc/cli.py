"""The command `relaxc`: argument parsing, and errors as one line with exit code 2.

Only what `--help` needs is imported here; each subcommand lives in `relaxc.commands` and imports
TVM when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from relaxc import __version__
from relaxc.errors import RelaxcError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 (a check failed) or 2 (an error)."""
    args = build_parser().parse_args(argv)
    if args.debug:
        os.environ.setdefault("TVM_BACKTRACE", "1")
    try:
        from relaxc import commands

        return int(getattr(commands, f"run_{args.command}")(args) or 0)
    except RelaxcError as fault:
        if args.debug:
            raise
        text = " ".join(str(fault).split())
        print(f"relaxc: {type(fault).__name__}: {text}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        sys.stderr.close()
        return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands."""
    # On every subcommand too, so that it may stand at the end of a line.
    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument(
        *("--debug",),
        action="store_true",
        default=argparse.SUPPRESS,
        help="show tracebacks of errors, and verify more while compiling",
    )
    parser = argparse.ArgumentParser(
        prog="relaxc",
        description="Compile ONNX models into fast shared libraries.",
        parents=[debug],
    )
    parser.add_argument("--version", action="version", version=f"relaxc {__version__}")
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[debug])

    sub = command("compile", "compile a model into one .so file")
    _source(sub)
    _compile_options(sub)
    sub.add_argument(
        *("-o", "--output"),
        help="file to write (default: the model's name with .so); a .tar gets the object files, "
        "which `relaxc link` makes a .so of on another machine",
    )
    sub.add_argument("--dump-dir", help="folder that receives the module after each phase")
    sub.add_argument("--sources", metavar="DIR", help="folder that receives the device kernels")

    sub = command("link", "link the object files of a model on the machine they are for")
    sub.add_argument("objects", help="a .tar file that relaxc compile wrote")
    sub.add_argument("-o", "--output", help="file to write (default: the same name with .so)")

    sub = command("run", "run a compiled model")
    sub.add_argument("model", help="a .so file that relaxc compiled")
    sub.add_argument(
        *("--input", "-i"),
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="an input; may be repeated; inputs left out take seeded random values with --random",
    )
    sub.add_argument("--random", action="store_true", help="fill missing inputs with random values")
    sub.add_argument("--output", "-o", metavar="FILE.npz", help="write the outputs there")
    _dims(sub)

    sub = command("bench", "measure a model side by side with other engines")
    _source(sub)
    _compile_options(sub)
    sub.add_argument(
        "--against",
        default="onnxruntime",
        help="engines, separated by commas: onnxruntime, openvino, inductor, tvm",
    )
    sub.add_argument("--rounds", type=int, default=20, help="timed runs of each engine")
    sub.add_argument("--budget", type=float, default=20.0, help="seconds for all timed runs")
    sub.add_argument("--json", metavar="FILE", help="write the measurements there")
    _dims(sub)

    sub = command(
        "check", "compare a model's outputs with ONNX Runtime's; exit code 1 if they differ"
    )
    _source(sub)
    _compile_options(sub)
    sub.add_argument("--tolerance", type=float, default=1e-4, help="largest relative error")
    sub.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    sub.add_argument(
        "--coverage",
        action="store_true",
        help="only list the model's operators and how each is imported; nothing is compiled",
    )
    sub.add_argument(
        "--bisect",
        action="store_true",
        help="find the stage, and in it the pass or the schedule rule, that makes the numbers "
        "differ; exit code 1 if there is one",
    )
    sub.add_argument(
        "--memory",
        action="store_true",
        help="run the model without reuse of memory and with, freed bytes poisoned, and name the "
        "first tensor that differs; exit code 1 if there is one",
    )
    _dims(sub)

    sub = command("explain", "tell what the compiler did with a model")
    sub.add_argument("model", help="an ONNX file, or a .so file that relaxc compiled")
    _compile_options(sub)
    sub.add_argument("--html", metavar="FILE", help="write the report as one HTML page")
    sub.add_argument("--json", metavar="FILE", help="write the report as JSON")
    sub.add_argument(
        "--memory",
        metavar="FILE.png",
        help="draw the memory plan there, and compare it with TVM's and ONNX Runtime's",
    )
    sub.add_argument("--dump-dir", help="folder that receives the module after each phase")

    sub = command("opt", "run single passes on a model and print the module")
    sub.add_argument("model", nargs="?", help="an ONNX file")
    sub.add_argument(
        *("-p", "--passes"),
        default="",
        metavar="PASS,...",
        help="passes, separated by commas, each with its options in "
        "braces: fold_batch_norm,cse{max_constant_bytes=64},dce",
    )
    sub.add_argument(
        "--list", action="store_true", help="list all passes with their options and stop"
    )
    sub.add_argument("-o", "--output", help="file to write (default: print)")
    _target(sub)
    return parser


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an ONNX file")


def _target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("--target",),
        default="llvm",
        help="llvm (this machine), cuda, opencl, metal, rocm, webgpu, or a TVM tag",
    )
    parser.add_argument("--arch", help="GPU architecture: sm_90 of cuda, gfx90a of rocm")
    parser.add_argument("--mcpu", help="processor to compile for, in LLVM's naming")
    parser.add_argument(
        *("--triple",),
        help="platform of the processor that runs the model or drives the GPU, such as "
        "aarch64-linux-gnu (default: this machine's)",
    )
    parser.add_argument("--threads", type=int, help="threads (default: all available cores)")


def _compile_options(parser: argparse.ArgumentParser) -> None:
    _target(parser)
    parser.add_argument("--without", default="", help="passes to switch off, separated by commas")
    parser.add_argument(
        "--pass-options",
        default="",
        metavar="PASS{OPTION=VALUE},...",
        help="options of passes, such as fuse_operators{max_blocks=24}; `relaxc opt --list` "
        "shows them all",
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=DIM,DIM",
        help="shape of an input; a number fixes a dimension, a name makes it symbolic (name<=32: "
        "at most 32, memory is planned for that), 16/64/256 compiles a version for each of these "
        "sizes, nothing keeps it; may be repeated",
    )
    parser.add_argument(
        "--precision",
        default="float32",
        help="float32 may group operations otherwise, strict keeps every bit of the model's own, "
        "tf32 lets CUDA's products round their operands to 11 bits",
    )
    parser.add_argument(
        "--tune",
        choices=("quick",),
        help="quick: measure a few schedules of each hot kernel on this machine, half a minute in "
        "all; what was measured is kept in RELAXC_TUNING_CACHE (default ~/.cache/relaxc/tuning)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _dims(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a symbolic dimension for random inputs; may be repeated",
    )
