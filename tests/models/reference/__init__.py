"""Slow forms that can be believed on sight, for the tests to hold the fast ones against.

`attention` has the functions that the literature defines. For every mixer in `models/NAME.py`,
`NAME` here has `mix(mixer, x)`: what the whole mixer makes of x (B, T, D) by its parameters, a
token at a time, in whatever type these have (the tests use float64), without dropout.
"""
