"""The server of the environment sokoban."""
