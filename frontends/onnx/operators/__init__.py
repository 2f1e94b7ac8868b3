"""Converters by operator family; importing a module registers its converters."""
