"""Relax passes: graph in, graph out."""
