"""Settings of all tests: the same examples every time."""

from __future__ import annotations

from hypothesis import settings

# `--hypothesis-profile=thorough` searches further, and elsewhere every time.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("ci")
