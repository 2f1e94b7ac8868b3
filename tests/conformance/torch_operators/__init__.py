"""torch's own samples (OpInfo) for the core ATen operators, through `relaxc.compile`."""
