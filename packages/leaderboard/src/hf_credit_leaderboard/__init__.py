"""A leaderboard one can trust: seasons, entries with every reply, replay, verification, rank ranges and their page."""
