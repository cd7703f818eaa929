gradio[oauth]
hf-credit[spaces,statistics,viz]
hf-credit-leaderboard
