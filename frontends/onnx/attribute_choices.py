"""Check attributes that name one of a few choices: a word that is none of them is a fault.

ONNX's schemas list these words in prose only, so onnx's checker takes any. A converter that asks
for one of two words would take every other word for the second.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from frontends.errors import InvalidModel

_PADDING = "NOTSET SAME_UPPER SAME_LOWER VALID"
_DIRECTION = "forward reverse bidirectional"
_LOSS = "none sum mean"
_SCATTER = "none add mul min max"
_ROUNDING = "up down nearest"
_ORDER = "DCR CRD"
_SCORES = "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT"
_KERNEL = "LINEAR POLY RBF SIGMOID"
# Where exporters write an empty string for the default.
_MAYBE_EMPTY = ("auto_pad", "post_transform")

# Operator -> attribute -> words, those of all opsets together.
CHOICES: Mapping[str, Mapping[str, str]] = {
    **{
        operator: {"auto_pad": _PADDING}
        for operator in (
            "AveragePool Conv ConvInteger ConvTranspose FusedConv LpPool MaxPool NhwcFusedConv "
            "NhwcMaxPool QLinearAveragePool QLinearConv QLinearConvTranspose"
        ).split()
    },
    "BitShift": {"direction": "LEFT RIGHT"},
    "CDist": {"metric": "euclidean sqeuclidean"},
    "Cast": {"round_mode": _ROUNDING},
    "CastLike": {"round_mode": _ROUNDING},
    "CausalConvWithState": {"activation": "silu swish none"},
    "CropAndResize": {"mode": "bilinear nearest"},
    "DepthToSpace": {"mode": _ORDER},
    "DynamicQuantizeLSTM": {"direction": _DIRECTION},
    "GRU": {"direction": _DIRECTION},
    "Gelu": {"approximate": "none tanh"},
    "GridSample": {
        "mode": "linear nearest cubic bilinear bicubic",
        "padding_mode": "zeros border reflection",
    },
    "LSTM": {"direction": _DIRECTION},
    "LinearAttention": {"update_rule": "linear gated delta gated_delta"},
    "LinearClassifier": {"post_transform": _SCORES},
    "LinearRegressor": {"post_transform": _SCORES},
    "Momentum": {"mode": "nesterov standard"},
    "NegativeLogLikelihoodLoss": {"reduction": _LOSS},
    "Normalizer": {"norm": "MAX L1 L2"},
    "Pad": {"mode": "constant reflect edge wrap"},
    "RNN": {"direction": _DIRECTION},
    "Resize": {
        "coordinate_transformation_mode": "half_pixel half_pixel_symmetric pytorch_half_pixel "
        "align_corners asymmetric tf_half_pixel_for_nn tf_crop_and_resize",
        "keep_aspect_ratio_policy": "stretch not_larger not_smaller",
        "mode": "nearest linear cubic",
        "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    },
    "RoiAlign": {
        "coordinate_transformation_mode": "half_pixel output_half_pixel",
        "mode": "avg max AVG MAX",
    },
    "SVMClassifier": {"kernel_type": _KERNEL, "post_transform": _SCORES},
    "SVMRegressor": {"kernel_type": _KERNEL, "post_transform": _SCORES},
    "ScatterElements": {"reduction": _SCATTER},
    "ScatterND": {"reduction": _SCATTER},
    "SoftmaxCrossEntropyLoss": {"reduction": _LOSS},
    "SpaceToDepth": {"mode": _ORDER},
    "TensorScatter": {"mode": "linear circular"},
    "TfIdfVectorizer": {"mode": "TF IDF TFIDF"},
    "TreeEnsembleClassifier": {"post_transform": _SCORES},
    "TreeEnsembleRegressor": {"aggregate_function": "AVERAGE SUM MIN MAX",
                              "post_transform": _SCORES},
    "Upsample": {"mode": "nearest linear bilinear trilinear"},
}  # fmt: skip


def check_choices(node: onnx.NodeProto) -> None:
    """Refuse a node of a standard operator whose attribute is none of the words it may be.

    Raises:
        InvalidModel: names the attribute, what it is and what it may be.
    """
    choices = CHOICES.get(node.op_type)
    if choices is None:
        return
    for attribute in node.attribute:
        words = choices.get(attribute.name)
        if words is None or attribute.type != onnx.AttributeProto.STRING:
            continue
        given = attribute.s.decode(errors="replace")
        if not given and attribute.name in _MAYBE_EMPTY:
            continue
        if given not in words.split():
            raise InvalidModel(
                f"attribute {attribute.name} is {given!r}, not one of {', '.join(words.split())}"
            )
