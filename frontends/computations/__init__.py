"""Computations that Relax lacks, shared by the frontends: TE and TIR, no source-format types."""
