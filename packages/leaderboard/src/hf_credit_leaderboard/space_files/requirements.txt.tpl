gradio[oauth]
hf-credit[leaderboard,spaces,statistics,viz] @ $wheel
