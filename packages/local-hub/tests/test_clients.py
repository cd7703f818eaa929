"""Stock clients, in separate processes, as from a user's shell."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hub_fixtures import environment_of
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.utils import get_session

from local_hub.running import Served


def run(environment: dict[str, str], *command: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(environment: dict[str, str], script: str, *arguments: str) -> str:
    return run(environment, sys.executable, "-c", textwrap.dedent(script), *arguments)


def hf(environment: dict[str, str], *arguments: str, folder: Path | None = None) -> str:
    return run(environment, str(Path(sys.executable).parent / "hf"), *arguments, folder=folder)


def test_the_hf_command_makes_fills_lists_verifies_and_tags(hub_env: dict[str, str], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    (source / "README.md").write_text("# Files\n")
    (source / "inner/data.bin").write_bytes(bytes(range(256)) * 100)

    assert "admin" in hf(hub_env, "auth", "whoami")
    hf(hub_env, "repos", "create", "org/by-hf", "--private")
    hf(hub_env, "upload", "org/by-hf", str(source), ".", "--commit-message", "Fill")
    hf(hub_env, "repos", "tag", "create", "org/by-hf", "v1")
    hf(hub_env, "download", "org/by-hf", "--revision", "v1", "--local-dir", str(target))
    assert (target / "inner/data.bin").read_bytes() == (source / "inner/data.bin").read_bytes()
    # Compares git's ids of small files, and SHA-256 of large ones, with the listing.
    hf(hub_env, "cache", "verify", "org/by-hf", "--local-dir", str(target))


DATASETS = """
    import datasets
    rows = datasets.Dataset.from_dict({"seed": [1, 2, 3], "text": ["a", "b", "c"]})
    rows.push_to_hub("org/rows", "tasks", split="train", private=True)
    rows.select([0]).push_to_hub("org/rows", "tasks", split="test")
    rows.select([1]).push_to_hub("org/rows", "episodes", split="train")

    assert sorted(datasets.get_dataset_config_names("org/rows")) == ["episodes", "tasks"]
    loaded = datasets.load_dataset("org/rows", "tasks")
    assert loaded["train"].to_dict() == rows.to_dict()
    assert loaded["test"]["seed"] == [1]
    streamed = datasets.load_dataset("org/rows", "episodes", split="train", streaming=True)
    assert list(streamed) == [{"seed": 2, "text": "b"}]
    """
MODEL = """
    import torch, transformers
    from tokenizers import Tokenizer, models
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    model = transformers.LlamaForCausalLM(config)
    model.push_to_hub("org/tiny")
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").push_to_hub("org/tiny")

    loaded = transformers.AutoModelForCausalLM.from_pretrained("org/tiny")
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name
    assert transformers.AutoTokenizer.from_pretrained("org/tiny").encode("a") == [0]
    """
HALF = """
    import datasets
    import evaluate

    class Half(evaluate.Metric):
        def _info(self):
            features = datasets.Features({"predictions": datasets.Value("float")})
            return evaluate.MetricInfo(description="Halves.", citation="", features=features)

        def _compute(self, predictions):
            return {"half": sum(predictions) / 2}
    """
METRIC = """
    import evaluate
    assert evaluate.load("org/half").compute(predictions=[1.0, 2.0]) == {"half": 1.5}
    """
ALL = """
    import json, sys, traceback
    failures = {}
    for name, script in json.loads(sys.argv[1]).items():
        try:
            exec(compile(script, name, "exec"), {})
        except Exception:
            failures[name] = traceback.format_exc()
    print(json.dumps(failures))
    """


@pytest.fixture(scope="module")
def failures(hub: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the traceback of each failed script; all run in one process, since imports take most of their time."""
    api = HfApi(endpoint=hub.url, token=hub.token())
    api.create_repo("org/half", repo_type="space", space_sdk="static")
    files = [CommitOperationAdd("half.py", textwrap.dedent(HALF).encode())]
    api.create_commit("org/half", files, commit_message="Add it", repo_type="space")
    scripts = {"datasets": DATASETS, "transformers": MODEL, "evaluate": METRIC}
    dedented = json.dumps({name: textwrap.dedent(script) for name, script in scripts.items()})
    told = python(environment_of(hub, tmp_path_factory.mktemp("client")), ALL, dedented)
    return dict(json.loads(told.splitlines()[-1]))


def test_datasets_are_pushed_and_loaded_in_configurations_and_splits(failures: dict[str, str]) -> None:
    assert failures.get("datasets") is None


def test_transformers_saves_pushes_and_loads_a_model(failures: dict[str, str]) -> None:
    assert failures.get("transformers") is None


def test_evaluate_loads_a_metric_from_a_space(failures: dict[str, str]) -> None:
    assert failures.get("evaluate") is None


def test_openenv_pushes_an_environment_with_its_variables_and_secrets(
    hub: Served, hub_env: dict[str, str], tmp_path: Path
) -> None:
    pushing = ["push", "--repo-id", "org/counting", "--private", "--env-var", "LEVEL=3", "--secret", "KEY=hidden"]
    script = f"""
        import os, runpy, sys
        os.chdir({str(tmp_path)!r})
        # As its two commands; to import what they need is most of what they take.
        for folder, words in ((".", ["init", "counting_env"]), ("counting_env", {pushing})):
            os.chdir(folder)
            sys.argv[1:] = words
            try:
                runpy.run_path({str(Path(sys.executable).parent / "openenv")!r}, run_name="__main__")
            except SystemExit as end:
                assert not end.code, end.code
        """
    python(hub_env, script)

    api = HfApi(endpoint=hub.url, token=hub.token())
    space = api.space_info("org/counting")
    assert space.private
    assert space.sdk == "docker"
    assert "openenv.yaml" in {one.rfilename for one in space.siblings}
    assert api.get_space_variables("org/counting")["LEVEL"].value == "3"
    assert list(api.get_space_secrets("org/counting")) == ["KEY"]
    answer = get_session().get(f"{hub.url}/api/spaces/org/counting/secrets", headers=api._build_hf_headers())
    assert "hidden" not in answer.text
