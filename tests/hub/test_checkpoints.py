"""Checkpoints on the Hub: no pickles, loadable by stock clients, and a run goes on from one as if nothing happened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import CommitOperationAdd, HfApi
from safetensors.torch import save_file

from hf_credit.checkpoints import MANIFEST, flaw, refuse_another_run, write_manifest
from hf_credit.evaluation.results import EpisodeRecord, EvalResults
from hf_credit.hub.checkpoints import collect, fetch_resumable, load_checkpoint, publish_checkpoint
from hf_credit.tasks import TaskSpec
from local_hub.running import Served


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a model and a log, and a whole checkpoint made by hand."""
    folder = tmp_path / "run"
    checkpoint = folder / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    for place in (folder, checkpoint):
        save_file({"weight": torch.ones(2)}, place / "model.safetensors")
    torch.save({"state": {0: torch.ones(2)}}, checkpoint / "optimizer.pt")
    torch.save(None, checkpoint / "training_args.bin")
    (checkpoint / "trainer_state.json").write_text('{"global_step": 5}')
    spec = TaskSpec(task="sudoku", task_options={"size": 4}, history="current")
    spec.save(folder)
    spec.save(checkpoint)
    write_manifest(checkpoint, {"seed": 1})
    (folder / "metrics.jsonl").write_text(json.dumps(LOGGED) + "\n")
    facts = {"command": "hf-credit train x.yaml", "paper": {"citation": "@misc{x}"}, "versions": {"torch": "2"}}
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


LOGGED = {"step": 5, "reward": 0.25, "budget/scoring_events": 8, "budget/tokens": 90, "budget/completion_tokens": 30}


def collected(run: Path, tmp_path: Path, **options: Any) -> dict[str, Path | bytes]:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return collect(run, "me/run", "https://huggingface.co/me/run", work, **options)


def test_pickles_are_left_out_or_written_anew(run: Path, tmp_path: Path) -> None:
    files = collected(run, tmp_path)
    assert not [name for name in files if Path(name).suffix in (".pt", ".pth", ".bin")]
    assert {"model.safetensors", "trainer_state-0.safetensors", "trainer_state-0.json", MANIFEST} <= set(files)
    alone = collected(run, tmp_path, resumable=False)
    assert not [name for name in alone if name.startswith("trainer_state-")]
    manifest = json.loads(alone[MANIFEST])  # type: ignore[arg-type]
    assert manifest["resumable"] is False


def test_an_unfinished_or_damaged_checkpoint_is_refused(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoint-5"
    (checkpoint / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"must be whole to be published, got .*optimizer.pt"):
        collected(checkpoint, tmp_path)
    (checkpoint / MANIFEST).unlink()
    with pytest.raises(ValueError, match=rf"whole to be published, got .* without {MANIFEST}; train on"):
        collected(checkpoint, tmp_path)


def test_shards_are_refused_where_a_run_is_to_go_on(run: Path, tmp_path: Path) -> None:
    checkpoint = run / "checkpoint-5"
    (checkpoint / "optimizer_0").mkdir()
    (checkpoint / "optimizer_0" / "__0_0.distcp").write_bytes(b"x")
    (checkpoint / MANIFEST).unlink()
    write_manifest(checkpoint, {"seed": 1})
    with pytest.raises(ValueError, match=r"got shards such as 'optimizer_0/__0_0.distcp'; save whole tensors"):
        collected(checkpoint, tmp_path)
    assert "optimizer_0/__0_0.distcp" not in collected(checkpoint, tmp_path, resumable=False)


def test_a_model_in_pickles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    torch.save({}, tmp_path / "model" / "pytorch_model.pt")
    with pytest.raises(ValueError, match="must be saved as safetensors"):
        collected(tmp_path / "model", tmp_path)


def test_a_model_that_is_not_its_checkpoints_is_published_alone(run: Path, tmp_path: Path) -> None:
    file = run / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    files = collected(run, tmp_path)
    assert files["model.safetensors"] == file
    assert MANIFEST not in files


def test_weights_that_were_handed_to_a_server_are_not_published(run: Path, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, run / "model.safetensors")  # not its checkpoint's
    for folder in (".weights/weights-1", ".vllm_lora/policy-v1"):
        (run / folder).mkdir(parents=True)
        save_file({"weight": torch.zeros(2)}, run / folder / "model.safetensors")
    files = collected(run, tmp_path)
    assert [name for name in files if name.endswith("model.safetensors")] == ["model.safetensors"]


def test_the_card_says_what_was_measured_what_it_cost_and_where_it_is_from(run: Path, tmp_path: Path) -> None:
    records = tuple(
        EpisodeRecord(seed=seed, ending="finished", outcome=1.0, metrics={"success": float(seed < 3)}, turns=2)
        for seed in range(4)
    )
    results = EvalResults(records=records, about={"dataset": "them/benchmark", "split": "test"})
    (run / "evaluation.json").write_text(results.to_json())
    (run / "README.md").write_text("---\nlicense: mit\ntags: [trl]\nage: 1:30\n---\n# Model card\n\nTRL's words.\n")
    files = collected(run, tmp_path)
    _, front, body = files["README.md"].decode().split("---\n", 2)  # type: ignore[union-attr]
    about = yaml.safe_load(front)
    assert (about["license"], about["age"]) == ("mit", "1:30")
    assert about["tags"] == ["hf-credit", "reinforcement-learning", "trl"]
    (index,) = about["model-index"][0]["results"]
    assert {"type": "success", "name": "success rate", "value": 0.75} in index["metrics"]
    for said in ("TRL's words.", "| success rate | 0.750 [", "interval, n = 4)", '"scoring_events": 8', "@misc{x}"):
        assert said in body
    assert "hf-credit train x.yaml" in body
    assert "--resume_from_checkpoint hub:me/run" in body
    (entry,) = yaml.safe_load(files[".eval_results/them--benchmark.yaml"])  # type: ignore[arg-type]
    assert (entry["dataset"], entry["value"]) == ({"id": "them/benchmark", "task_id": "test"}, 0.75)
    assert "verifyToken" not in entry
    ledger = json.loads(files["ledger.json"])  # type: ignore[arg-type]
    assert (ledger["scoring_events"], ledger["completion_tokens"]) == (8, 30)


def test_a_card_that_is_written_again_says_it_once(run: Path, tmp_path: Path) -> None:
    first = collected(run, tmp_path)["README.md"]
    assert isinstance(first, bytes)
    (run / "README.md").write_bytes(first)
    assert collected(run, tmp_path)["README.md"] == first


def test_a_model_without_the_trainer_cannot_be_resumed(
    hub: Served, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    publish_checkpoint(run, "me/alone", resumable=False, token=hub.token())
    with pytest.raises(ValueError, match="must hold the state of a trainer to resume from, got only the model"):
        fetch_resumable("hub:me/alone", tmp_path / "out")
    publish_checkpoint(run, "me/whole", token=hub.token())
    folder = fetch_resumable("hub:me/whole", tmp_path / "out")
    assert (folder, flaw(folder)) == (tmp_path / "out" / "checkpoint-5", None)
    assert torch.equal(torch.load(folder / "optimizer.pt", weights_only=True)["state"][0], torch.ones(2))
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("resumed-")] == []


def test_a_folder_is_filled_again_and_what_others_put_there_is_never_deleted(
    hub: Served, run: Path, tmp_path: Path
) -> None:
    where = {"endpoint": hub.url, "token": hub.token()}
    publish_checkpoint(run, "me/filled", **where)
    out = tmp_path / "out"
    first = load_checkpoint("me/filled", folder=out, **where)
    assert (first.resumable, flaw(out)) == (True, None)
    publish_checkpoint(run, "me/filled", resumable=False, **where)
    assert load_checkpoint("me/filled", folder=out, **where).resumable is False
    assert not (out / "optimizer.pt").exists()
    (out / "mine.txt").write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"new, empty, or filled by load_checkpoint alone, got .* with 'mine.txt'"):
        load_checkpoint("me/filled", folder=out, **where)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    with pytest.raises(ValueError, match="filled by load_checkpoint alone"):
        load_checkpoint("me/filled", folder=out / "mine.txt", **where)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "a").symlink_to(out)
    with pytest.raises(ValueError, match="filled by load_checkpoint alone"):
        load_checkpoint("me/filled", folder=tmp_path / "linked", **where)


@pytest.fixture
def resumed(
    hub: Served, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., Path]:
    """Resumes from what a run published, once some of its files were replaced there."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    repo = f"me/resumed-{hashlib.sha1(request.node.name.encode()).hexdigest()}"
    publish_checkpoint(run, repo, token=hub.token())

    def resume(files: dict[str, bytes], check: Callable[[Path], None] | None = None) -> Path:
        changed = [CommitOperationAdd(name, content) for name, content in files.items()]
        if changed:
            HfApi(endpoint=hub.url, token=hub.token()).create_commit(repo, changed, commit_message="x")
        return fetch_resumable(f"hub:{repo}", tmp_path / "out", check=check)

    return resume


def own_checkpoint(folder: Path, weight: float, resumable: bool = True) -> Path:
    """A complete checkpoint of step 5 in the run's folder, with a file that no other has."""
    own = folder / "out" / "checkpoint-5"
    own.mkdir(parents=True)
    save_file({"weight": torch.full((2,), weight)}, own / "model.safetensors")
    (own / "own.txt").write_text("mine")
    write_manifest(own, {"seed": 1}, resumable=resumable)
    return own


@pytest.mark.parametrize(("weight", "resumable"), [(2.0, True), (1.0, False)])
def test_a_complete_checkpoint_is_never_replaced_by_another(
    resumed: Callable[..., Path], tmp_path: Path, weight: float, resumable: bool
) -> None:
    own = own_checkpoint(tmp_path, weight, resumable)
    with pytest.raises(ValueError, match=r"never replaced by another, got .*checkpoint-5 in the place of hub:me/"):
        resumed({})
    assert (own / "own.txt").read_text() == "mine"


def test_a_complete_checkpoint_with_the_same_weights_is_gone_on_from(
    resumed: Callable[..., Path], tmp_path: Path
) -> None:
    own = own_checkpoint(tmp_path, 1.0)
    assert resumed({}) == own
    assert (own / "own.txt").read_text() == "mine"
    (own / MANIFEST).unlink()
    assert resumed({}) == own
    assert (flaw(own), (own / "own.txt").exists()) == (None, False)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"trainer_state.json": b"[]"}, "global_step in trainer_state.json of hub:.* whole number from 0"),
        ({"trainer_state.json": b'{"global_step": -7}'}, "whole number from 0 to .*, got -7"),
        ({"trainer_state.json": b'{"global_step": true}'}, "whole number from 0 to .*, got True"),
        ({MANIFEST: b'{"resumable": true}'}, "run in .* must be a mapping, got None"),
        ({MANIFEST: b'{"resumable": true, "run": 5}'}, "run in .* must be a mapping, got 5"),
    ],
)
def test_what_no_run_published_is_refused_and_leaves_no_folder(
    resumed: Callable[..., Path], tmp_path: Path, files: dict[str, bytes], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        resumed(files)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused_before_it_gets_its_name(
    resumed: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="seed 2 in place of 1 in the one published; set them back"):
        resumed({}, lambda folder: refuse_another_run(folder, {"seed": 2}, [], "the one published"))
    assert list((tmp_path / "out").iterdir()) == []
