"""The commands `hf-credit submit` and `hf-credit leaderboard`, which hf-credit finds by entry points."""
