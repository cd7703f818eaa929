---
title: hf-credit leaderboard
emoji: 🧭
colorFrom: blue
colorTo: green
sdk: gradio
app_file: app.py
hf_oauth: true
hf_oauth_scopes:
- write-discussions
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

Set the Space's variable `HF_CREDIT_BENCHMARK` to the dataset of a season, as `owner/name`. Visitors who sign in submit
entries in their own name. With the secret `HF_CREDIT_BOT_TOKEN`, a token that can only open pull requests, the form of
the page also submits entries of other visitors, at most six per hour, marked as of unproved identity.
