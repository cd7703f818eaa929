from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.hub.safety import find_secret
from hf_credit.redaction import is_secret_name, public, redacted, redacted_command, without_secrets

TOKEN = "hf_" + "a1B2" * 9


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "hub_token",
        "TOKEN",
        "apiKey",
        "api-key",
        "WANDB_API_KEY",
        "apikey",
        "secret",
        "password",
        "credentials",
        "Authorization",
        "proxy-authorization",
        "passphrase",
        "db_pwd",
        "auth",
        "httpAuth",
        "bearer",
        "hub_tokens",
        "GITHUB_PAT",
        "apiKeys",
        "secrets",
        "jwt",
    ],
)
def test_what_is_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "eos_token",
        "author",
        "num_tokens",
        "monkey",
        "tokenizer",
        "keys",
        "max_new_tokens",
        "PAD_TOKEN",
        "path",
        "end_tokens",
    ],
)
def test_what_only_sounds_like_it_is_none(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_left_out_wherever_they_are() -> None:
    settings = {
        "hub_token": "abc",
        "model": {"token": "abc", "dtype": "float32"},
        "nested": [{"api_key": "abc"}, (f"use {TOKEN} here",)],
        "url": "http://me:abc@host:8000/v1",
        "asked": "GET http://host/v1?seed=1&api_key=abc#top with Authorization: Bearer abc.d",
    }
    assert redacted(settings) == {
        "model": {"dtype": "float32"},
        "nested": [{}, ("use *** here",)],
        "url": "http://***@host:8000/v1",
        "asked": "GET http://host/v1?seed=1&api_key=***#top with Authorization: Bearer ***",
    }


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (["node", "a.js", "--api-key", "sk-123"], ["node", "a.js", "--api-key", "***"]),
        ("node a.js --api-key sk-123 -v", "node a.js --api-key *** -v"),
        ("node a.js --api-key 'a b' -v", "node a.js --api-key *** -v"),
        ("node a.js --api-key=sk-123 -v", "node a.js --api-key=*** -v"),
        (["env", "GITHUB_PAT=abc", "node"], ["env", "GITHUB_PAT=***", "node"]),
        ("GITHUB_PAT=abc node --token --verbose 3", "GITHUB_PAT=*** node --token --verbose 3"),
        ({"agent": ["node", ["--token", "a"]]}, {"agent": ["node", ["--token", "***"]]}),
        ("postgres://u:p@ss@h/db", "postgres://***@h/db"),
        ("https://host/@me/a?x=b@c", "https://host/@me/a?x=b@c"),
        (f"sk-{'a1' * 12} and ghp_{'a1' * 18}", "*** and ***"),
        ("sort by key=len, --seed 3, --key-size 4", "sort by key=len, --seed 3, --key-size 4"),
    ],
)
def test_secrets_are_known_by_position_and_form(value: Any, told: Any) -> None:
    assert redacted(value) == told
    assert public(value) == told


@pytest.mark.parametrize("text", ["--a" + " " * 30_000 + "-", "://" + "a" * 30_000, '--a "' * 10_000, "A=" * 30_000])
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    assert redacted(text * 3)


def test_what_is_published_names_no_folder_of_this_machine() -> None:
    about = {"model": "/home/me/runs/a", "setup": {"options": [("/data/games", "runs/b")]}, "at": "a /b"}
    told = {"model": "a", "setup": {"options": [("games", "runs/b")]}, "at": "a /b"}
    assert public(about) == told


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc /:.", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz_", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_not_secret_is_kept_as_it_is(value: Any) -> None:
    assert redacted(value) == without_secrets(value) == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hf-credit", "train", "x.yaml", "--hub_token", "abc"], "hf-credit train x.yaml --hub_token '***'"),
        (["train", "--hub-token=abc", "--eos_token", "<|end|>"], "train '--hub-token=***' --eos_token '<|end|>'"),
        (["train", "--hub_token", "--push_to_hub", "true"], "train --hub_token --push_to_hub true"),
        (["evaluate", "x", "--option", "token=abc", "-o", "size=4"], "evaluate x --option 'token=***' -o size=4"),
        (["evaluate", "x", "--option=token=abc"], "evaluate x '--option=token=***'"),
        (
            ["train", "x", "--task_options", '{"size": 4, "auth": "abc"}'],
            """train x --task_options '{"size": 4}'""",
        ),
        (
            ["play", "openenv", "-o", "url=http://host/?token=abc&seed=1"],
            "play openenv -o 'url=http://host/?token=***&seed=1'",
        ),
        (["train", "x", "--passphrase", "abc"], "train x --passphrase '***'"),
        (["train", TOKEN, "a b"], "train '***' 'a b'"),
    ],
)
def test_a_command_is_shown_without_its_secrets(words: list[str], told: str) -> None:
    assert redacted_command(words) == told


@given(st.text("ab_ -hf0\n", max_size=8), st.text("ab_ -hf0\n", max_size=8))
@pytest.mark.parametrize("secret", [TOKEN, "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----"])
def test_what_may_not_be_published_is_redacted_whatever_is_around_it(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    assert find_secret(text.encode())
    assert not find_secret(str(redacted(text)).encode())
