"""The server of the environment circuit_decoding."""
