"""The models the benchmarks run: built from configurations with seeded weights, nothing downloaded.

`python -m benchmarks.zoo resnet50` exports one to ONNX (once; it is cached) and prints its path.
The weights are random but sane: He/LeCun scale, batch-norm statistics calibrated on the example
input, so that no activation is denormal, infinite or NaN. Denormals make every engine slow, and a
comparison on them would say nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SEED = 20260
Example = tuple["torch.Tensor", ...]
_SMALLEST_NORMAL = 2.0**-126  # float32


@dataclass(frozen=True)
class ZooModel:
    """How one model is built: `build()` returns the bare module, `inputs(batch)` what it takes."""

    build: Callable[[], Any]
    inputs: Callable[[int], Example]
    input_names: tuple[str, ...]
    output: str | None  # the attribute of the output that is the answer; None: it is a tensor


def _image(size: int, channels: int = 3) -> Callable[[int], Example]:
    import torch

    def make(batch: int) -> Example:
        return (torch.randn(batch, channels, size, size, generator=_generator()),)

    return make


def _tokens(
    length: int, vocabulary: int, *, with_mask: bool, samples: int = 1
) -> Callable[[int], Example]:
    import torch

    def make(batch: int) -> Example:
        ids = torch.randint(0, vocabulary, (batch * samples, length), generator=_generator())
        if not with_mask:
            return (ids,)
        return ids, torch.ones_like(ids), torch.zeros_like(ids)

    return make


def _generator() -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(SEED)


def _catalogue() -> dict[str, ZooModel]:
    """Return every built model by name; imports transformers, which takes seconds."""
    import torch
    import transformers as hf

    from benchmarks import convolutional_networks as networks

    image, pixels = ("pixel_values",), "logits"
    bert = hf.BertConfig()
    gpt2 = hf.GPT2Config(n_layer=6, use_cache=False)
    llama = hf.LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        use_cache=False,
    )
    whisper = hf.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_layers=1,
        decoder_attention_heads=6,
        decoder_ffn_dim=64,
    )

    def resnet(depths: list[int], kind: str, sizes: list[int]) -> Callable[[], Any]:
        config = hf.ResNetConfig(
            depths=depths, layer_type=kind, hidden_sizes=sizes, num_labels=1000
        )
        return lambda: hf.ResNetForImageClassification(config)

    def mel(batch: int) -> Example:
        return (torch.randn(batch, 80, 3000, generator=_generator()),)

    return {
        "resnet18": ZooModel(
            resnet([2, 2, 2, 2], "basic", [64, 128, 256, 512]), _image(224), image, pixels
        ),
        "resnet50": ZooModel(
            resnet([3, 4, 6, 3], "bottleneck", [256, 512, 1024, 2048]), _image(224), image, pixels
        ),
        "mobilenet_v2": ZooModel(
            lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=1000)),
            _image(224),
            image,
            pixels,
        ),
        "efficientnet_b0": ZooModel(
            lambda: hf.EfficientNetForImageClassification(
                hf.EfficientNetConfig(
                    width_coefficient=1.0,
                    depth_coefficient=1.0,
                    hidden_dim=1280,
                    image_size=224,
                    num_labels=1000,
                )
            ),
            _image(224),
            image,
            pixels,
        ),
        "convnext_tiny": ZooModel(
            lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=1000)),
            _image(224),
            image,
            pixels,
        ),
        "regnet_y": ZooModel(  # RegNetY-400MF: grouped convolutions, squeeze-and-excitation
            lambda: hf.RegNetForImageClassification(
                hf.RegNetConfig(
                    hidden_sizes=[48, 104, 208, 440],
                    depths=[1, 3, 6, 6],
                    groups_width=8,
                    num_labels=1000,
                )
            ),
            _image(224),
            image,
            pixels,
        ),
        "squeezenet": ZooModel(networks.SqueezeNet, _image(224), image, None),
        "densenet121": ZooModel(networks.DenseNet, _image(224), image, None),
        "inception": ZooModel(networks.Inception, _image(299), image, None),
        "vit_b16": ZooModel(
            lambda: hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000)),
            _image(224),
            image,
            pixels,
        ),
        "swin_tiny": ZooModel(
            lambda: hf.SwinForImageClassification(hf.SwinConfig(num_labels=1000)),
            _image(224),
            image,
            pixels,
        ),
        "bert_base": ZooModel(
            lambda: hf.BertModel(bert, add_pooling_layer=False),
            _tokens(128, bert.vocab_size, with_mask=True),
            ("input_ids", "attention_mask", "token_type_ids"),
            "last_hidden_state",
        ),
        **{
            f"bert_base_{label}": ZooModel(
                lambda: hf.BertModel(bert, add_pooling_layer=False),
                tokens,
                ("input_ids", "attention_mask", "token_type_ids"),
                "last_hidden_state",
            )
            for label, tokens in {
                "16": _tokens(16, bert.vocab_size, with_mask=True),
                "384": _tokens(384, bert.vocab_size, with_mask=True),
                "batch8": _tokens(128, bert.vocab_size, with_mask=True, samples=8),
            }.items()
        },
        "gpt2": ZooModel(
            lambda: hf.GPT2LMHeadModel(gpt2),
            _tokens(64, gpt2.vocab_size, with_mask=False),
            ("input_ids",),
            "logits",
        ),
        "llama_small": ZooModel(
            lambda: hf.LlamaForCausalLM(llama),
            _tokens(64, llama.vocab_size, with_mask=False),
            ("input_ids",),
            "logits",
        ),
        "whisper_tiny_encoder": ZooModel(
            lambda: hf.WhisperModel(whisper).encoder,
            mel,
            ("input_features",),
            "last_hidden_state",
        ),
        "segformer_b0": ZooModel(
            lambda: hf.SegformerForSemanticSegmentation(hf.SegformerConfig(num_labels=150)),
            _image(512),
            image,
            pixels,
        ),
    }


BUILT = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "efficientnet_b0",
    "convnext_tiny",
    "regnet_y",
    "squeezenet",
    "densenet121",
    "inception",
    "vit_b16",
    "swin_tiny",
    "bert_base",
    "bert_base_16",
    "bert_base_384",
    "bert_base_batch8",
    "gpt2",
    "llama_small",
    "whisper_tiny_encoder",
    "segformer_b0",
)

# What `--models transformers` stands for.
GROUPS = {"transformers": BUILT[BUILT.index("vit_b16") :]}

# Trained files that ship inside PyPI packages: (package, path within it).
TRAINED = {
    "ppocr_det": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"),
    "ppocr_rec": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    "ppocr_cls": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "magika": ("magika", "models/standard_v3_3/model.onnx"),
}


def names() -> tuple[str, ...]:
    """Return the names of all models, built ones first."""
    return (*BUILT, *TRAINED)


def input_names(name: str) -> tuple[str, ...]:
    """Return the names of a built model's inputs.

    Raises:
        KeyError: If `name` is no built model.
    """
    return _catalogue()[name].input_names


def torch_model(name: str) -> tuple[torch.nn.Module, Example]:
    """Build model `name` in eval mode and its example inputs; the module returns one tensor.

    Raises:
        KeyError: If `name` is no built model (trained files have no module).
        ValueError: If an activation of the example run is denormal, infinite or NaN.
    """
    import torch

    entry = _catalogue()[name]
    torch.manual_seed(SEED)
    bare = entry.build().eval()
    _randomize(bare)
    example = entry.inputs(1)
    _calibrate_batch_norms(bare, entry.inputs(4))
    _check_activations(bare, example, name)
    return _plain(bare, entry.input_names, entry.output), example


def onnx_path(name: str) -> Path:
    """Return the path of `name` as an ONNX file, exporting it into the cache the first time.

    Raises:
        KeyError: If there is no model of that name.
        FileNotFoundError: If a trained file's package is not installed or lacks the file.
    """
    if name in TRAINED:
        return _trained_path(name)
    if name not in BUILT:
        raise KeyError(f"no model {name!r}; there are {', '.join(names())}")
    path = cache_dir() / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _export(name, path)
    return path


def cache_dir() -> Path:
    """Return the folder of exported files: RELAXC_ZOO_CACHE, or ~/.cache/relaxc/zoo."""
    return Path(os.environ.get("RELAXC_ZOO_CACHE", "~/.cache/relaxc/zoo")).expanduser()


def _trained_path(name: str) -> Path:
    from importlib.util import find_spec

    package, inner = TRAINED[name]
    # Found without an import: the package may lack what it needs to run, and only its file is read.
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{name} ships in {package}, which is not installed")
    path = Path(spec.origin).parent / inner
    if not path.exists():
        raise FileNotFoundError(f"{package} is installed but has no {inner}")
    return path


def _plain(bare: Any, input_names: tuple[str, ...], output: str | None) -> torch.nn.Module:
    """Wrap a Hugging Face module so that it takes tensors by position and returns one tensor."""
    import torch

    if output is None:
        return bare

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = bare

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            named = dict(zip(input_names, tensors, strict=True))
            return getattr(self.model(**named), output)

    return Plain().eval()


def _randomize(model: torch.nn.Module) -> None:
    """Fill every trainable parameter at a scale that keeps activations of order one."""
    import torch

    generator = _generator()

    def normal(tensor: torch.Tensor, std: float, mean: float = 0.0) -> None:
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * std + mean)

    with torch.no_grad():
        for module in model.modules():
            is_conv = isinstance(module, torch.nn.modules.conv._ConvNd)
            for name, parameter in module.named_parameters(recurse=False):
                if not parameter.requires_grad:
                    continue  # fixed tables, such as sinusoidal positions
                if name.endswith("bias") or parameter.ndim == 0:
                    normal(parameter, 0.05)
                elif "layer_scale" in name or "lambda" in name:
                    normal(parameter, 0.05, mean=0.3)
                elif parameter.ndim == 1:
                    normal(parameter, 0.1, mean=1.0)  # the scale of a normalization
                elif is_conv:
                    normal(parameter, math.sqrt(2.0 / parameter[0].numel()))
                elif isinstance(module, torch.nn.Embedding):
                    normal(parameter, 1.0 / math.sqrt(parameter.shape[1]))
                elif isinstance(module, torch.nn.Linear):
                    normal(parameter, math.sqrt(1.0 / parameter.shape[1]))
                elif type(module).__name__ == "Conv1D":  # GPT-2's transposed linear layer
                    normal(parameter, math.sqrt(1.0 / parameter.shape[0]))
                else:
                    normal(parameter, 0.1)  # class tokens, learned positions and bias tables


def _calibrate_batch_norms(model: torch.nn.Module, example: Example) -> None:
    """Set running statistics to those of the example batch, so that depth neither grows nor fades.

    The batch is larger than one: batch statistics need more than one value per channel.
    """
    import torch

    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        model(*example)
    for norm in norms:
        norm.eval()
        norm.momentum = 0.1


def _check_activations(model: torch.nn.Module, example: Example, name: str) -> None:
    import torch

    def check(path: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return
        if not torch.isfinite(value).all():
            raise ValueError(f"{name}: {path} gives infinities or NaNs")
        tiny = (value != 0) & (value.abs() < _SMALLEST_NORMAL)
        if tiny.any():
            raise ValueError(f"{name}: {path} gives {int(tiny.sum())} denormals")

    hooks = [
        module.register_forward_hook(lambda _m, _i, out, path=path: check(path or "output", out))
        for path, module in model.named_modules()
    ]
    with torch.no_grad():
        model(*example)
    for hook in hooks:
        hook.remove()


def _export(name: str, path: Path) -> None:
    """Export model `name` to `path`: written beside it and renamed, so it is whole or absent."""
    import torch

    module, example = torch_model(name)
    input_names = list(_catalogue()[name].input_names)
    output_names = [_catalogue()[name].output or "logits"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder) / path.name
        kwargs: dict[str, Any] = {"input_names": input_names, "output_names": output_names}
        try:
            torch.onnx.export(
                module, example, written, dynamo=True, external_data=False, verbose=False, **kwargs
            )
        except torch.onnx.errors.OnnxExporterError:
            # Models that torch.export cannot trace still go through the older exporter.
            torch.onnx.export(module, example, str(written), dynamo=False, **kwargs)
        written.replace(path)


def main() -> None:
    """Print the path of each named model, exporting where needed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=main.__doc__)
    parser.add_argument("names", nargs="+", choices=[*names(), "all"], metavar="name")
    chosen = parser.parse_args().names
    for name in names() if "all" in chosen else chosen:
        print(onnx_path(name), flush=True)


if __name__ == "__main__":
    main()
