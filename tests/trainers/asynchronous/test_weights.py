"""Weights that are handed over in files, and weights that are compared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_credit.trainers.asynchronous import weights
from hf_credit.trainers.asynchronous.weights import FolderTransfer, refuse_other_weights


class Reader:
    """A server that reads what it is pointed to, as far as it is whole."""

    def __init__(self) -> None:
        self.read: list[dict[str, torch.Tensor]] = []
        self.heard: list[str] = []

    def wait(self) -> None:
        self.heard.append("wait")

    def refuse_adapters(self) -> None:
        self.heard.append("refuse adapters")

    def ask(self, path: str) -> None:
        self.heard.append(path)

    def reload_weights(self, path: str) -> None:
        files = sorted(Path(path).glob("*.safetensors"))
        self.read.append({name: value for file in files for name, value in load_file(file).items()})


def test_a_server_reads_whole_weights_and_the_ones_before_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_SHARD_BYTES", 20)
    server = Reader()
    transfer = FolderTransfer(server, tmp_path)
    transfer.init_weight_transfer()
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    for step in range(2):
        with torch.no_grad():
            model[0].weight.fill_(float(step))
        transfer.pause()
        transfer.send_weights(iter(model.named_parameters()))
        transfer.resume()
        (left,) = tmp_path.iterdir()
    assert len(list(left.glob("*.safetensors"))) == 2
    assert server.heard == ["wait", "refuse adapters", *["/pause?mode=keep", "/resume"] * 2]
    assert [read["0.weight"].unique().tolist() for read in server.read] == [[0.0], [1.0]]
    assert server.read[-1].keys() == dict(model.named_parameters()).keys()


def test_a_transfer_that_breaks_leaves_nothing_that_a_server_would_read(tmp_path: Path) -> None:
    def breaks() -> object:
        yield "a", torch.ones(2)
        raise OSError("the disk is gone")

    server = Reader()
    transfer = FolderTransfer(server, tmp_path)
    transfer.init_weight_transfer()
    with pytest.raises(OSError, match="the disk is gone"):
        transfer.send_weights(breaks())  # type: ignore[arg-type]
    assert server.read == []
    assert list(tmp_path.iterdir()) == []


def test_weights_of_others_stay_and_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "weights-3").mkdir()
    (tmp_path / "weights-of-last-year").write_text("mine")
    transfers = [FolderTransfer(Reader(), tmp_path) for _ in range(2)]
    for transfer in transfers:
        transfer.init_weight_transfer()
        for step in range(2):
            transfer.send_weights(iter({"a": torch.full((2,), float(step))}.items()))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert len(left) == 4
    assert {"weights-3", "weights-of-last-year"} < set(left)
    assert "holds weights of other runs, which may be removed: weights-3, weights-of-last-year" in caplog.text


def test_a_run_removes_the_weights_that_a_process_of_its_own_has_left(tmp_path: Path) -> None:
    (tmp_path / "weights-mine").mkdir()
    for _ in range(2):  # no process removes its last weights, which the server may load again
        transfer = FolderTransfer(Reader(), tmp_path, own=True)
        transfer.init_weight_transfer()
        transfer.send_weights(iter({"a": torch.ones(2)}.items()))
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["model-00000.safetensors"]
    assert (tmp_path / "weights-mine").is_dir()


def test_weights_that_a_server_could_not_load_go_with_the_next(tmp_path: Path) -> None:
    class Refusing(Reader):
        def reload_weights(self, path: str) -> None:
            super().reload_weights(path)
            if len(self.read) == 2:
                raise ConnectionError("away")

    transfer = FolderTransfer(Refusing(), tmp_path)
    transfer.init_weight_transfer()
    transfer.send_weights(iter({"a": torch.ones(2)}.items()))
    with pytest.raises(ConnectionError):
        transfer.send_weights(iter({"a": torch.ones(2)}.items()))
    assert len(list(tmp_path.iterdir())) == 2
    transfer.send_weights(iter({"a": torch.ones(2)}.items()))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("served", "exact", "passes"),
    [
        ([-1.0, -2.001], True, True),
        ([-1.0, -2.1], True, False),
        ([-1.0, -2.1], False, True),
        ([-1.5, -2.1], False, False),
        ([-1.0, math.nan], False, False),
    ],
)
def test_other_weights_are_refused(served: list[float], exact: bool, passes: bool) -> None:
    trained = torch.tensor([-1.0, -2.0])
    if passes:
        assert refuse_other_weights(trained, served, exact) == pytest.approx(abs(served[1] + 2) / 2)
    else:
        with pytest.raises(ValueError, match="must serve the weights that are trained, got log-probabilities "):
            refuse_other_weights(trained, served, exact)
