"""The validity gate: support by the evidence and entailment by the history."""

from __future__ import annotations

import math

import pytest

from hf_credit.methods.cvt import Gate
from hf_credit.methods.cvt.interventions import support_score, word_overlap


def test_words_are_weighted_by_inverse_document_frequency():
    evidence = "the key is 4\nthe key is 7\nno key"
    # N = 3; key is in 3 pieces, 7 in 1, gold in none.
    key, seven, gold = (math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (3, 1, 0))
    assert support_score("<action>key 7</action>", evidence) == pytest.approx(1)
    assert support_score("The key: gold.", evidence) == pytest.approx(key / (key + gold))
    assert support_score("7 GOLD gold", evidence) == pytest.approx(seven / (seven + gold))


def test_without_evidence_only_a_text_without_words_is_supported():
    assert support_score("key", "") == 0
    assert support_score("so it is", "") == 1
    assert support_score("", "key") == 1


def test_the_overlap_is_the_share_of_words_that_were_seen():
    assert word_overlap("read document 2", "So let me read 3") == pytest.approx(1 / 2)
    assert word_overlap("read document 2", "<action>read 2</action>") == 1
    assert word_overlap("", "so") == 1


def test_both_thresholds_must_be_met_and_deletions_are_not_scored():
    gate = Gate(entails=lambda history, proposal: 0.55 if proposal == "four words key 7" else 0.54)
    evidence = "key 7 words"
    assert gate.admits("paraphrase", "four words key 7", "", evidence)
    assert not gate.admits("paraphrase", "words key 7", "", evidence)
    assert not gate.admits("paraphrase", "four words key 7", "", "key 8\nkey 9\nkey 10")
    assert gate.admits("deletion", "think", "", "")
    assert not Gate(unscored=frozenset()).admits("deletion", "think", "", "")
