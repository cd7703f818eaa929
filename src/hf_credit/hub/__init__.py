"""The Hub: what is published there, and loaded again."""
