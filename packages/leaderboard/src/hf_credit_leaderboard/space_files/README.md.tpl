---
title: hf-credit leaderboard
emoji: 🧭
colorFrom: blue
colorTo: green
sdk: gradio
app_file: app.py
pinned: false
license: apache-2.0
tags:
- leaderboard
- credit-assignment
description: Methods of credit assignment, compared on secret tasks.
---

# hf-credit leaderboard

Which decision deserves the credit? Entries are methods, each with one checkpoint per training seed. A verifier replays
every submitted reply, plays the checkpoints on secret tasks and signs the results; ranks are ranges from paired tests.

Set the Space's variable `HF_CREDIT_BENCHMARK` to the dataset of a season, as `owner/name`. Entries come as pull
requests of `hf-credit submit`.
