"""Exact evaluation: certify, generate, judge, and where chains break."""
