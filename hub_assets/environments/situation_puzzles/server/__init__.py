"""The server of the environment situation_puzzles."""
