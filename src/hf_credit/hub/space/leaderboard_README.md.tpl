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
description: Methods of credit assignment, compared on tasks that nobody has seen.
---

# hf-credit leaderboard

Which decision deserves the credit? Entries are methods, each with a checkpoint for every training seed. A verifier says
every submitted reply again, plays the checkpoints on secret tasks and signs what it found; ranks are ranges from paired
tests.

Set the Space's variable `HF_CREDIT_BENCHMARK` to the dataset of a season, as `owner/name`. Visitors who sign in send
entries in their own name. With the secret `HF_CREDIT_BOT_TOKEN`, a token that may open pull requests and no more, the
form of the page sends those of the others too, six an hour at most, marked as of nobody who proved who they are.
