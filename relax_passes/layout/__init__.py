"""Layouts: what they cost, which each value gets, and the transforms between them."""
