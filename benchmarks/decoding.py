"""Prefill and one-token steps of decoders with a cache: relaxc, ONNX Runtime, torch.

`python -m benchmarks.decoding [--threads 2] [--rounds 20] [--results FILE]` runs GPT-2 and a small
Llama of the zoo with a cache for 512 tokens. relaxc holds it as states, ONNX Runtime is given one
buffer as past and present, torch a `StaticCache`; with `--inductor` its step is compiled. All
engines decode the same tokens, and the logits of each step are compared. Times are medians over
rounds in turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

import relaxc
from benchmarks import zoo
from benchmarks.decoders import CAPACITY, DECODERS, decoder, state_names
from benchmarks.markdown_table import table_lines
from benchmarks.turns import take_turns

PROMPT, STEPS = 64, 6
_TOLERANCE = 1e-4
_HEADER = ("model", "tokens", "relaxc ms", "ORT ms", "ratio", "torch ms", "ratio", "cache written",
           "error")  # fmt: skip
Step = Callable[[np.ndarray, int], np.ndarray]


class _Ours:
    """relaxc: a prefill and a step, each with the cache as its states."""

    def __init__(self, models: dict[int, onnx.ModelProto], threads: int) -> None:
        self.models = {
            tokens: relaxc.compile(model, states=state_names(model), threads=threads)
            for tokens, model in models.items()
        }

    def run(self, ids: np.ndarray, start: int) -> np.ndarray:
        return self.models[ids.shape[1]](**_feeds(ids, start))[0, -1]

    def hand_over(self, source: int, target: int) -> None:
        """Give the cache of one model to the other, copied once a prompt."""
        states = {spec.name: self.models[source].read_state(spec.name)
                  for spec in self.models[source].states}  # fmt: skip
        self.models[target].write_states(**states)

    def bytes_written(self, tokens: int) -> int:
        """Return the bytes of the cache that a run writes: all of it where it is no state."""
        model = self.models[tokens]
        in_place = sum(int(text.split()[0]) for name, text in model.report.fired
                       if name == "update_states")  # fmt: skip
        sizes = [4 * int(np.prod(spec.shape)) for spec in model.states]
        return sum(size * tokens // CAPACITY for size in sizes[:in_place]) + sum(sizes[in_place:])


class _OnnxRuntime:
    """ONNX Runtime with past and present bound to one buffer."""

    def __init__(self, models: dict[int, onnx.ModelProto], threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.bindings: dict[int, Any] = {}
        caches: dict[str, Any] = {}
        for tokens, model in models.items():
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            binding = session.io_binding()
            for value in model.graph.input:
                if value.name.startswith("past"):
                    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
                    cache = caches.setdefault(
                        value.name,
                        onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, "float32")),
                    )
                    binding.bind_ortvalue_input(value.name, cache)
                    binding.bind_ortvalue_output(value.name.replace("past", "present"), cache)
            binding.bind_output("logits")
            self.bindings[tokens] = (session, binding)

    def run(self, ids: np.ndarray, start: int) -> np.ndarray:
        session, binding = self.bindings[ids.shape[1]]
        for name, array in _feeds(ids, start).items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()[0, -1]


class _Torch:
    """Hugging Face's module with a static cache."""

    def __init__(self, name: str, inductor: bool) -> None:
        from transformers import StaticCache

        self.module = zoo.torch_model(name)[0].model
        self.cache = StaticCache(config=self.module.config, max_cache_len=CAPACITY)
        self.call = (
            torch.compile(self.module, options={"freezing": True}) if inductor else self.module
        )

    def run(self, ids: np.ndarray, start: int) -> np.ndarray:
        place = torch.arange(start, start + ids.shape[1])
        if start == 0:
            self.cache.reset()
        with torch.no_grad():
            out = self.call(
                torch.from_numpy(ids), past_key_values=self.cache, use_cache=True,
                cache_position=place, position_ids=place[None], logits_to_keep=1,
            )  # fmt: skip
        return out.logits[0, -1].numpy()


def _feeds(ids: np.ndarray, start: int) -> dict[str, np.ndarray]:
    places = np.arange(start, start + ids.shape[1])[None]
    return {
        "input_ids": ids,
        "position_ids": places,
        "valid": np.array([start + ids.shape[1] - 1], "int32"),
    }


def measure(name: str, threads: int, rounds: int, inductor: bool) -> list[list[str]]:
    """Return the rows of one decoder: its prefill and its step.

    Raises:
        AssertionError: If logits differ from torch's by more than 1e-4 of the greatest.
    """
    models = {tokens: decoder(name, tokens) for tokens in (PROMPT, 1)}
    ours, ort = _Ours(models, threads), _OnnxRuntime(models, threads)
    theirs = _Torch(name, inductor)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, theirs.module.config.vocab_size, (1, PROMPT + STEPS))
    errors = []
    for begin, end in [(0, PROMPT), *((PROMPT + at, PROMPT + at + 1) for at in range(STEPS))]:
        if begin == PROMPT:
            ours.hand_over(PROMPT, 1)
        want = theirs.run(ids[:, begin:end], begin)
        for engine in (ours, ort):
            got = engine.run(ids[:, begin:end], begin)
            errors.append(float(np.abs(got - want).max() / np.abs(want).max()))
        if not errors[-2] <= _TOLERANCE:  # also catches NaN
            raise AssertionError(f"{name}, tokens {begin} to {end}: error {errors[-2]:.1e}")
    rows = []
    for tokens, start in ((PROMPT, 0), (1, PROMPT + STEPS)):
        part = ids[:, :tokens]
        calls = [partial(engine.run, part, start) for engine in (ours, ort, theirs)]
        mine, second, third = (statistics.median(seconds) for seconds in take_turns(calls, rounds))
        rows.append([
            name, str(tokens), f"{mine * 1e3:.2f}", f"{second * 1e3:.2f}", f"{mine / second:.2f}",
            f"{third * 1e3:.2f}", f"{mine / third:.2f}", f"{ours.bytes_written(tokens)} B",
            f"{max(errors[::2]):.0e}",
        ])  # fmt: skip
        print(" ".join(rows[-1]), flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=DECODERS, default=list(DECODERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--inductor", action="store_true", help="compile torch's module")
    parser.add_argument("--results", type=Path, help="a Markdown file to write the table to")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows = [
        row
        for name in options.models
        for row in measure(name, options.threads, options.rounds, options.inductor)
    ]
    table = "\n".join(table_lines(_HEADER, rows))
    text = (
        f"Cache for {CAPACITY} tokens, prompt of {PROMPT}, float32, {options.threads} threads; "
        f"ONNX Runtime {onnxruntime.__version__}, torch {torch.__version__.split('+')[0]}"
        f"{', TorchInductor' if options.inductor else ''}. A ratio below 1: relaxc is faster.\n\n"
        f"{table}\n"
    )
    print(text)
    if options.results:
        options.results.write_text(f"# Decoding\n\n{text}")


if __name__ == "__main__":
    main()
