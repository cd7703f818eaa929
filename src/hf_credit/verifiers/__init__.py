"""Verifiers of final answers: mathematics, multiple choice, code in a sandbox, and judges of questions."""
