"""Convolutional networks that transformers lacks, by the tables of the papers they come from.

SqueezeNet 1.1 (Iandola et al. 2016), DenseNet-121 (Huang et al. 2017), and Inception: the modules
of Inception-v3 (Szegedy et al. 2016) with half its number of modules. Each takes images of shape
(N, 3, H, W) and returns logits of shape (N, 1000).
"""

from __future__ import annotations

import torch
from torch import nn

CLASSES = 1000


class SqueezeNet(nn.Module):
    """Fire modules: a 1x1 convolution squeezes, a 1x1 and a 3x3 beside each other expand."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), _pool())
        fires: list[nn.Module] = []
        channels = 64
        for squeeze, expand, last in (
            (16, 64, False),
            (16, 64, True),
            (32, 128, False),
            (32, 128, True),
            (48, 192, False),
            (48, 192, False),
            (64, 256, False),
            (64, 256, False),
        ):
            fires.append(_Fire(channels, squeeze, expand))
            channels = 2 * expand
            if last:
                fires.append(_pool())
        self.fires = nn.Sequential(*fires)
        self.head = nn.Sequential(nn.Conv2d(channels, CLASSES, 1), nn.ReLU())

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of images."""
        return self.head(self.fires(self.stem(image))).mean((2, 3))


class _Fire(nn.Module):
    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.expand_1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand_3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand_1x1(x)), torch.relu(self.expand_3x3(x))], 1)


class DenseNet(nn.Module):
    """Dense blocks: each layer reads the concatenation of all before it and adds 32 channels."""

    def __init__(self, layers: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        for stage, count in enumerate(layers):
            if stage > 0:
                blocks += [_norm_conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
            for _ in range(count):
                blocks.append(_DenseLayer(channels, growth))
                channels += growth
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of images."""
        features = torch.relu(self.norm(self.blocks(self.stem(image))))
        return self.classifier(features.mean((2, 3)))


class _DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bottleneck = _norm_conv(channels, 4 * growth, 1)
        self.grow = _norm_conv(4 * growth, growth, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.grow(self.bottleneck(x))], 1)


class Inception(nn.Module):
    """Modules of parallel branches: 1x1, 3x3 pairs, 1x7 after 7x1, and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv_norm(3, 32, 3, stride=2),
            _conv_norm(32, 32, 3),
            _conv_norm(32, 64, 3, padding=1),
            _pool(),
            _conv_norm(64, 80, 1),
            _conv_norm(80, 192, 3),
            _pool(),
        )
        self.modules_35 = nn.Sequential(_inception_35(192, 32), _inception_35(256, 64))
        self.reduce_35 = _Branches(
            _conv_norm(288, 384, 3, stride=2),
            nn.Sequential(
                _conv_norm(288, 64, 1),
                _conv_norm(64, 96, 3, padding=1),
                _conv_norm(96, 96, 3, stride=2),
            ),
            _pool(),
        )
        self.modules_17 = nn.Sequential(_inception_17(128), _inception_17(192))
        self.reduce_17 = _Branches(
            nn.Sequential(_conv_norm(768, 192, 1), _conv_norm(192, 320, 3, stride=2)),
            nn.Sequential(
                _conv_norm(768, 192, 1),
                *_cross(192, 192, 192, 1),
                _conv_norm(192, 192, 3, stride=2),
            ),
            _pool(),
        )
        self.module_8 = _Branches(
            _conv_norm(1280, 320, 1),
            nn.Sequential(_conv_norm(1280, 384, 1), _wings(384)),
            nn.Sequential(
                _conv_norm(1280, 448, 1), _conv_norm(448, 384, 3, padding=1), _wings(384)
            ),
            _pooled(1280, 192),
        )
        self.classifier = nn.Linear(2048, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of images."""
        x = self.modules_35(self.stem(image))
        x = self.modules_17(self.reduce_35(x))
        return self.classifier(self.module_8(self.reduce_17(x)).mean((2, 3)))


class _Branches(nn.Module):
    """Run branches on one input and join their channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _inception_35(channels: int, pooled: int) -> nn.Module:
    return _Branches(
        _conv_norm(channels, 64, 1),
        nn.Sequential(_conv_norm(channels, 48, 1), _conv_norm(48, 64, 5, padding=2)),
        nn.Sequential(
            _conv_norm(channels, 64, 1),
            _conv_norm(64, 96, 3, padding=1),
            _conv_norm(96, 96, 3, padding=1),
        ),
        _pooled(channels, pooled),
    )


def _inception_17(width: int) -> nn.Module:
    return _Branches(
        _conv_norm(768, 192, 1),
        nn.Sequential(_conv_norm(768, width, 1), *_cross(width, width, 192, 1)),
        nn.Sequential(_conv_norm(768, width, 1), *_cross(width, width, 192, 2)),
        _pooled(768, 192),
    )


def _cross(channels: int, between: int, out: int, pairs: int) -> list[nn.Module]:
    """Return `pairs` of a 1x7 and a 7x1 convolution."""
    layers: list[nn.Module] = []
    for pair in range(pairs):
        layers.append(_conv_norm(channels, between, (1, 7), padding=(0, 3)))
        channels = out if pair == pairs - 1 else between
        layers.append(_conv_norm(between, channels, (7, 1), padding=(3, 0)))
    return layers


def _wings(channels: int) -> nn.Module:
    return _Branches(
        _conv_norm(channels, channels, (1, 3), padding=(0, 1)),
        _conv_norm(channels, channels, (3, 1), padding=(1, 0)),
    )


def _pooled(channels: int, out: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), _conv_norm(channels, out, 1))


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2)


def _conv_norm(
    channels: int,
    out: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Module:
    conv = nn.Conv2d(channels, out, kernel, stride, padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU())


def _norm_conv(channels: int, out: int, kernel: int) -> nn.Module:
    conv = nn.Conv2d(channels, out, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), conv)
