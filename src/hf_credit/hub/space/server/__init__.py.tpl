"""The server of the environment $name."""
