hf-credit[hub,spaces,statistics,viz]
