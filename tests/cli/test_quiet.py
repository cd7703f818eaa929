from __future__ import annotations

import logging
import re
import warnings
from inspect import getsource

import pytest
import transformers
from packaging.version import Version
from trl import GRPOTrainer

from hf_credit import VerifiableProcessConfig
from hf_credit.cli.progress import be_quiet
from hf_credit.trainers.base import EpisodeTrainer


def test_a_known_warning_of_another_library_is_not_shown(tmp_path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if Version(transformers.__version__) >= Version("5.23"):  # which deprecates what TRL sets
            with pytest.raises(FutureWarning, match="gradient_checkpointing"):
                VerifiableProcessConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
        be_quiet()
        VerifiableProcessConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)


def test_a_kernel_that_bitsandbytes_misses_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
    logger.warning("Failed to load CPU gemm_4bit_forward from kernels-community: %s.", "No module named 'kernels'")
    assert caplog.messages == []
    logger.warning("something else")
    assert caplog.messages == ["something else"]


def test_advice_of_trl_that_is_refused_here_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert issubclass(EpisodeTrainer, GRPOTrainer)
    logger = logging.getLogger(GRPOTrainer.__module__)
    text = "".join(re.findall(r'"(.*)"', getsource(GRPOTrainer.__init__)))  # as the installed version has it
    advice = re.search(r"optimizing the per-sequence objective\..*?`loss_type='grpo'`", text)
    assert advice is not None
    logger.warning(advice[0])
    logger.warning("something else")
    assert caplog.messages == ["something else"]


def test_any_other_warning_is_still_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        be_quiet()
        with pytest.raises(FutureWarning, match="something else"):
            warnings.warn("something else", FutureWarning, stacklevel=1)
        with pytest.raises(FutureWarning, match="elsewhere"):
            warnings.warn("`gradient_checkpointing` is deprecated, but elsewhere", FutureWarning, stacklevel=1)
