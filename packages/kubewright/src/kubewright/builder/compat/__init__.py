"""Compares CRDs with those of an earlier commit."""
