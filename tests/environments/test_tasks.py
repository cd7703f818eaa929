"""Task rows as datasets."""

import pickle
import subprocess
import sys

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hf_credit
from hf_credit.environments import ENVIRONMENTS
from hf_credit.environments.base import Environment
from hf_credit.environments.sudoku import Sudoku
from hf_credit.environments.tasks import complete_task, require_task_columns, task_seed, tasks

INDICES = st.integers(0, 2**31 - 1)


@pytest.fixture
def sudoku():
    return Sudoku(size=4)


class Mastermind(Environment):
    """The minimum of an environment with two task columns, one of them a list."""

    name = "mastermind"
    task_columns = ("code", "level")

    def sample_task(self, seed):
        return {"code": [seed % 7, seed % 5], "level": f"level {seed % 3}"}

    instructions = max_turns = initial_state = observe = legal_actions = step = outcome = metrics = None


@given(train=INDICES, held_out=INDICES)
def test_train_and_held_out_seeds_are_disjoint(train, held_out):
    assert 0 <= task_seed("train", train) < 2**31 <= task_seed("held_out", held_out) < 2**32


@given(index=INDICES, other=INDICES, split=st.sampled_from(["train", "held_out"]))
def test_a_split_has_one_seed_for_each_index(index, other, split):
    assert (task_seed(split, index) == task_seed(split, other)) == (index == other)


@pytest.mark.parametrize(
    ("split", "index", "message"),
    [
        ("test", 0, "split must be one of train, held_out, got 'test'; pick one."),
        ("train", -1, "a task's index must be a whole number from 0 to 2147483647, got -1; correct it."),
        ("train", 2**31, "a task's index must be a whole number from 0 to 2147483647, got 2147483648; correct it."),
    ],
)
def test_invalid_splits_and_indices_are_refused(split, index, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        task_seed(split, index)


def test_rows_are_the_seed_and_the_sampled_task(sudoku):
    dataset = tasks(sudoku, "held_out", size=3, start=5)
    assert dataset.column_names == ["seed", "puzzle"]
    assert list(dataset) == [{"seed": seed, **sudoku.sample_task(seed)} for seed in range(2**31 + 5, 2**31 + 8)]


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
@pytest.mark.parametrize("lazy", [False, True])
def test_every_row_of_every_environment_starts_its_episode(name, lazy):
    environment = hf_credit.make(name)
    for row in tasks(environment, size=4, lazy=lazy):
        task, seed = complete_task(environment, row)
        drawn = environment.sample_task(row["seed"])
        assert environment.initial_state(task, seed) == environment.initial_state(drawn, row["seed"])


def test_a_lazy_row_is_computed_once():
    made = []

    class Counting(Mastermind):
        def sample_task(self, seed):
            made.append(seed)
            return super().sample_task(seed)

    dataset = tasks(Counting(), size=8, lazy=True)
    assert dataset[[0, 0, 3]] == dataset[[0, 0, 3]]
    assert made == [0, 3]


def test_lazy_rows_survive_pickling(sudoku):
    dataset = tasks(sudoku, size=3, lazy=True)
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


@pytest.mark.parametrize("environment", [Sudoku(size=4), Mastermind()], ids=lambda environment: environment.name)
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_lazy_rows_equal_eager_rows(environment, split):
    eager, lazy = (tasks(environment, split, size=8, start=2, lazy=lazy) for lazy in (False, True))
    assert lazy.column_names == ["seed"]
    assert len(lazy) == 8
    assert list(lazy) == list(eager)
    assert lazy[3] == eager[3]
    assert lazy[2:5] == eager[2:5]
    assert lazy.select([6, 1])[0] == eager.select([6, 1])[0]
    assert lazy.shuffle(seed=1)[0] == eager.shuffle(seed=1)[0]


def test_lazy_rows_are_made_only_when_read():
    made = []

    class Counted(Mastermind):
        def sample_task(self, seed):
            made.append(seed)
            return super().sample_task(seed)

    dataset = tasks(Counted(), size=100_000, lazy=True)
    assert made == []
    assert dataset[99_999]["level"] == "level 0"
    assert made == [99_999]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0; raise it."),
        (
            {"size": 2, "start": 2**31 - 1},
            "a task's index must be a whole number from 0 to 2147483647, got 2147483648; correct it.",
        ),
        ({"split": "dev"}, "split must be one of train, held_out, got 'dev'; pick one."),
    ],
)
def test_an_invalid_dataset_is_refused(sudoku, options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        tasks(sudoku, **options)


def test_a_row_with_its_columns_is_unchanged():
    row = {"seed": 3, "code": [9, 9], "level": "hard", "prompt": "ignored"}
    assert complete_task(Mastermind(), row) == ({"code": [9, 9], "level": "hard"}, 3)


def test_a_row_with_a_seed_only_gets_its_task():
    for seed in (8, numpy.array(8)):  # a row in numpy's or torch's format has an array
        assert complete_task(Mastermind(), {"seed": seed}) == ({"code": [1, 3], "level": "level 2"}, 8)


@pytest.mark.parametrize("seed", [None, "3", 1.0])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ValueError, match=f"^a row's seed must be a whole number, got {seed!r}; correct it.$"):
        complete_task(Mastermind(), {"seed": seed})


@pytest.mark.parametrize("columns", [["seed"], ["seed", "code", "level"], ["level", "note", "code", "seed"]])
def test_a_dataset_with_all_task_columns_or_only_seeds_is_accepted(columns):
    require_task_columns(columns, Mastermind())


def test_datasets_of_both_forms_are_accepted(sudoku):
    for lazy in (False, True):
        require_task_columns(tasks(sudoku, size=2, lazy=lazy).column_names, sudoku)


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        ([], ["seed"]),
        (["code", "level"], ["seed"]),
        (["seed", "code"], ["level"]),
        (["level", "prompt"], ["seed", "code"]),
    ],
)
def test_a_dataset_that_lacks_a_column_is_refused_in_one_sentence(columns, missing):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        require_task_columns(columns, Mastermind())
    assert str(caught.value) == (
        "a dataset for 'mastermind' must have the column 'seed' and all or none of ['code', 'level'], "
        f"got {columns} without {missing}; add them, or make the dataset with hf_credit.environments.tasks.tasks."
    )


def test_environments_and_task_seeds_do_not_load_the_datasets_library():
    code = (
        "import sys, hf_credit.environments as e, hf_credit.environments.tasks as t\n"
        "e.make('sudoku', size=4); t.task_seed('train', 0)\n"
        "assert not {'datasets', 'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
