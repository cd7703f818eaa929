"""Policies: loading, sampling, scripted play, and small ones built from scratch."""
