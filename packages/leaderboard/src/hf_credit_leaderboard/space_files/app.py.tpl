"""The page of a leaderboard as a Space; its code is in `hf_credit_leaderboard.page`."""

from hf_credit_leaderboard.page import LAUNCH_OPTIONS, from_environment

if __name__ == "__main__":
    from_environment().launch(**LAUNCH_OPTIONS)
