"""The server of the environment tic_tac_toe."""
