"""The server of the environment guess_numbers."""
