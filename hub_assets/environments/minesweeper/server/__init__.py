"""The server of the environment minesweeper."""
