"""Algebraic rewriting: rules as data, one file a family, and the engine that applies them.

`rule.py` says what a rule is, `pattern.py` reads and matches its text, `match.py` is what a match
offers to a rewrite, `operator_cost.py` decides whether it pays, `rewriter.py` applies the table.
"""
