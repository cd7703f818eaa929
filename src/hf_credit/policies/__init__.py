"""Policies that need no download, and sampling from any."""
