"""Benchmarks of the bars P1 … P6, each able to run vLLM and SGLang beside it: ``python -m benchmarks.run``."""
