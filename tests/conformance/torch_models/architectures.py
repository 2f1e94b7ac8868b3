"""Small configurations of 33 architectures: two layers, narrow, seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
_GPT = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
_T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 32,
}
_STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}


@dataclass(frozen=True)
class Architecture:
    """One model: its class, its configuration's class and arguments, and what it is called with.

    `calibrated` draws weights at 1 / sqrt(fan-in), and has batch norms take the statistics of the
    input: where there are many layers, what the class sets has activations vanish.
    """

    model: str
    config: str
    settings: dict[str, Any]
    inputs: str = "ids"
    part: str = ""
    calibrated: bool = False

    def build(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Return the module in eval mode, and inputs; both are the same in every process."""
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.settings)
        module = getattr(transformers, self.model)(config).eval()
        if self.part:
            module = getattr(module, self.part)
        whole, inputs = FirstOutput(module, self.inputs).eval(), _INPUTS[self.inputs]()
        if self.calibrated:
            _calibrate(whole, inputs)
        return whole, inputs


class FirstOutput(torch.nn.Module):
    """A model that takes positional tensors and returns its first output as a tensor."""

    def __init__(self, model: torch.nn.Module, inputs: str) -> None:
        super().__init__()
        self.model = model
        self.names = _NAMES[inputs]

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the model's first output."""
        given = dict(zip(self.names, tensors, strict=True))
        return self.model(**given, return_dict=False)[0]


@torch.no_grad()
def _calibrate(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Give weights and batch norms the scale that training would give them."""
    for weight in module.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
    norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        torch.nn.init.ones_(norm.weight)
        norm.momentum = 1.0
        norm.train()
    module(*inputs)
    module.eval()


def _ids() -> tuple[torch.Tensor, ...]:
    return (torch.randint(1, 64, (2, 12)),)


def _image() -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, 3, 32, 32),)


_NAMES = {
    "ids": ["input_ids"],
    "image": ["pixel_values"],
    "large image": ["pixel_values"],
    "sound": ["input_values"],
    "mel": ["input_features"],
}
_INPUTS: dict[str, Callable[[], tuple[torch.Tensor, ...]]] = {
    "ids": _ids,
    "image": _image,
    "large image": lambda: (torch.randn(1, 3, 64, 64),),
    "sound": lambda: (torch.randn(1, 1600),),
    "mel": lambda: (torch.randn(1, 16, 40),),
}

ARCHITECTURES: dict[str, Architecture] = {
    "albert": Architecture("AlbertModel", "AlbertConfig", {**_TEXT, "embedding_size": 16}),
    "bart-encoder": Architecture("BartModel", "BartConfig", _BART, part="encoder"),
    "beit": Architecture("BeitModel", "BeitConfig", _VISION, "image"),
    "bert": Architecture("BertModel", "BertConfig", _TEXT),
    "clip-text": Architecture("CLIPTextModel", "CLIPTextConfig", {**_TEXT, "eos_token_id": 1}),
    "clip-vision": Architecture("CLIPVisionModel", "CLIPVisionConfig", _VISION, "image"),
    "convnext": Architecture(
        "ConvNextModel", "ConvNextConfig", {**_STAGES, "num_stages": 2}, "image"
    ),
    "deberta-v2": Architecture(
        "DebertaV2Model", "DebertaV2Config",
        {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "deit": Architecture("DeiTModel", "DeiTConfig", _VISION, "image"),
    "detr": Architecture(
        "DetrModel", "DetrConfig",
        {**{k: v for k, v in _BART.items() if k not in ("vocab_size", "max_position_embeddings")},
         "num_queries": 6, "use_timm_backbone": False, "use_pretrained_backbone": False,
         "backbone_config": {"model_type": "resnet", **_STAGES, "embedding_size": 8,
                             "layer_type": "basic", "out_features": ["stage2"]}}, "large image",
    ),
    "distilbert": Architecture(
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
         "max_position_embeddings": 32},
    ),
    "efficientnet": Architecture(
        "EfficientNetModel", "EfficientNetConfig",
        {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320}, "large image",
        calibrated=True,
    ),
    "electra": Architecture("ElectraModel", "ElectraConfig", {**_TEXT, "embedding_size": 16}),
    "gemma": Architecture("GemmaModel", "GemmaConfig", {**_DECODER, "head_dim": 8}),
    "gpt-neox": Architecture("GPTNeoXModel", "GPTNeoXConfig", _TEXT),
    "gpt2": Architecture("GPT2Model", "GPT2Config", _GPT),
    "llama": Architecture("LlamaModel", "LlamaConfig", _DECODER),
    "mamba": Architecture(
        "MambaModel", "MambaConfig",
        {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4},
    ),
    "mistral": Architecture("MistralModel", "MistralConfig", {**_DECODER, "sliding_window": 8}),
    "mobilenet-v2": Architecture(
        "MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.25}, "large image"
    ),
    "mobilevit": Architecture(
        "MobileViTModel", "MobileViTConfig",
        {"hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 48],
         "num_attention_heads": 4, "image_size": 64}, "large image", calibrated=True,
    ),
    "opt": Architecture(
        "OPTModel", "OPTConfig",
        {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "ffn_dim": 48, "max_position_embeddings": 32, "word_embed_proj_dim": 32},
    ),
    "phi": Architecture("PhiModel", "PhiConfig", {**_TEXT, "pad_token_id": 0}),
    "qwen2": Architecture("Qwen2Model", "Qwen2Config", _DECODER),
    "regnet": Architecture(
        "RegNetModel", "RegNetConfig", {**_STAGES, "embedding_size": 8, "groups_width": 8}, "image"
    ),
    "resnet": Architecture(
        "ResNetModel", "ResNetConfig", {**_STAGES, "embedding_size": 8}, "image"
    ),
    "roberta": Architecture("RobertaModel", "RobertaConfig", _TEXT),
    "segformer": Architecture(
        "SegformerModel", "SegformerConfig",
        {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2], "hidden_sizes": [16, 32],
         "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2],
         "mlp_ratios": [2, 2]}, "image",
    ),
    "swin": Architecture(
        "SwinModel", "SwinConfig",
        {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 1],
         "num_heads": [2, 4], "window_size": 4}, "image",
    ),
    "t5-encoder": Architecture("T5EncoderModel", "T5Config", _T5),
    "vit": Architecture("ViTModel", "ViTConfig", _VISION, "image"),
    "wav2vec2": Architecture(
        "Wav2Vec2Model", "Wav2Vec2Config",
        {**_TEXT, "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2],
         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
         "num_conv_pos_embedding_groups": 2}, "sound",
    ),
    "whisper-encoder": Architecture(
        "WhisperModel", "WhisperConfig",
        {**_BART, "num_mel_bins": 16, "max_source_positions": 20, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}, "mel", part="encoder",
    ),
}  # fmt: skip
