"""Architectures of Hugging Face transformers, small and with seeded weights, by both paths."""
