"""The server of the environment preference_estimation."""
