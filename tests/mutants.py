"""Changes of the source that change results, each of which must make a test fail.

    python tests/mutants.py              every one of them (`make mutants`)
    python tests/mutants.py entropy EMPTY   those whose name holds one of the words

Each is made in a copy of the source, on which the tests named beside it run. One that no test notices survives: write
the test that kills it. `test_mutants.py` checks, with every run of the suite, that the texts below are still there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """One change.

    Attributes:
        name: what is wrong then, in a few words.
        path: the file, from the root of the repository; below `src/` or a package's.
        old: a text that stands in it exactly once, as short as can be.
        new: what stands there instead.
        tests: pytest's names of tests, at least one of which must fail.
    """

    name: str
    path: str
    old: str
    new: str
    tests: Sequence[str]


_BASE, _SCORES = "src/hf_credit/trainers/base.py", "src/hf_credit/trainers/scores.py"
_PACKING = "src/hf_credit/trainers/packing.py"
_TEST_BASE, _TEST_ROLES = "tests/trainers/test_base.py::", "tests/trainers/test_role_adapters.py::"
_TEST_SCORES, _TEST_SETTINGS = "tests/trainers/test_scores.py::", "tests/trainers/test_trl_settings.py::"
_TEST_VPR = "tests/methods/test_verifiable_process.py::"

_TEST_CCPO, _TEST_REMOVALS = "tests/methods/test_counterfactual_grpo.py::", "tests/collectors/test_removals.py::"
_TEST_CVT = "tests/methods/cvt/test_method.py::"

_SERVER, _TEST_SERVER = "packages/local-hub/src/local_hub/", "packages/local-hub/tests/"
_BOARD, _TEST_BOARD = "packages/leaderboard/src/hf_credit_leaderboard/", "tests/leaderboard/"

_AGENTS, _TEST_AGENTS = "src/hf_credit/agents/", "tests/agents/test_interaction.py::"
_ASYNC, _TEST_ASYNC = "src/hf_credit/trainers/asynchronous/", "tests/trainers/asynchronous/"

_BENCH, _TEST_BENCH = "packages/bench/src/hf_credit_bench/", "tests/bench/"
_ASYNC = "src/hf_credit/trainers/asynchronous/"
_ASYNC_TESTS = "tests/trainers/asynchronous/"

MUTANTS = [
    Mutant(
        "turns that are masked get credit in recorded traces",
        "src/hf_credit/evaluation/traces.py",
        "tuple(one if decision.trained else None for",
        "tuple(one for",
        ["tests/evaluation/test_traces.py::test_captures_of_openenv_are_traces_with_tokens"],
    ),
    Mutant(
        "contexts of recorded traces are all the same without tokens",
        "src/hf_credit/evaluation/traces.py",
        "context = digest([context, trace[place]])",
        'context = "0"',
        ["tests/evaluation/test_traces.py::test_equal_contexts_are_found_without_tokens"],
    ),
    Mutant(
        "a message that was shown before is new again",
        "src/hf_credit/evaluation/credited.py",
        "in request.messages[shared:]:",
        "in request.messages:",
        ["tests/evaluation/test_credited.py::test_with_tools_calls_and_new_messages_are_shown_separately"],
    ),
    Mutant(
        "branches of a state do not share its weight",
        "src/hf_credit/methods/active_replay.py",
        "one.weight = vertex.weight / count if vertex.step else 1.0",
        "one.weight = 1.0",
        ["tests/methods/test_active_replay.py::test_credit_and_weights_of_a_tree_by_hand"],
    ),
    Mutant(
        "branches that are alive already do not count",
        "src/hf_credit/methods/replay_plan.py",
        "min(self.most, target) / alive",
        "min(self.most, target)",
        ["tests/methods/test_active_replay.py::test_branches_are_the_root_of_the_ratio_of_lowest_means"],
    ),
    Mutant(
        "branches come on top of as many starts as without",
        "src/hf_credit/methods/active_replay.py",
        "len(rows) * self.group_size / max(growth, 1.0)",
        "len(rows) * self.group_size",
        ["tests/methods/test_active_replay.py::test_more_branches_are_fewer_starts"],
    ),
    Mutant(
        "depths of falling noise are blocks of their own",
        "src/hf_credit/credit/replay_allocation.py",
        "blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]",
        "blocks[-2][0] * blocks[-1][1] > 2 * blocks[-1][0] * blocks[-2][1]",
        ["tests/credit/test_replay_allocation.py::test_noise_that_does_not_rise_leaves_nothing_to_gain"],
    ),
    Mutant(
        "the loss divides by the tokens of all branches",
        "src/hf_credit/methods/base.py",
        "scale * credit.weights.get(name, 1.0)",
        "credit.weights.get(name, 1.0)",
        ["tests/trainers/test_credit.py::test_the_loss_divides_by_weights_where_branches_share_them"],
    ),
    Mutant(
        "exact gradients forget how likely a state is passed",
        _BENCH + "truth.py",
        "gradient[place, action] += share * row[action]",
        "gradient[place, action] += row[action]",
        [_TEST_BENCH + "test_truth.py::test_gradient_is_the_derivative_of_the_value"],
    ),
    Mutant(
        "what replays cost is not counted",
        _BENCH + "play.py",
        "tokens=context.ledger.completion_tokens",
        "tokens=sum(len(one.decisions) for one in collected.episodes)",
        [_TEST_BENCH + "test_measures.py::test_replays_count_in_the_cost_of_signal"],
    ),
    Mutant(
        "the noise of a mean counts as its bias",
        _BENCH + "measures.py",
        "bias = max(float(across @ across) - noise, 0.0)",
        "bias = float(across @ across)",
        [_TEST_BENCH + "test_measures.py::test_an_angle_that_noise_explains_is_none"],
    ),
    Mutant(
        "critics of the bench know what was really done where the check does not",
        _BENCH + "play.py",
        'truth = self._copy.truth if output == "probability" else self._now.paid',
        'truth = self._copy.truth if output == "probability" else self._now.truth',
        [_TEST_BENCH + "test_problems.py::test_critics_predict_rewards_so_that_bootstrapping_keeps_the_direction"],
    ),
    Mutant(
        "off-policy data of the bench are never clipped",
        _BENCH + "play.py",
        "(ratio > 1 + CLIP and credit > 0)",
        "(ratio > 2 + CLIP and credit > 0)",
        [_TEST_BENCH + "test_problems.py::test_off_policy_data_have_no_gradient_beyond_the_clip_range"],
    ),
    Mutant(
        "a name in a stranger's cell is imported",
        _BENCH + "guide.py",
        "if method not in methods.METHODS:",
        'if method == "":',
        [_TEST_BENCH + "test_cell_sets.py::test_names_in_cells_of_strangers_are_not_imported"],
    ),
    Mutant(
        "any salt keeps the promise of a season",
        _BOARD + "seasons.py",
        "if hashlib.sha256(bytes.fromhex(salt)).hexdigest() != promised:",
        "if not promised:",
        [_TEST_BOARD + "test_seasons.py::test_the_secret_is_written_once_for_its_owner_and_belongs_to_its_season"],
    ),
    Mutant(
        "a record of another key is read",
        _BOARD + "records.py",
        'if not signed_by(season.public_key, outer["record"], outer["signature"]):',
        'if not outer["record"]:',
        [_TEST_BOARD + "test_entries.py::test_a_record_is_read_where_the_season_signed_it_and_nowhere_else"],
    ),
    Mutant(
        "secret tasks are among those of training",
        _BOARD + "seasons.py",
        'if split_of(seed)[0] == "held_out":',
        "if seed:",
        [_TEST_BOARD + "test_seasons.py::test_secret_seeds_follow_the_formula_and_stay_apart_from_all_splits"],
    ),
    Mutant(
        "entries are ranked on tasks that are not paired",
        _BOARD + "ranking.py",
        "paired_p(means[a], means[b])",
        "paired_p(means[a], means[b][::-1])",
        [_TEST_BOARD + "test_ranking.py::test_a_small_gap_shows_where_tasks_differ_much_more_than_entries_do"],
    ),
    Mutant(
        "each pair of a board is tested as if it were the only one",
        _BOARD + "ranking.py",
        "holm(p_values) if pairs else ()",
        "p_values",
        [_TEST_BOARD + "test_ranking.py::test_holms_correction_counts_all_pairs_of_the_board"],
    ),
    Mutant(
        "the best task may be told twice",
        _BOARD + "verification.py",
        "if times > 1:",
        "if times < 1:",
        [_TEST_BOARD + "test_verification.py::test_every_public_task_must_be_played_once_and_no_other"],
    ),
    Mutant(
        "a copy has a rank of its own",
        _BOARD + "records.py",
        "return self.badge == VERIFIED and self.copy_of is None",
        "return self.badge == VERIFIED",
        [_TEST_BOARD + "test_views.py::test_the_numbers_of_the_board_are_those_of_the_outcomes"],
    ),
    Mutant(
        "a critic is taught on the rows that it is measured on",
        _BOARD + "credit_board.py",
        'self.rows([task_seed("train", update',
        'self.rows([task_seed("held_out", update',
        [_TEST_BOARD + "test_credit_board.py::test_rows_of_the_warm_up_are_none_that_are_measured"],
    ),
    Mutant(
        "roles that wait for their turn are moved by the optimizer's moments",
        "src/hf_credit/trainers/role_adapters.py",
        "parameter.grad = None",
        "pass",
        [
            "tests/trainers/test_counterfactual_grpo.py::"
            "test_one_role_learns_at_a_time_and_the_others_stay_bitwise_the_same"
        ],
    ),
    Mutant(
        "solos are counted as episodes",
        "src/hf_credit/collectors/removals.py",
        "counted=False",
        "counted=True",
        [
            "tests/methods/test_counterfactual_grpo.py::"
            "test_solo_replies_can_be_trained_on_with_weight_1_minus_trust_and_are_not_counted"
        ],
    ),
    Mutant(
        "a batch is shaped by its own moments where the previous ones are asked for",
        "src/hf_credit/methods/counterfactual_grpo.py",
        'moments = updated if self.order == "current" else memory',
        "moments = updated",
        [_TEST_CCPO + "test_only_the_current_order_shapes_a_first_batch_by_its_own_moments"],
    ),
    Mutant(
        "a deviation of 0 divides",
        "src/hf_credit/credit/counterfactual.py",
        "1.0 if self.variance <= unit_below else ",
        "",
        [_TEST_CCPO + "test_a_first_success_alone_is_not_divided_by_a_deviation_of_zero"],
    ),
    Mutant(
        "all whole episodes and all without a role meet one world",
        "src/hf_credit/collectors/removals.py",
        "None if state is None or number == 0 else number",
        "None",
        [_TEST_REMOVALS + "test_an_episode_meets_the_world_that_its_comparison_meets_and_no_other"],
    ),
    Mutant(
        "an episode without a role meets another world than the whole one",
        "src/hf_credit/collectors/removals.py",
        "None if state is None or number == 0 else number",
        "None if state is None or number == 0 else number + len(roles)",
        [_TEST_REMOVALS + "test_an_episode_meets_the_world_that_its_comparison_meets_and_no_other"],
    ),
    Mutant(
        "who was left out before speaks again",
        "src/hf_credit/collaborations/base.py",
        " - removed - silent",
        " - removed",
        [
            "tests/collaborations/test_think_solve.py::"
            "test_without_a_thinker_earlier_outputs_stay_and_later_roles_reply_again"
        ],
    ),
    Mutant(
        "each vote is scored",
        "src/hf_credit/collaborations/voting.py",
        "answer is not None and answer not in grades",
        "answer is not None",
        ["tests/collaborations/test_voting.py::test_each_distinct_answer_is_scored_once_also_without_a_voter"],
    ),
    Mutant(
        "the variance of all that was ever seen",
        "src/hf_credit/credit/counterfactual.py",
        "(value - mean) ** 2",
        "(value - old.mean) ** 2",
        ["tests/credit/test_counterfactual.py::test_the_first_batch_is_taken_as_it_is_and_the_next_is_averaged_in"],
    ),
    Mutant(
        "old log-probabilities left out off-policy",
        _BASE,
        "if correct or projection is not None or self.args.gradient_accumulation_steps % generate_every != 0:",
        "if correct or projection is not None:",
        [_TEST_BASE + "test_the_ratios_of_a_second_update_are_to_the_policy_that_sampled"],
    ),
    Mutant(
        "the reference taken from the policy",
        _BASE,
        "self.logprobs_of_rows(self.ref_model, batch)",
        "self.logprobs_of_rows(self.model, batch)",
        [_TEST_BASE + "test_the_reference_stays_the_initial_policy"],
    ),
    Mutant(
        "the wrong role's adapter for the last part",
        _BASE,
        "self.use_policy_of(last)",
        "pass",
        [_TEST_ROLES + "test_each_adapter_has_the_gradient_of_its_roles_decisions"],
    ),
    Mutant(
        "the wrong role's adapter for old log-probabilities",
        "src/hf_credit/trainers/rows.py",
        ".logprobs,\n                self.use_policy_of,",
        ".logprobs,\n                None,",
        [_TEST_ROLES + "test_ratios_are_to_the_policy_of_the_role_that_replied"],
    ),
    Mutant(
        "no entropy bonus",
        "src/hf_credit/trainers/entropy.py",
        "return losses - (0.0 if gated else self.weight) * entropy",
        "return losses",
        [_TEST_SETTINGS + "test_the_settings_are_varied_so_that_they_matter[entropy_coef]"],
    ),
    Mutant(
        "the entropy bonus given where it is gated",
        "src/hf_credit/trainers/entropy.py",
        "0.0 if gated else self.weight",
        "self.weight",
        ["tests/trainers/test_entropy.py::test_entropy_is_not_rewarded_before_it_is_measured_or_above_its_target"],
    ),
    Mutant(
        "metrics of the loss that count rows without loss",
        "src/hf_credit/trainers/metrics.py",
        "mask.double().sum()]",
        "torch.ones_like(mask).double().sum()]",
        [_TEST_BASE + "test_rows_without_loss_do_not_change_the_gradient"],
    ),
    Mutant(
        "ratios of a sequence over its padding",
        "src/hf_credit/credit/surrogate.py",
        "(difference * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)",
        "difference.mean(-1, keepdim=True)",
        ["tests/credit/test_surrogate.py::test_the_ratio_of_a_sequence_is_the_geometric_mean_over_its_tokens"],
    ),
    Mutant(
        "a threshold of entropy that is that of one part",
        "src/hf_credit/trainers/trl_settings.py",
        "if name in reasons and value != default",
        "if name in reasons and default is None and value != default",
        [
            _TEST_SETTINGS + "test_what_has_no_effect_is_refused_in_one_sentence_with_a_remedy"
            "[synchronous-CreditConfig-top_entropy_quantile]"
        ],
    ),
    Mutant(
        "positions that count padding",
        _SCORES,
        "(attention_mask.cumsum(dim=1) - 1).clamp(min=0)",
        "torch.ones_like(attention_mask).cumsum(dim=1) - 1",
        [_TEST_SCORES + "test_padding_before_a_prompt_moves_no_position"],
    ),
    Mutant(
        "observations scored as well",
        _SCORES,
        "input_ids[:, -tokens:].masked_fill(~scored, -100)",
        "input_ids[:, -tokens:]",
        [_TEST_SCORES + "test_the_head_scores_the_tokens_in_the_loss_and_no_others[separate_log_probs]"],
    ),
    Mutant(
        "an update skipped for its advantages where the loss has another term",
        "src/hf_credit/trainers/rows.py",
        "more_terms = self.beta != 0.0 or",
        "more_terms =",
        [_TEST_BASE + "test_an_update_with_another_term_in_the_loss_is_read_whatever_its_advantages[term0]"],
    ),
    Mutant(
        "positions of a branch that count the branches before it",
        _PACKING,
        "np.arange(own, len(row) - 1) for row, own in zip(rows, shared, strict=True)",
        "np.arange(begun, end) for begun, end in zip(starts[:-1], starts[1:], strict=True)",
        [_TEST_SCORES + "test_rows_with_one_prompt_are_a_trunk_and_a_branch_for_each"],
    ),
    Mutant(
        "prompts that differ in padding only are shared",
        "src/hf_credit/rollouts/batches.py",
        "[row[seen] for row,",
        "[row for row,",
        ["tests/rollouts/test_batches.py::test_prompts_that_differ_only_in_padding_tokens_have_other_tokens"],
    ),
    Mutant(
        "a reply that a program has rewritten is taken for the one that was sampled",
        _AGENTS + "states.py",
        'same = messages[at] == assistant_message(reply["content"], reply["calls"])',
        "same = True",
        [_TEST_AGENTS + "test_a_reply_that_returns_unchanged_is_shown_as_its_text_in_any_spelling"],
    ),
    Mutant(
        "a program gets every variable",
        _AGENTS + "hosting.py",
        "name in _KEPT or",
        "True or",
        [_TEST_AGENTS + "test_a_run_gets_only_the_variables_that_are_listed_and_a_folder_that_is_deleted"],
    ),
    Mutant(
        "the key of a run is good for ever",
        _AGENTS + "endpoint.py",
        "self._runs.pop(keys[0], (None, set()))",
        "self._runs.get(keys[0], (None, set()))",
        [_TEST_AGENTS + "test_a_key_is_refused_after_its_run_and_is_written_nowhere"],
    ),
    Mutant(
        "a run that gave up waiting is an outcome",
        _AGENTS + "runs.py",
        "            else:\n                return False",
        "            else:\n                return True",
        [_TEST_AGENTS + "test_a_run_that_gave_up_waiting_is_restored"],
    ),
    Mutant(
        "ids of replies are random",
        _AGENTS + "dialects/base.py",
        'f"chatcmpl-{place}"',
        'f"chatcmpl-{id(record)}"',
        ["tests/agents/test_endpoint.py::test_an_sdk_reads_the_answers"],
    ),
    Mutant(
        "what is not on the white list of a call is dropped",
        _AGENTS + "white_lists.py",
        "            if name not in kind and value[name] is not None and not (place and is_empty(value[name])):",
        "            if False:",
        ["tests/agents/test_endpoint.py::test_what_cannot_be_trained_on_is_refused_in_one_sentence_of_the_dialect"],
    ),
    Mutant(
        "results of tools are those of the next call",
        _AGENTS + "calls.py",
        '{"answers": place}',
        "{}",
        ["tests/agents/test_endpoint.py::test_results_find_their_calls_by_id"],
    ),
    Mutant(
        "recorded actions act outside of the process without consent",
        "src/hf_credit/evaluation/recorded_play.py",
        "Replayable(interaction).acts and not consent.actions",
        "False",
        ["tests/evaluation/test_recorded_play.py::test_actions_of_a_file_act_outside_of_the_process_by_consent_alone"],
    ),
    Mutant(
        "a warm-up on logs shows all messages whatever the history",
        "src/hf_credit/rollouts/environment_interaction.py",
        'if self.history != "current" or',
        "if True or",
        ["tests/evaluation/test_recorded_play.py::test_a_warm_up_reads_the_contexts_of_training_for_every_history"],
    ),
    Mutant(
        "arguments of a tool call become special tokens",
        "src/hf_credit/rollouts/special_tokens.py",
        "if isinstance(value, Mapping):",
        "if False:",
        ["tests/rollouts/test_chat.py::test_tool_calls_in_messages_have_no_special_tokens"],
    ),
    Mutant(
        "a conversation goes on whatever tools its head shows",
        "src/hf_credit/rollouts/threads.py",
        "thread is not None and thread.tools == tuple(tools)",
        "thread is not None",
        ["tests/rollouts/test_chat.py::test_a_conversation_is_continued_only_with_equal_tools"],
    ),
    Mutant(
        "a rendered history goes on from the tokens of the reply",
        "src/hf_credit/rollouts/threads.py",
        "thread is None or thread.rendered or",
        "thread is None or",
        ["tests/rollouts/test_families.py::test_a_rendered_history_has_the_arguments_of_the_template"],
    ),
    Mutant(
        "a template gets thoughts as content",
        "src/hf_credit/rollouts/templates.py",
        '{**message, "content": said.spoken, **thoughts}',
        "{**message, **thoughts}",
        ["tests/rollouts/test_families.py::test_messages_that_an_agent_has_trimmed_are_rendered_as_served"],
    ),
    Mutant(
        "a reply is as long as the sampler likes",
        "src/hf_credit/rollouts/walk.py",
        "if max_tokens is not None and len(reply.ids) > max_tokens:",
        "if False:",
        ["tests/rollouts/test_engine.py::test_a_reply_longer_than_max_tokens_is_cut_to_its_first_tokens"],
    ),
    Mutant(
        "a simultaneous decision's thread leaks into replay",
        "src/hf_credit/rollouts/replay.py",
        " if not one.in_step_of(decision)",
        "",
        ["tests/rollouts/test_replay.py::test_simultaneous_decisions_are_not_in_the_past_of_a_replay"],
    ),
    Mutant(
        "steps are told apart by their states, which may be one object or have been read apart",
        "src/hf_credit/rollouts/episode.py",
        "if self.step is None or other.step is None:",
        "if True:",
        [
            "tests/rollouts/test_engine.py::test_steps_are_counted_also_if_the_state_is_always_the_same_object",
            "tests/rollouts/test_engine.py::test_simultaneous_decisions_are_known_after_their_states_were_serialised",
        ],
    ),
    Mutant(
        "a metric is of the process that recorded it",
        "src/hf_credit/trainers/method_context.py",
        "everyone = self.gather([(self.kept, self.totals, None if latest is None else in_one_line(latest))])",
        "everyone = [(self.kept, self.totals, None if latest is None else in_one_line(latest))]",
        ["tests/trainers/test_method_context.py::test_a_metric_covers_all_processes_even_if_only_one_recorded_it"],
    ),
    Mutant(
        "a replay counts its steps from 0",
        "src/hf_credit/rollouts/engine.py",
        "walk.start.step + ",
        "",
        ["tests/rollouts/test_engine.py::test_a_replay_continues_the_count_of_steps"],
    ),
    Mutant(
        "simultaneous roles share random numbers",
        "src/hf_credit/rollouts/walk.py",
        "spoken, event, ",
        "spoken, ",
        ["tests/rollouts/test_engine.py::test_simultaneous_roles_have_different_random_numbers"],
    ),
    Mutant(
        "EMPTY takes one of 64 symbols",
        "src/hf_credit/diagnostics/influence.py",
        "for symbol in own if symbol != EMPTY)",
        "for symbol in own)",
        ["tests/diagnostics/test_influence.py::test_empty_does_not_count_in_the_vocabulary"],
    ),
    Mutant(
        "an order of mini-batches that never changes",
        "src/hf_credit/critics/critic.py",
        " + 1_000_003 * self.fits",
        "",
        ["tests/critics/test_critic.py::test_the_order_of_sequences_differs_between_fits"],
    ),
    Mutant(
        "intervals of a few seeds as if their spread was known",
        "src/hf_credit/evaluation/statistics.py",
        "law.ppf((1 + confidence) / 2, freedom)",
        "law.ppf((1 + confidence) / 2, 1e9)",
        ["tests/evaluation/test_statistics.py::test_95_of_100_intervals_of_a_few_seeds_hold_the_true_mean[5-normal]"],
    ),
    Mutant(
        "failed episodes credited by values of rollouts",
        "src/hf_credit/collectors/forks.py",
        "        None\n        if episode.ending == Ending.ERROR\n        else ",
        "        ",
        [_TEST_VPR + "test_an_episode_that_failed_has_no_monte_carlo_reward"],
    ),
    Mutant(
        "one context an event",
        "src/hf_credit/collectors/forks.py",
        "visited.setdefault((decision.event, decision.context_ids), (episode, turn))",
        "visited.setdefault((decision.event, ()), (episode, turn))",
        ["tests/collectors/test_forks.py::test_each_context_is_drawn_once_however_many_there_are_of_its_event"],
    ),
    Mutant(
        "the same context drawn in every update",
        "src/hf_credit/rollouts/method_context.py",
        "stream(self.seed, head, self.update, self.process, *rest)",
        "stream(self.seed, head, self.process, *rest)",
        ["tests/collectors/test_forks.py::test_each_update_and_each_instance_draws_contexts_of_its_own"],
    ),
    Mutant(
        "instances share random numbers",
        "src/hf_credit/collectors/base.py",
        'context.stream("instance", instance)',
        'context.stream("instance")',
        ["tests/trainers/test_replay_loo.py::test_alternatives_can_be_continued_with_common_random_numbers"],
    ),
    Mutant(
        "copies of an alternative share random numbers",
        "src/hf_credit/rollouts/walk.py",
        'again = ("again", self.again) if self.again else ()',
        "again = ()",
        ["tests/rollouts/test_engine.py::test_alternatives_with_equal_replies_have_different_random_numbers"],
    ),
    Mutant(
        "no lower clip of returns",
        "src/hf_credit/rollouts/buckets.py",
        "outcome = max(-return_clip, min(return_clip, episode.outcome))",
        "outcome = min(return_clip, episode.outcome)",
        ["tests/methods/test_replay_loo.py::test_each_return_is_clipped_before_it_is_averaged"],
    ),
    Mutant(
        "leaves averaged as if all branches split alike",
        "src/hf_credit/rollouts/buckets.py",
        "mean_outcome=_value([(episodes[row].branch, outcome) for row, outcome in leaves[node]])",
        "mean_outcome=fmean([outcome for _, outcome in leaves[node]])",
        ["tests/rollouts/test_buckets.py::test_a_branch_with_more_forks_has_no_more_weight"],
    ),
    Mutant(
        "what follows a decision taken into its baseline",
        "src/hf_credit/credit/leave_one_out.py",
        "yield members, same.flatten(start_dim=2).any(dim=2)",
        "yield members, torch.eye(len(members), dtype=torch.bool)",
        ["tests/methods/test_baselines.py::test_replay_loo_has_the_exact_gradient_in_a_world_with_one_context"],
    ),
    Mutant(
        "rewards of turns counted again in the outcome",
        "src/hf_credit/methods/groups.py",
        'return outcomes - counted.sum(dim=1) if self.turn_scores == "reward" else outcomes',
        "return outcomes",
        ["tests/methods/test_mt_grpo.py::test_a_reward_counts_once_in_the_turn_and_not_again_in_the_outcome"],
    ),
    Mutant(
        "samples for comparison counted as trained",
        "src/hf_credit/collectors/base.py",
        "for rollout in self.rollouts if rollout.trained)",
        "for rollout in self.rollouts)",
        ["tests/collectors/test_base.py::test_only_trained_samples_are_credited"],
    ),
    Mutant(
        "the Hub takes a commit upon an old head",
        f"{_SERVER}history.py",
        "if head is None or not head.startswith(parent):",
        "if head is None:",
        [f"{_TEST_SERVER}test_faults.py::test_of_two_commits_on_one_head_one_wins_and_one_is_refused"],
    ),
    Mutant(
        "the Hub takes files that are one where case does not count",
        f"{_SERVER}limits.py",
        'key = unicodedata.normalize("NFC", path).casefold()',
        "key = path",
        [f"{_TEST_SERVER}test_names.py::test_files_that_some_system_cannot_distinguish_are_refused"],
    ),
    Mutant(
        "the Hub takes files of another .git",
        f"{_SERVER}limits.py",
        'if seen.rstrip(" .").casefold() in (".git", "git~1"):',
        'if seen in (".git", "git~1"):',
        [f"{_TEST_SERVER}test_names.py::test_a_path_that_a_system_could_read_as_another_is_refused"],
    ),
    Mutant(
        "the Hub shows private repositories to everybody",
        f"{_SERVER}calls.py",
        "if row is None or not self.may_read(row):",
        "if row is None:",
        [f"{_TEST_SERVER}test_rights.py::test_a_private_repository_seems_missing_to_callers_without_the_right"],
    ),
    Mutant(
        "the Hub gives a large file to whoever knows its hash",
        f"{_SERVER}commits.py",
        '"SELECT size FROM lfs WHERE repo = ? AND sha256 = ?", repo.key, sha256',
        '"SELECT size FROM lfs WHERE sha256 = ?", sha256',
        [f"{_TEST_SERVER}test_rights.py::test_nobody_commits_a_large_file_by_its_hash_alone"],
    ),
    Mutant(
        "the Hub's links hold for as long as their holder says",
        f"{_SERVER}auth.py",
        'f"{expires} {what}".encode()',
        "what.encode()",
        [f"{_TEST_SERVER}test_rights.py::test_a_changed_link_is_refused"],
    ),
    Mutant(
        "the Hub sweeps objects of uploads under way",
        f"{_SERVER}objects.py",
        "if SHA256.fullmatch(path.name) and path.name not in used and path.stat().st_mtime < oldest:",
        "if SHA256.fullmatch(path.name) and path.name not in used:",
        [f"{_TEST_SERVER}test_upkeep.py::test_what_no_commit_has_goes_after_a_day"],
    ),
    Mutant(
        "the Hub sorts folders as files",
        f"{_SERVER}objects.py",
        'entries.append((f"{name}/".encode(), ',
        "entries.append((name.encode(), ",
        [f"{_TEST_SERVER}test_objects.py::test_files_folders_and_commits_have_the_ids_that_git_gives_them"],
    ),
    Mutant(
        "the Hub merges over what main changed since",
        f"{_SERVER}discussions.py",
        "if here.get(path) not in (before.get(path), after.get(path)):",
        "if False:",
        [f"{_TEST_SERVER}test_discussions.py::test_a_proposal_against_what_main_changed_since_conflicts"],
    ),
    Mutant(
        "the Hub hands the user's tokens to a Space",
        f"{_SERVER}run_space.py",
        "for name in _KEPT if name in os.environ",
        "for name in os.environ",
        [f"{_TEST_SERVER}test_upkeep.py::test_a_space_runs_by_consent_with_its_secrets_and_without_the_users_token"],
    ),
    Mutant(
        "an episode of a world that does not repeat itself goes on in the session of another",
        "src/hf_credit/environments/replayed.py",
        "self.actions, self.walk",
        'self.actions, ""',
        [
            "tests/hub/openenv/test_openenv_interaction.py::"
            "test_episodes_of_one_seed_are_each_their_own_where_it_does_not_repeat_itself"
        ],
    ),
    Mutant(
        "a server is believed that it goes on from a state",
        "src/hf_credit/environments/openenv_world.py",
        "set_state and self._is_restored()",
        "set_state",
        [
            "tests/hub/openenv/test_openenv_interaction.py::"
            "test_a_server_that_drops_the_state_it_is_given_is_not_believed"
        ],
    ),
    Mutant(
        "a judge that fails takes the place of an episode's own failure",
        "src/hf_credit/rollouts/verification.py",
        "return partial if failed else replace(",
        "return replace(",
        ["tests/rollouts/test_verification.py::test_an_episode_that_ended_in_an_error_keeps_it"],
    ),
    Mutant(
        "what T3's preset says of its rule does not reach it",
        "src/hf_credit/trainers/truncated_ppo.py",
        'parts["truncation"]["options"] |= {',
        'parts["truncation"]["options"] | {',
        ["tests/trainers/test_truncated_ppo.py::test_invalid_settings_are_refused_in_one_sentence"],
    ),
    Mutant(
        "an update weighs costs by the multipliers that it makes",
        "src/hf_credit/methods/cvt/method.py",
        "multipliers.weights(means)",
        "multipliers.updated(means).weights(means)",
        [f"{_TEST_CVT}test_costs_have_separate_advantages_and_multipliers_change_after_use"],
    ),
    Mutant(
        "a step's own tokens are in its continuation ratio",
        "src/hf_credit/methods/cvt/contributions.py",
        "decisions[step.turn + 1 :]",
        "decisions[step.turn :]",
        [f"{_TEST_CVT}test_nothing_follows_the_last_step_so_its_ratio_is_one"],
    ),
    Mutant(
        "CVT-RL's costs that are still to come are not discounted",
        "src/hf_credit/methods/cvt/method.py",
        "cost_advantages(*tables[name], gamma=self.gamma)",
        "cost_advantages(*tables[name], gamma=1.0)",
        [f"{_TEST_CVT}test_costs_are_discounted_in_means_and_advantages"],
    ),
    Mutant(
        "CVT-RL's mean costs are not discounted",
        "src/hf_credit/methods/cvt/method.py",
        "discount = self.gamma **",
        "discount = 1.0 **",
        [f"{_TEST_CVT}test_costs_are_discounted_in_means_and_advantages"],
    ),
    Mutant(
        "CVT-RL's ratios of single decisions are not clipped",
        "src/hf_credit/methods/cvt/contributions.py",
        "min(max(value, self.ratio_low), self.ratio_high) for value in own",
        "value for value in own",
        [f"{_TEST_CVT}test_sequential_corrections_clip_the_ratio_of_each_decision"],
    ),
    Mutant(
        "CVT-RL's outcome model learns what another policy came to",
        "src/hf_credit/methods/cvt/drawn_steps.py",
        "[*outcomes, y] if _on_policy(own) else outcomes",
        "[*outcomes, y]",
        [f"{_TEST_CVT}test_the_outcome_model_learns_outcomes_of_the_copy_and_not_of_another_policy"],
    ),
    Mutant(
        "CVT-RL's paraphrases tell nothing of the step itself",
        "src/hf_credit/methods/cvt/contributions.py",
        "values = self._pooled(values, steps)",
        "pass",
        [f"{_TEST_CVT}test_outcomes_of_paraphrases_count_for_the_step"],
    ),
    Mutant(
        "a family without an estimate contributes nothing in place of being left out",
        "src/hf_credit/credit/doubly_robust.py",
        "shares.sum(dim=1)",
        "weights.double().sum()",
        ["tests/credit/test_doubly_robust.py::test_families_without_an_estimate_are_left_out_of_the_mean"],
    ),
    Mutant(
        "the radius of the whole distribution is that of its top",
        "src/hf_credit/trainers/trust_region.py",
        "radii[rows] / mass",
        "radii[rows]",
        [
            "tests/trainers/test_trust_region.py::"
            "test_the_projected_policy_diverges_by_the_radius_over_the_whole_vocabulary"
        ],
    ),
    Mutant(
        "how much is interpolated is taken for a constant in the backward pass",
        "src/hf_credit/credit/interpolation.py",
        "along * centred",
        "0 * centred",
        ["tests/credit/test_interpolation.py::test_gradients_go_through_it"],
    ),
    Mutant(
        "the frozen copy is the policy",
        "src/hf_credit/trainers/frozen.py",
        "one.detach().to(dtype or one.dtype, copy=True)",
        "one.detach().to(dtype or one.dtype)",
        [
            "tests/trainers/test_constrained_counterfactual.py::"
            "test_the_frozen_copy_continues_episodes_unchanged_until_refreshed"
        ],
    ),
    Mutant(
        "a critic of probabilities says what its balanced classes add",
        "src/hf_credit/critics/critic.py",
        "torch.sigmoid(outputs - balance_log_odds(self.rate))",
        "torch.sigmoid(outputs)",
        ["tests/critics/test_critic.py::test_a_critic_with_cross_entropy_learns_the_probability_of_a_rare_event"],
    ),
    Mutant(
        "what a metric of others computes with runs without consent",
        "src/hf_credit/hub/metrics.py",
        'if name in METRICS and code[f"{name}.py"].read_bytes() == _own(name).encode():',
        "if name in METRICS:",
        ["tests/hub/test_metrics.py::test_code_of_others_needs_consent"],
    ),
    Mutant(
        "definitions are gathered in the order in which they are found",
        "src/hf_credit/metrics/standalone.py",
        "for module in order.static_order()",
        "for module in self.sources",
        ["tests/metrics/test_standalone.py::test_what_others_need_comes_first_with_its_comment_and_nothing_else"],
    ),
    Mutant(
        "what is saved of a critic of probabilities lacks how often the event occurs",
        "src/hf_credit/critics/critic.py",
        ", **{number: getattr(self, number) for number in _NUMBERS})",
        ")",
        [
            "tests/trainers/test_constrained_counterfactual.py::"
            "test_its_credit_is_diagnosed_from_its_folder_with_the_saved_critics"
        ],
    ),
    Mutant(
        "CARL's surprise is not per token",
        "src/hf_credit/collectors/forks.py",
        "-sum(tokens) / max(len(tokens), 1)",
        "-sum(tokens)",
        ["tests/collectors/test_forks.py::test_the_surprise_of_a_step_is_per_token"],
    ),
    Mutant(
        "masked replies are left out of PPO's advantages",
        "src/hf_credit/critics/inputs.py",
        "[] if decision.observed else actions",
        "actions if decision.trained else []",
        [
            "tests/methods/test_ppo.py::"
            "test_untrained_replies_do_not_change_other_credit_and_have_critic_targets[token]"
        ],
    ),
    Mutant(
        "a rule is asked before a judge has replied",
        "src/hf_credit/methods/t3/truncated.py",
        "if self._only_untrained(pending):",
        "if self._only_untrained(()):",
        ["tests/methods/test_truncated.py::test_a_rule_is_called_once_for_a_question_and_its_verdict[unknown]"],
    ),
    Mutant(
        "replies that have arrived are sampled again after a restart",
        _ASYNC + "worker.py",
        'known={Place(*reply[:4]): Known(*reply[4:]) for reply in one["known"]},',
        "known={},",
        [_ASYNC_TESTS + "test_worker.py::test_replies_that_have_arrived_are_not_sampled_twice"],
    ),
    Mutant(
        "methods with memory credit collections as they finish",
        _ASYNC + "worker.py",
        "if self.method.memory is None:",
        "if True:",
        [_ASYNC_TESTS + "test_worker.py::test_methods_with_memory_credit_in_the_order_of_the_tasks"],
    ),
    Mutant(
        "a collection carries the newest version of its replies",
        _ASYNC + "requests.py",
        "return min((self.known",
        "return max((self.known",
        [_ASYNC_TESTS + "test_worker.py::test_a_collection_carries_the_oldest_version_of_its_replies"],
    ),
    Mutant(
        "a server that was away keeps the weights it began with",
        _ASYNC + "server.py",
        "await self._loop.run_in_executor(None, self.restore)",
        "pass",
        [_ASYNC_TESTS + "test_server.py::test_a_server_that_was_away_gets_the_weights_before_anything_is_asked"],
    ),
    Mutant(
        "nobody may play while a world steps side by side",
        "src/hf_credit/rollouts/arrivals.py",
        "            with released(self.lock):\n                arrived",
        "            if True:\n                arrived",
        ["tests/rollouts/test_single_requests.py::test_slow_steps_run_in_parallel_over_all_runs_with_one_lock"],
    ),
    Mutant(
        "steps of a tree weigh by their alternatives",
        "src/hf_credit/methods/trees.py",
        "weights[parent] / alternatives[parent]",
        "1.0",
        [
            "tests/methods/test_step_weights.py::"
            "test_with_equal_steps_the_expected_gradient_of_a_tree_is_proportional_to_the_true_one[0]"
        ],
    ),
    Mutant(
        "forward passes of an update count as much as each other",
        f"{_ASYNC}loader.py",
        "share = update.trained / self.args.gradient_accumulation_steps",
        "share = collection and sum(len(one.targets) for one in update.rows[0])",
        [f"{_TEST_ASYNC}test_gradient.py::test_an_update_has_the_gradient_of_separate_rows"],
    ),
    Mutant(
        "a place that predicts another token is shared",
        _PACKING,
        "found.append(max(first - 1, 0))",
        "found.append(min(first, both - 1))",
        [f"{_TEST_ASYNC}test_packing.py::test_a_tree_as_a_reader_would_draw_it"],
    ),
    Mutant(
        "a branch sees the branch before it",
        _PACKING,
        "ends[path[own:]] = begun",
        "ends[path[own:]] = next_begun",
        [_TEST_SCORES + "test_rows_with_one_prompt_are_a_trunk_and_a_branch_for_each"],
    ),
    Mutant(
        "a segment sees tokens behind its own",
        f"{_ASYNC}attention.py",
        "mask = seen <= at",
        "mask = seen <= at + 1",
        [
            f"{_TEST_ASYNC}test_attention.py"
            "::test_a_packed_tree_gives_the_log_probabilities_and_gradients_of_separate_rows"
        ],
    ),
    Mutant(
        "every process learns all that a critic is to learn",
        f"{_ASYNC}loader.py",
        "own = self._slices(len(targets.inputs))[process]",
        "own = slice(None)",
        [f"{_TEST_ASYNC}test_critics.py::test_two_processes_agree_learn_what_one_learns_and_one_goes_on"],
    ),
    Mutant(
        "a collection without credit yet is in no checkpoint",
        f"{_ASYNC}worker.py",
        "*self._played.values(), ",
        "",
        [
            f"{_TEST_ASYNC}test_worker.py::test_a_collector_that_asks_a_critic_waits_for_the_trainer_and_ends_with_the_worker"
        ],
    ),
    Mutant(
        "a critic beside the policy reads padded rows as packed ones",
        f"{_ASYNC}trainer.py",
        'one.backbone.attention = "sdpa"',
        "pass",
        [
            f"{_TEST_ASYNC}test_critics.py::test_policy_and_critic_learn_what_they_learn_from_the_same_rollouts_synchronously"
        ],
    ),
    Mutant(
        "a collection that is too old by one is learned from",
        f"{_ASYNC}loader.py",
        "if staleness <= self.args.max_staleness:",
        "if staleness <= self.args.max_staleness + 1:",
        [f"{_TEST_ASYNC}test_trainer.py::test_a_collection_that_is_too_old_is_dropped_whole_and_counted"],
    ),
    Mutant(
        "versions of a resumed run are counted from one more",
        f"{_ASYNC}trainer.py",
        'self.model_version = state["version"] - 1',
        'self.model_version = state["version"]',
        [
            f"{_TEST_ASYNC}test_trainer.py"
            "::test_a_resumed_run_goes_on_with_the_versions_and_the_worker_of_its_checkpoint"
        ],
    ),
    Mutant(
        "weights of a transfer that broke stay",
        f"{_ASYNC}weights.py",
        "                new.remove()\n                raise",
        "                raise",
        [f"{_TEST_ASYNC}test_weights.py::test_a_transfer_that_breaks_leaves_nothing_that_a_server_would_read"],
    ),
]


def mutated(root: Path, mutant: Mutant) -> str:
    """The text of a mutant's file with the change.

    Raises:
        ValueError: what it replaces does not stand there exactly once.
    """
    text = (root / mutant.path).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(
            f"the text of a mutant must stand in its file once, got {text.count(mutant.old)} times {mutant.old!r} in "
            f"{mutant.path} for {mutant.name!r}; take another text."
        )
    return text.replace(mutant.old, mutant.new)


def _sources(root: Path) -> list[Path]:
    return [root / "src", *root.glob("packages/*/src")]


def survivors(root: Path, mutants: Iterable[Mutant]) -> list[str]:
    """Tries mutants and tells of each; the names of those that no test noticed.

    Raises:
        ValueError: a text does not stand in its file once, or the tests fail without any change.
        RuntimeError: pytest could not run the tests of a mutant.
    """
    mutants = list(mutants)
    changed = [mutated(root, mutant) for mutant in mutants]
    with tempfile.TemporaryDirectory(prefix="hf-credit-mutants-") as folder:
        copy = Path(folder)
        for source in _sources(root):
            shutil.copytree(
                source, copy / source.relative_to(root), ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        every = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"{len(every)} tests without any change", flush=True)
        if _fails(root, copy, every):
            raise ValueError("the tests of mutants must pass without any change; fix them first.")
        found = []
        for mutant, text in zip(mutants, changed, strict=True):
            path = copy / mutant.path
            whole = path.read_text(encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            killed = _fails(root, copy, mutant.tests)
            path.write_text(whole, encoding="utf-8")
            print(f"{'killed' if killed else 'SURVIVED'}: {mutant.name}", flush=True)
            if not killed:
                found.append(mutant.name)
    return found


def _fails(root: Path, copy: Path, tests: Sequence[str]) -> bool:
    """Whether one of the tests fails on the copy of the source."""
    # A file that is written twice within a second would be read from the cache of its first form.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, _sources(copy))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: a test failed; others: nothing was found, or could be imported
        raise RuntimeError(f"pytest must run the tests of a mutant, got:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.returncode == 1


def main(words: Sequence[str]) -> int:
    """1 if a mutant survived."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    left = survivors(ROOT, chosen)
    print(f"{len(chosen) - len(left)} of {len(chosen)} killed")
    return int(bool(left) or not chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
