"""What two processes do together, each writing what it saw to a file of its own; for torchrun.

Process 0 plays five short episodes and process 1 one of two turns and one of six; each may have two under way.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

from accelerate import Accelerator
from torch.distributed.distributed_c10d import _set_pg_timeout

from hf_credit import make
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import (
    Chat,
    Engine,
    EveryEpisodeFailedError,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    Row,
    refuse_total_failure,
)
from hf_credit.trainers.ranks import SynchronizedSampler, from_main


class Count(Interaction):
    """Goes on for as many turns as the task says."""

    def start(self, task, seed):
        return (task["turns"], 0)

    def pending(self, state):
        turns, made = state
        return () if made == turns else (Request(role="agent", messages=[{"role": "user", "content": f"{made}"}]),)

    def advance(self, state, replies):
        turns, made = state
        return (turns, made + 1)

    def outcome(self, state):
        return 0.0


def main(folder: Path) -> None:
    accelerator = Accelerator()
    rank = accelerator.process_index
    chat = Chat(build_tokenizer(make("sudoku", size=4, blanks=4), episodes=1))
    calls = []

    def generate(contexts):
        calls.append([list(context) for context in contexts])
        return [Generation(ids=[10 + rank, chat.tokenizer.eos_token_id]) for _ in contexts]

    ranks = SynchronizedSampler(generate, accelerator, together=True)
    engine = Engine(Count(), chat, ranks, max_concurrent=2)

    def play(*turns, together=True):
        """The turns of each episode, and the calls that were made meanwhile."""
        calls.clear()
        ranks.together = together
        episodes = engine.run([RolloutRequest(task={"turns": count}) for count in turns])
        ranks.finish()
        return {"turns": [len(episode.decisions) for episode in episodes], "calls": list(calls)}

    def fail(*names):
        """What is raised of episodes whose tasks lack a column, or nothing."""
        episodes = engine.run([RolloutRequest(task={name: 0}) for name in names])
        ranks.finish()
        try:
            refuse_total_failure(episodes, ranks.gather)
        except EveryEpisodeFailedError as error:
            return [str(error), repr(error.__cause__)]
        return None

    def row(tokens, prompt=(5,)):
        """A row of the present process; its first token says whose it is."""
        nothing = (0.0,) * tokens
        ids = (rank, *range(1, tokens))
        return Row(prompt_ids=prompt, completion_ids=ids, loss_mask=(1,) * tokens, advantages=nothing, logprobs=None)

    def shared_out(rows, together=1):
        """Whose rows of how many tokens this process has, once those of all are shared out."""
        return [[one.completion_ids[0], len(one.completion_ids)] for one in ranks.even_out(rows, together)]

    long = tuple(range(20))
    replies = [list(reply.ids) for reply in ranks([[5], [6], [7]] if rank else [[5]])]
    report = {
        "shared out": shared_out([row(tokens) for tokens in ((9, 7, 5, 4) if rank == 0 else (3, 2))]),
        "shared out as they are": shared_out([row(9 + rank), row(7)]),
        "shared out to who has none": shared_out([row(4)] * 3 if rank else []),
        "shared out by prompt": shared_out([row(2)] if rank else [row(4, long)] * 4, 2),
        "world size": accelerator.num_processes,
        "both play": play(2, 6) if rank else play(1, 1, 1, 1, 1),
        "one plays": play(3) if rank else play(),
        "nobody plays": play(),
        "each for itself": play(2, 6, together=False) if rank else play(1, 1, 1, 1, 1, together=False),
        "all fail": fail("trns") if rank else fail("trns", "tunrs"),
        "one has none and the other fails": fail("trns") if rank else fail(),
        "one fails": fail("turns") if rank else fail("trns"),
        "replies": replies,
        "most": ranks.all_max(3 - rank),
        "before": ranks.rank_offset(4 + rank),
        "gathered": ranks.gather([f"{rank}.{number}" for number in range(rank + 1)]),
        "none gathered": ranks.gather([]),
    }
    _set_pg_timeout(timedelta(seconds=1))
    report["slow"] = from_main(accelerator, lambda: time.sleep(3) or f"of {rank}")
    (folder / f"{rank}.json").write_text(json.dumps(report), encoding="utf-8")
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
