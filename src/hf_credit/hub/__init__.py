"""Publish, load, the leaderboard and the embedded Hub."""
