"""The server of the environment evidence."""
