"""Who judges a final answer: mathematics, and code in a sandbox."""
