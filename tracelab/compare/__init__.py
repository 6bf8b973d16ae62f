"""Comparing traces: samples of both sides, pairs of kernels, noise floors, verdicts."""
