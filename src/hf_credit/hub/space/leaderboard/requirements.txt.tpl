gradio[oauth]
hf-credit[hub,spaces,statistics,viz]
