"""The server of the environment movie_recommendation."""
