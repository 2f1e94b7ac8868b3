"""Lowerings: one file per family of operators, each giving `lowerings(ctx) -> {operator: rule}`."""
