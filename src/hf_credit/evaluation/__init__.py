"""Evaluation of policies on held-out tasks, statistics, run reports, and the credit of recorded traces."""
