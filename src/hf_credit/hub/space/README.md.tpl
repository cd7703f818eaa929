---
title: $title
emoji: 🎯
colorFrom: blue
colorTo: indigo
sdk: docker
pinned: false
license: apache-2.0
app_port: 8000
base_path: /web
tags:
  - openenv
  - hf-credit
  - reinforcement-learning
---

# $title

$summary

An environment of hf-credit $version, whose states are values: an episode can be
stopped, stored and gone on from anywhere, so that methods which replay decisions can credit each of them.

## What an agent is told

```text
$instructions
```

And at the start of task 0:

```text
$opening
```

## Play it

With any OpenEnv client, nothing installed but `openenv`:

```python
from openenv.core import GenericEnvClient

action = "$action"
with GenericEnvClient(base_url="$url").sync() as session:
    result = session.reset(seed=0)  # or reset(split="held_out", index=3)
    print(result.observation["text"])
    result = session.step({"action": action})
    print(result.observation["text"], result.reward, result.done)
```

With hf-credit the same rules run in your own process, from what `openenv.yaml` says and no code of this Space:

```python
from hf_credit.hub.environments import load_environment

interaction = load_environment("$repo")
```

## Contract

| | |
| --- | --- |
| action | `action`: a plain action, or a reply that holds one |
| observation | `text`; at reset the rules are in `metadata["instructions"]` |
| reward | in [$low, $high] |
| episode | at most $turns actions |
| seeds | the same `seed` and actions give the same episode |
| tasks | `train` and `held_out`, $tasks each, by `split` and `index`; their seeds have no value in common |
| `state()` | all of the episode, what is hidden from the agent included: for whoever trains |
| `reset(injected_state=...)` | goes on from what `state()` was |
| sessions | one to every WebSocket, up to 256 |
| options | $shown_options |

`validation/oracle.json` holds a state from which its actions earn the highest reward, and `validation/runtime.json`
the episode that `openenv validate` plays.
