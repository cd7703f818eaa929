"""The server of the environment sudoku."""
