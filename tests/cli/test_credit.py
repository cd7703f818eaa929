"""`hf-credit credit` assigns credit to recorded traces, also to hostile ones, and shows and writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOSTILE = "<script>alert(1)</script>[red]\u202e\x1b[2J"


def test_traces_are_credited_shown_and_written(command: Callable[..., Any], tmp_path: Path) -> None:
    asked = {"role": "user", "content": "?"}
    traces = [
        {"id": HOSTILE, "messages": [asked, {"role": "assistant", "content": HOSTILE}], "reward": 1},
        {"messages": [asked, {"role": "assistant", "content": "b"}], "reward": 0},
        {"messages": [{"role": "user", "content": "other"}, {"role": "assistant", "content": "c"}], "reward": 0},
    ]
    file, out, page = (tmp_path / name for name in ("traces.jsonl", "credit.jsonl", "page.html"))
    file.write_text("".join(f"{json.dumps(one)}\n" for one in traces) + "broken\n")
    paths = ("--out", str(out), "--page", str(page))
    code, shown, err = command("credit", str(file), "--method", "rloo", "--line", "1", *paths)
    assert code == 0
    assert "3 traces of 2 tasks with 3 replies." in shown
    assert "Tasks with only one trace, which is compared with none: 1." in shown
    assert "[red]" in shown
    assert "reward" not in shown  # 0 at every reply, as the trace has one for all
    assert "\x1b[2J" not in shown
    assert "Skipped line 4: a text must be JSON" in err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["line"], row["turn"], row["credit"]) for row in rows[:3]] == [(1, 0, 1.0), (2, 0, -1.0), (3, 0, 0.0)]
    assert (rows[0]["trace"], rows[3]["trace"]) == (HOSTILE, None)
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;alert(1)" in page.read_text()
    assert command("credit", str(file), "--method", "rloo", "--line", "4")[0] == 1
    code, _, err = command("credit", str(file), "--method", "vineppo")
    assert (code, "needs continuations and replays; use one of alive_baseline" in err) == (1, True)
