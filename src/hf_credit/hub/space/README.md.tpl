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

An environment of hf-credit $version. Its states are values: an episode can be stopped, stored and continued from any
state, so that methods can replay decisions and credit each of them.

## What an agent sees

```text
$instructions
```

The first observation of task 0:

```text
$opening
```

## Play it

With any OpenEnv client, which needs only `openenv`:

```python
from openenv.core import GenericEnvClient

action = "$action"
with GenericEnvClient(base_url="$url").sync() as session:
    result = session.reset(seed=0)  # or reset(split="held_out", index=3)
    print(result.observation["text"])
    result = session.step({"action": action})
    print(result.observation["text"], result.reward, result.done)
```

With hf-credit the environment runs in your own process, from the declaration in `openenv.yaml`, without code of this Space:

```python
from hf_credit.hub.environments import load_environment

interaction = load_environment("$repo")
```

## Contract

| | |
| --- | --- |
| action | `action`: a plain action, or a reply that contains one |
| observation | `text`; after a reset also the rules, in `metadata["instructions"]` |
| reward | in [$low, $high] |
| episode | at most $turns actions |
| seeds | the same `seed` and actions give the same episode |
| tasks | `train` and `held_out`, $tasks each, by `split` and `index`, with disjoint seeds |
| `state()` | the complete state, including what is hidden from the agent, for training |
| `reset(injected_state=...)` | continues from an earlier `state()` |
| sessions | one per WebSocket, up to 256 |
| options | $shown_options |

`validation/oracle.json` holds a state and actions that earn the highest reward from it; `validation/runtime.json` holds
the episode that `openenv validate` plays.
