"""What a published model names exists for a stranger: adapters name a base that others can load, or are refused."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
import yaml
from huggingface_hub import HfApi
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit.cli import main
from hf_credit.hub import fetch, load_checkpoint, publish_checkpoint
from hf_credit.hub.checkpoints import require_bases
from hf_credit.loading import load_model
from hf_credit.model_cards import hub_id
from hf_credit.tasks import TaskSpec
from local_hub.running import Served

LORA = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
TOKENS = torch.arange(12)[None]


@pytest.fixture(scope="module")
def published(hub: Served, micro_policy: Path) -> dict[str, Any]:
    """Where to publish, with the adapters' base at me/base."""
    where = {"endpoint": hub.url, "token": hub.token()}
    publish_checkpoint(micro_policy, "me/base", **where)
    return where


@pytest.fixture(scope="module")
def adapted(micro_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Adapters on the micro policy, in folders by role, whose settings name `base`."""

    @functools.cache
    def save(base: str | None, *roles: str) -> Path:
        folder = tmp_path_factory.mktemp("adapted")
        for role in roles or (".",):
            model = get_peft_model(AutoModelForCausalLM.from_pretrained(micro_policy), LORA)
            model.save_pretrained(folder / role)
            settings = folder / role / "adapter_config.json"
            settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": base}))
        AutoTokenizer.from_pretrained(micro_policy).save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize("roles", [(), ("reasoner", "actor")], ids=["one", "roles"])
@pytest.mark.parametrize("place", ["whole", "here", "elsewhere", "above", "none"])
def test_an_adapter_on_a_folder_of_this_machine_is_refused_with_what_helps(
    roles: tuple[str, ...],
    place: str,
    adapted: Callable[..., Path],
    published: dict[str, Any],
    micro_policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "runs" / "warm").mkdir(parents=True)
    monkeypatch.chdir(tmp_path if place != "elsewhere" else "/")
    named = {"whole": str(micro_policy), "here": "runs/warm", "elsewhere": "runs/warm", "above": "../warm"}
    folder = adapted(named.get(place), *roles)
    for dry_run in (False, *([] if place == "elsewhere" else [True])):
        with pytest.raises(ValueError, match=r"must name a base model that others can load, got .*; publish the base"):
            publish_checkpoint(folder, "me/refused", dry_run=dry_run, **published)
    assert not HfApi(endpoint=published["endpoint"]).repo_exists("me/refused")


def test_a_named_base_is_pinned_and_must_have_the_weights_that_the_adapter_was_trained_on(
    adapted: Callable[..., Path], published: dict[str, Any], micro_policy: Path, tmp_path: Path
) -> None:
    folder = adapted(str(micro_policy))
    other = AutoModelForCausalLM.from_pretrained(micro_policy)
    other.model.norm.weight.data += 1
    other.save_pretrained(tmp_path)
    publish_checkpoint(tmp_path, "me/other", **published)
    with pytest.raises(ValueError, match=r"got 'me/other' whose model.safetensors is not that of"):
        publish_checkpoint(folder, "me/named", base="me/other", **published)
    with pytest.raises(ValueError, match="got 'me/nobody', which is not at http"):
        publish_checkpoint(folder, "me/named", base="me/nobody", **published)
    commit = publish_checkpoint(folder, "me/named", base="me/base", **published).commit
    assert publish_checkpoint(folder, "me/named", base="me/base", **published).commit == commit
    found = fetch("me/named", repo_type="model", cache_dir=tmp_path / "cache", **published)
    about = json.loads((found.folder / "adapter_config.json").read_text())
    base = fetch("me/base", repo_type="model", cache_dir=tmp_path / "cache", **published)
    assert (about["base_model_name_or_path"], about["revision"]) == ("me/base", base.commit)
    card = yaml.safe_load((found.folder / "README.md").read_text().split("---\n")[1])
    assert (card["base_model"], card["base_model_relation"]) == ("me/base", "adapter")
    assert not [tag for tag in card["tags"] if "base_model" in tag]
    assert str(micro_policy) not in "".join(path.read_text("latin1") for path in found.files.values())


def test_a_critic_on_a_folder_of_this_machine_is_refused_and_one_of_the_hub_is_named_as_there(
    published: dict[str, Any], micro_policy: Path, tmp_path: Path
) -> None:
    policy = warmed(micro_policy, tmp_path / "policy")
    TaskSpec(task="relay", critic_model=str(micro_policy)).save(policy)
    with pytest.raises(ValueError, match=r"a critic must name a backbone that others can load, got .*, which is a fo"):
        publish_checkpoint(policy, "me/criticised", **published)
    with pytest.raises(ValueError, match="a critic must name a backbone that others can load"):
        require_bases([], "../warm", None, None)
    base = fetch("me/base", repo_type="model", cache_dir=tmp_path / "cache", **published)
    TaskSpec(task="relay", critic_model=str(base.folder)).save(policy)
    publish_checkpoint(policy, "me/criticised", **published)
    loaded = TaskSpec.load(load_checkpoint("me/criticised", **published).folder)
    assert loaded is not None
    assert loaded.critic_model == "me/base"


def test_a_private_base_is_for_private_adapters(
    adapted: Callable[..., Path], published: dict[str, Any], micro_policy: Path
) -> None:
    publish_checkpoint(micro_policy, "me/hidden", private=True, **published)
    folder = adapted("me/hidden")
    with pytest.raises(ValueError, match=r"got 'me/hidden', which is not at .* for whoever loads it"):
        publish_checkpoint(folder, "me/shown", **published)
    assert publish_checkpoint(folder, "me/kept", private=True, **published).private


def test_a_download_of_the_hub_is_named_as_there(
    adapted: Callable[..., Path], published: dict[str, Any], tmp_path: Path
) -> None:
    base = fetch("me/base", repo_type="model", cache_dir=tmp_path, **published)
    assert hub_id(base.folder) == ("me/base", base.commit)
    folder = adapted(str(base.folder))
    publish_checkpoint(folder, "me/downloaded", **published)
    found = fetch("me/downloaded", repo_type="model", cache_dir=tmp_path, **published)
    about = json.loads((found.folder / "adapter_config.json").read_text())
    assert (about["base_model_name_or_path"], about["revision"]) == ("me/base", base.commit)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-4B", ("Qwen/Qwen3-4B", None)),
        ("gpt2", ("gpt2", None)),
        ("/c/models--Qwen--Qwen3-4B/snapshots/0a", ("Qwen/Qwen3-4B", "0a")),
        *((one, None) for one in ("../warm", "./warm", "/runs/warm", "a/b/c", "", None, "tests", "C:\\warm")),
    ],
)
def test_an_id_is_told_from_a_folder(
    name: str | None, found: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert hub_id(name) == found


def test_the_command_names_the_base(
    adapted: Callable[..., Path],
    published: dict[str, Any],
    micro_policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", published["endpoint"])
    monkeypatch.setenv("HF_TOKEN", published["token"])
    words = ["publish", "checkpoint", str(adapted(str(micro_policy))), "me/typed", "--base", "me/base"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    assert "to http" in capsys.readouterr().out


# A stranger: another folder, an empty cache, no library of ours.

STRANGER = """
import importlib.util, json, sys, torch

assert importlib.util.find_spec("hf_credit") is None
from peft import AutoPeftModelForCausalLM, PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, pipeline

tokens, told = torch.arange(12)[None], {}
told["base"] = AutoModelForCausalLM.from_pretrained("me/base")(tokens).logits
told["peft"] = AutoPeftModelForCausalLM.from_pretrained("me/one")(tokens).logits
told["transformers"] = AutoModelForCausalLM.from_pretrained("me/one")(tokens).logits
told["pipeline"] = pipeline("text-generation", model="me/warm").model(tokens).logits
for role in ("reasoner", "actor"):
    about = PeftConfig.from_pretrained("me/roles", subfolder=role)
    model = AutoModelForCausalLM.from_pretrained(about.base_model_name_or_path, revision=about.revision)
    told[role] = PeftModel.from_pretrained(model, "me/roles", subfolder=role)(tokens).logits
print(json.dumps({name: logits.double().sum().item() for name, logits in told.items()}))
"""


def test_a_stranger_loads_policies_adapters_roles_and_warm_ups_by_the_names_that_are_published(
    adapted: Callable[..., Path],
    published: dict[str, Any],
    micro_policy: Path,
    without_us: Path,
    hub_env: dict[str, str],
    tmp_path: Path,
) -> None:
    one, roles = adapted(str(micro_policy)), adapted(str(micro_policy), "reasoner", "actor")
    publish_checkpoint(one, "me/one", base="me/base", **published)
    publish_checkpoint(roles, "me/roles", base="me/base", **published)
    publish_checkpoint(warmed(micro_policy, tmp_path / "warm"), "me/warm", **published)
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [str(without_us), "-c", STRANGER],
        cwd=tmp_path / "elsewhere",
        env={name: value for name, value in hub_env.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    base = AutoModelForCausalLM.from_pretrained(micro_policy)(TOKENS).logits.double().sum().item()
    expected = dict.fromkeys(("base", "pipeline"), base)
    own = {"peft": one, "transformers": one, "reasoner": roles / "reasoner", "actor": roles / "actor"}
    for name, folder in own.items():
        expected[name] = load_model(folder)(TOKENS).logits.double().sum().item()
    assert told == pytest.approx(expected, rel=1e-6)
    assert len({round(value, 3) for value in expected.values()}) == 4


def test_a_pinned_base_is_loaded_at_its_commit_after_others_followed(
    adapted: Callable[..., Path],
    published: dict[str, Any],
    micro_policy: Path,
    hub_env: dict[str, str],
    tmp_path: Path,
) -> None:
    publish_checkpoint(micro_policy, "me/moving", **published)
    publish_checkpoint(adapted(str(micro_policy)), "me/pinned", base="me/moving", **published)
    other = AutoModelForCausalLM.from_pretrained(micro_policy)
    other.model.norm.weight.data += 1
    other.save_pretrained(tmp_path / "other")
    publish_checkpoint(tmp_path / "other", "me/moving", **published)
    code = "import torch\nfrom hf_credit.loading import load_model\nlogits = load_model('me/pinned')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}(torch.arange(12)[None]).logits\nprint(logits.double().sum().item())"],
        cwd=tmp_path,
        env=hub_env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = load_model(adapted(str(micro_policy)))(TOKENS).logits.double().sum().item()
    assert float(done.stdout) == pytest.approx(expected, rel=1e-6)


def warmed(model: Path, folder: Path) -> Path:
    """A policy with the card that TRL writes for one that was trained from a folder, without its task."""
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    card = (Path(trl.__file__).parent / "templates" / "lm_model_card.md").read_text()
    card = card.replace("{{ base_model }}", "None").replace("{{ hub_model_id }}", "None")
    (folder / "README.md").write_text(card.replace("{{ card_data }}", "tags: [trl]"))
    return folder


@pytest.mark.parametrize("plays", [True, False], ids=["task", "no task"])
def test_the_card_of_a_warm_up_names_what_is_there(
    plays: bool, published: dict[str, Any], micro_policy: Path, tmp_path: Path
) -> None:
    folder = warmed(micro_policy, tmp_path / "warm")
    if plays:
        TaskSpec(task="sudoku", task_options={"size": 4}).save(folder)
    publish_checkpoint(folder, f"me/warmed-{plays}", **published)
    card = (load_checkpoint(f"me/warmed-{plays}", **published).folder / "README.md").read_text()
    assert "None" not in card
    assert "This model was trained from a policy that is not on the Hub" in card
    assert ("hf-credit evaluate me/warmed-True --episodes 64" in card) == plays


def test_a_model_is_a_finetune_of_what_its_run_names_only_if_that_is_there(
    published: dict[str, Any], micro_policy: Path, tmp_path: Path
) -> None:
    for name, expected in (("me/base", "me/base"), ("runs/warm", None), (str(micro_policy), None)):
        folder = warmed(micro_policy, tmp_path / name.replace("/", "-"))
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
        (folder / "config.yaml").write_text(yaml.safe_dump({"model_name_or_path": name}))
        publish_checkpoint(folder, "me/finetuned", **published)
        card = (load_checkpoint("me/finetuned", **published).folder / "README.md").read_text()
        assert yaml.safe_load(card.split("---\n")[1]).get("base_model") == expected
        linked = f"fine-tuned version of [me/base]({published['endpoint']}/me/base)"
        assert (linked in card) == (expected is not None)
