"""`check_env` passes every environment of the library and catches each way to break one."""

import dataclasses
import itertools
import json
import random
from dataclasses import dataclass, replace

import pytest

import hf_credit
from hf_credit.environments import ENVIRONMENTS, Environment, State, Transition, check_env
from hf_credit.environments.actions import CLOSE, OPEN, last_action, plain_action
from hf_credit.environments.sudoku import Sudoku, SudokuState

MICRO_PREFERENCES = {"attributes": 3, "levels": 4, "movies": 4, "wording": "brief"}
OPTIONS = {
    "circuit_decoding": [
        {},
        {"inputs": 2, "candidates": 6, "fixed": True, "wording": "brief"},
        {"distinct": True, "reward": "share", "circuits": 3, "candidates": 5},
    ],
    "guess_numbers": [{}, {"digits": 3, "turns": 6, "wording": "brief"}],
    "movie_recommendation": [{}, {**MICRO_PREFERENCES, "unseen": 3}],
    "preference_estimation": [{}, MICRO_PREFERENCES, {"sampling": "min_max"}, {"sampling": "max", "movies": 3}],
    "situation_puzzles": [{}, {"slots": 5, "values": 3, "reward": "character", "wording": "brief"}],
    "minesweeper": [{}, {"rows": 3, "columns": 4, "mines": 2}],
    "sokoban": [{}, {"rows": 5, "columns": 6, "boxes": 1}],
    "sudoku": [
        {},
        {"size": 4},
        {"size": 6, "blanks": 5},
        {"size": 4, "notation": "named"},
        {"size": 4, "notation": "candidates"},
        {"size": 4, "notation": "picture"},
    ],
    "tic_tac_toe": [{}],
}

# For the broken environments below, so that they need no constructor.
FEW = range(6)


def small(environment_type):
    return environment_type(size=4, blanks=4) if issubclass(environment_type, Sudoku) else environment_type()


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name in sorted(ENVIRONMENTS) for options in OPTIONS.get(name, [{}])],
    ids=str,
)
def test_the_environments_of_the_library_keep_every_rule(name, options):
    check_env(hf_credit.make(name, **options))


def test_the_environment_that_the_broken_ones_derive_from_is_whole():
    check_env(small(Sudoku), FEW)


BROKEN = []


def breaks(rule):
    """Marks a class as one that must be caught, with a part of the rule that the message must name."""

    def mark(environment_type):
        BROKEN.append(pytest.param(environment_type, rule, id=environment_type.__name__))
        return environment_type

    return mark


@breaks("sample_task must depend only on its seed")
class TaskDrawsFromTheWorld(Sudoku):
    def sample_task(self, seed):
        return super().sample_task(random.SystemRandom().getrandbits(60))


@breaks("a task's values must be plain")
class TaskHasATuple(Sudoku):
    def sample_task(self, seed):
        return {**super().sample_task(seed), "note": (1, 2)}


@breaks("a task's values must be plain")
class TaskHasAMixedList(Sudoku):
    def sample_task(self, seed):
        return {**super().sample_task(seed), "note": [1, "2"]}


@breaks("a task's column must have values of one type")
class TaskChangesItsKind(Sudoku):
    def sample_task(self, seed):
        return {**super().sample_task(seed), "note": seed if seed % 2 else str(seed)}


@breaks("a task must have all task_columns")
class TaskLacksAColumn(Sudoku):
    task_columns = ("puzzle", "level")


@breaks("a task must have all task_columns, and no seed")
class TaskHasTheSeed(Sudoku):
    def sample_task(self, seed):
        return {**super().sample_task(seed), "seed": seed}


@breaks("initial_state must leave the task unchanged")
class TaskIsEaten(Sudoku):
    def initial_state(self, task, seed):
        return super().initial_state({"puzzle": task.pop("puzzle")}, seed)


@breaks("initial_state must return an active state")
class BeginsOver(Sudoku):
    def initial_state(self, task, seed):
        return replace(super().initial_state(task, seed), status="finished")


@breaks("the same task, seed and actions must give the same episode")
class BeginsAnywhere(Sudoku):
    begun = itertools.count()

    def initial_state(self, task, seed):
        return super().initial_state(task, next(self.begun))


@breaks("must not raise on the environment's own tasks and states: KeyError('level')")
class NeedsMoreThanItsColumns(Sudoku):
    def sample_task(self, seed):
        return {**super().sample_task(seed), "level": 1}

    def initial_state(self, task, seed):
        return super().initial_state(task, task["level"])


@breaks("the same task, seed and actions must give the same episode")
class SlipsAtRandom(Sudoku):
    world = random.Random(0)

    def step(self, state, action):
        legal = self.legal_actions(state)
        if legal and plain_action(action) in legal and self.world.random() < 0.2:
            action = self.world.choice(legal)
        return super().step(state, action)


@breaks("playing must leave the environment object unchanged: turns changed")
class CountsTurns(Sudoku):
    turns = 0

    def step(self, state, action):
        self.turns += 1
        return super().step(state, action)


@breaks("playing must leave the environment object unchanged: world changed")
class HoldsAStream(Sudoku):
    def __init__(self, **options):
        super().__init__(**options)
        self.world = random.Random(0)

    def sample_task(self, seed):
        self.world.random()
        return super().sample_task(seed)


@dataclass(frozen=True, kw_only=True)
class Noted(SudokuState):
    note: object = None


class WithNote(Sudoku):
    state_type = Noted
    note = None

    def initial_state(self, task, seed):
        state = super().initial_state(task, seed)
        return Noted(seed=seed, givens=state.givens, cells=state.cells, note=self.note)


@breaks("a state must hold text, numbers, None and tuples of these only: note: [1]")
class StateHoldsAList(WithNote):
    note = [1]  # noqa: RUF012


@breaks("a state must hold text, numbers, None and tuples of these only: note: ({1},)")
class StateHoldsASetInATuple(WithNote):
    note = ({1},)


@breaks("a state must equal the one read back from its JSON")
class StateHoldsNotANumber(WithNote):
    note = float("nan")


class Loose(Noted):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@breaks("a state must be frozen")
class StateCanBeSet(WithNote):
    state_type = Loose

    def initial_state(self, task, seed):
        return Loose(**dataclasses.asdict(super().initial_state(task, seed)))


class Forgetful(Noted):
    def to_json(self):
        return json.dumps({**json.loads(super().to_json()), "note": None})


@breaks("a state must equal the one read back from its JSON")
class StateForgetsAField(WithNote):
    state_type = Forgetful
    note = "kept"

    def initial_state(self, task, seed):
        return Forgetful(**dataclasses.asdict(super().initial_state(task, seed)))


@breaks("equal states must have equal observe, legal_actions and outcome")
class LooksAtIdentity(Sudoku):
    def observe(self, state):
        return f"{id(state)}\n{super().observe(state)}"


@breaks("step must not raise, whatever the reply: ")
class RaisesOnNul(Sudoku):
    def step(self, state, action):
        if "\x00" in action:
            raise ValueError("embedded null byte")
        return super().step(state, action)


@breaks("step must not raise, whatever the reply: UnicodeEncodeError")
class RaisesOnSurrogates(Sudoku):
    def step(self, state, action):
        return super().step(state, action.encode().decode())


@breaks("step must not raise, whatever the reply: ValueError")
class RaisesOnHugeNumbers(Sudoku):
    def step(self, state, action):
        content = last_action(action) or ""
        return super().step(state, f"<action>{int(content)}</action>" if content.isdecimal() else action)


@breaks("an unreadable or illegal reply must end the episode as invalid")
class ForgivesGarbage(Sudoku):
    def step(self, state, action):
        transition = super().step(state, action)
        if state.status == "active" and transition.info["action"] is None:
            return replace(transition, state=state, terminated=False, observation=self.observe(state))
        return transition


@breaks("an unreadable or illegal reply must end the episode as invalid")
class HidesALegalAction(Sudoku):
    def legal_actions(self, state):
        legal = super().legal_actions(state)
        return legal[:-1] if len(legal) > 1 else legal


@breaks("an unreadable or illegal reply must end the episode as invalid")
class ReadsLeadingZeros(Sudoku):
    def step(self, state, action):
        return super().step(state, plain_action(action).replace(" 0", " "))


@breaks("a legal action must be accepted")
class ListsFilledCells(Sudoku):
    def legal_actions(self, state):
        return super().legal_actions(replace(state, cells="." * 16))


@breaks("legal_actions must be a tuple of different plain actions")
class ListsActionsTwice(Sudoku):
    def legal_actions(self, state):
        return super().legal_actions(state) * 2


@breaks("legal_actions must be a tuple of different plain actions")
class ListsTaggedActions(Sudoku):
    def legal_actions(self, state):
        return tuple(f"<action>{action}</action>" for action in super().legal_actions(state))


@breaks("there must be legal actions in active states and in no other")
class ListsActionsAfterTheEnd(Sudoku):
    def legal_actions(self, state):
        return super().legal_actions(state) or ("fill 1 1 1",)


@breaks("an active state must have a legal action")
class ListsNothing(Sudoku):
    def legal_actions(self, state):
        return ()


@breaks("a legal action must be accepted")
class WantsTags(Sudoku):
    def step(self, state, action):
        return super().step(state, last_action(action) or "no action")


@breaks("an action must have the same effect plain, tagged, in upper case and after other text")
class WantsLowerCase(Sudoku):
    def step(self, state, action):
        return super().step(state, "no action" if "FILL" in action else action)


@breaks("an action must have the same effect plain, tagged, in upper case and after other text")
class ReadsTheFirstTag(Sudoku):
    def step(self, state, action):
        return super().step(state, action.partition(OPEN)[2].partition(CLOSE)[0] or action)


@breaks("info['action'] must be the action as read")
class ForgetsTheAction(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), info={"action": None})


@breaks("a transition's info must have the action as read, or None")
class HasNoInfo(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), info={})


@breaks("a transition's observation must be that of its state")
class ObservesTheStateBefore(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), observation=self.observe(state))


@breaks("observe must return a string, or parts of a message")
class ObservesBytes(Sudoku):
    def observe(self, state):
        return super().observe(state).encode()


@breaks("terminated must say whether the state is over")
class NeverTerminates(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), terminated=False)


@breaks("an action after the end must change nothing and earn nothing")
class RewardsAgainAfterTheEnd(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), reward=0.5 if state.status == "finished" else 0.0)


@breaks("an action after the end must change nothing and earn nothing")
class RevivesAfterTheEnd(Sudoku):
    def step(self, state, action):
        return super().step(replace(state, status="active") if state.status == "invalid" else state, action)


@breaks("the rewards of an episode that is over must sum to its outcome")
class RewardsEveryTurn(Sudoku):
    def step(self, state, action):
        transition = super().step(state, action)
        return replace(transition, reward=0.0 if transition.state.status == "invalid" else 0.1)


@breaks("the rewards of an episode that is over must sum to its outcome")
class PunishesInRewardOnly(Sudoku):
    def step(self, state, action):
        transition = super().step(state, action)
        caught = state.status == "active" and transition.state.status == "invalid"
        return replace(transition, reward=-1.0) if caught else transition


@breaks("a reward must be a finite number")
class RewardsNothingAtAll(Sudoku):
    def step(self, state, action):
        return replace(super().step(state, action), reward=None)


@breaks("outcome must be a finite number in every state")
class HasNoOutcomeYet(Sudoku):
    def outcome(self, state):
        return float("nan") if state.status == "active" else super().outcome(state)


@breaks("metrics must be a dict of finite numbers with a success of 0 or 1")
class LacksSuccess(Sudoku):
    def metrics(self, state):
        return {"completion": super().metrics(state)["completion"]}


@breaks("metrics must be a dict of finite numbers with a success of 0 or 1")
class SucceedsByHalves(Sudoku):
    def metrics(self, state):
        return {"success": 0.5}


@breaks("metrics must not raise on the environment's own tasks and states: ZeroDivisionError")
class MetricsRaiseOnInvalid(Sudoku):
    def metrics(self, state):
        return {"success": 0 / (state.status != "invalid")}


@breaks("task_columns must be a tuple of strings without 'seed'")
class AsksForTheSeed(Sudoku):
    task_columns = ("puzzle", "seed")


@breaks("name must be a string")
class HasNoName(Sudoku):
    name = ""


@breaks("state_type must be a subclass of State")
class HasNoStateType(Sudoku):
    state_type = dict


@breaks("instructions must be a string that shows an <action> tag")
class ShowsNoTag(Sudoku):
    instructions = "Fill the grid."


@breaks("instructions must be the same each time")
class ShowsAnotherTagEachTime(Sudoku):
    shown = itertools.count()

    @property
    def instructions(self):
        return f"<action>fill 1 1 {next(self.shown)}</action>"


@breaks("max_turns must be a whole number of at least 1")
class HasNoTurns(Sudoku):
    max_turns = 0


class Forgiving(Sudoku):
    """Refuses illegal actions and continues."""

    forgiving = True

    def step(self, state, action):
        transition = super().step(state, action)
        if state.status == "active" and transition.state.status == "invalid":
            return replace(
                transition, state=state, observation=self.observe(state), terminated=False, info={"action": None}
            )
        return transition


FORGIVES = "a forgiving environment must continue after an unreadable or illegal reply, with no action in info"


@breaks(FORGIVES)
class ForgivesInWordsOnly(Sudoku):
    forgiving = True


@breaks(FORGIVES)
class TakesWhatItRefuses(Forgiving):
    def step(self, state, action):
        return replace(super().step(state, action), info={"action": plain_action(action)})


@breaks("info['action'] must be the action as read")
class ForgivesALegalAction(Forgiving):
    def step(self, state, action):
        return super().step(state, "" if plain_action(action).endswith(" 1") else action)


@breaks("the same task, seed and actions must give the same episode")
class ForgivesAtRandom(Forgiving):
    world = random.Random(0)

    def step(self, state, action):
        transition = super().step(state, action)
        refused = state.status == "active" and transition.info["action"] is None
        return replace(transition, reward=self.world.random()) if refused else transition


@dataclass(frozen=True, kw_only=True)
class RiddleState(State):
    asked: int = 0


class Riddle(Environment[RiddleState]):
    """Any reply is an action, verbatim; the right one wins, and the fourth is the last."""

    name = "riddle"
    state_type = RiddleState
    task_columns = ()
    open_actions = True
    instructions = "What has keys and opens no lock?"
    max_turns = 4

    def sample_task(self, seed):
        return {}

    def initial_state(self, task, seed):
        return RiddleState(seed=seed)

    def observe(self, state):
        return f"Asked {state.asked} times, {state.status}."

    def legal_actions(self, state):
        return ("A Piano", "a map", "Was it <here>?") if state.status == "active" else ()

    def read_action(self, reply):
        return reply.strip()

    def write_action(self, action):
        return f"{action}\n"

    def step(self, state, action):
        read = self.read_action(action)
        if state.status == "active":
            asked = state.asked + 1
            over = "invalid" if not read else "finished" if read == "A Piano" or asked == 4 else "active"
            won = float(over == "finished" and read == "A Piano")
            state = replace(state, asked=100 if won else asked, status=over)
            reward = won
        else:
            reward = 0.0
        return Transition(
            state=state,
            observation=self.observe(state),
            reward=reward,
            terminated=state.status != "active",
            info={"action": read or None},
        )

    def outcome(self, state):
        return float(state.asked == 100)

    def metrics(self, state):
        return {"success": self.outcome(state)}


@breaks("an unreadable or illegal reply must end the episode as invalid")
class RiddleWithClosedActions(Riddle):
    open_actions = False


@breaks("an unreadable or illegal reply must end the episode as invalid: '' gave")
class RiddleThatTakesSilence(Riddle):
    def read_action(self, reply):
        return super().read_action(reply) or "..."


READS = "read_action must return a string for any text, and the action that write_action wrote"


@breaks(READS)
class RiddleThatReadsInLowerCase(Riddle):
    def read_action(self, reply):
        return super().read_action(reply).lower()

    def legal_actions(self, state):
        return ("a map", "A PIANO") if state.status == "active" else ()


@breaks(READS)
class RiddleThatDoesNotReadSurrogates(Riddle):
    def read_action(self, reply):
        return super().read_action(reply).encode().decode()


@breaks(READS)
class RiddleThatReadsNothing(Riddle):
    def read_action(self, reply):
        return super().read_action(reply) or None


@breaks("legal_actions must be a tuple of different plain actions")
class RiddleWithAnEmptyAction(Riddle):
    def legal_actions(self, state):
        return ("", *super().legal_actions(state)) if state.status == "active" else ()


@breaks("an action must have the same effect plain, tagged")
class RiddleThatMindsTheForm(Riddle):
    def step(self, state, action):
        transition = super().step(state, action)
        return replace(transition, reward=transition.reward + 0.1 * action.endswith("\n"))


@breaks("open_actions must be True or False")
class RiddleThatIsPartlyOpen(Riddle):
    open_actions = 0.5


@pytest.mark.parametrize("environment", [small(Forgiving), Riddle()], ids=["forgiving", "open"])
def test_forgiving_and_open_environments_keep_every_rule(environment):
    check_env(environment, FEW)


@pytest.mark.parametrize(("environment_type", "rule"), BROKEN)
def test_a_broken_rule_is_caught_and_named(environment_type, rule):
    with pytest.raises(AssertionError) as caught:
        check_env(small(environment_type), FEW)
    message = str(caught.value)
    assert message.startswith(f"environment {environment_type.__name__} breaks ")
    assert rule in message


def test_every_broken_rule_is_listed_in_one_message():
    class TwiceBroken(HasNoInfo):
        max_turns = 0.5

        def metrics(self, state):
            return {}

    with pytest.raises(AssertionError) as caught:
        check_env(small(TwiceBroken), FEW)
    message = str(caught.value)
    assert "\n- max_turns must be a whole number of at least 1: 0.5" in message
    assert "\n- metrics must be a dict of finite numbers with a success of 0 or 1: {} (seed 0)" in message
    assert "\n- a transition's info must have the action as read, or None: {} (seed 0)" in message


def test_the_environment_is_not_blamed_for_an_interrupt():
    class Interrupted(Sudoku):
        def observe(self, state):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_env(small(Interrupted), FEW)
