"""Runs untrusted Python and algebra confined. This module imports nothing: a bare interpreter loads it."""
