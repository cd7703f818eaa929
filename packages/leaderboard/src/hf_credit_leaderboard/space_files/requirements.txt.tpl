gradio[oauth]
hf-credit[leaderboard,spaces,statistics] @ $wheel
