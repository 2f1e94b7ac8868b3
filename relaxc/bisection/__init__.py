"""Find the pass that changes a model's numbers.

steps.py          the pipeline as a list of steps that can be off, and the stages they form
reference.py      who is right: ONNX Runtime, onnx.reference, PyTorch
search.py         stage by stage, then by halves to one step
intermediates.py  the first tensor that the step made differ
"""

from relaxc.bisection.search import Bisection, bisect

__all__ = ["Bisection", "bisect"]
