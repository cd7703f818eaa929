"""A policy small enough for a CPU, built from a task's own text and warmed up on scripted play.

It is an ordinary transformers model and tokenizer in an ordinary folder, so that all that trains a large policy
trains this one too.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, get_cosine_schedule_with_warmup
from transformers.utils.logging import tqdm

from hf_credit.collaborations import Collaboration
from hf_credit.environments import Environment
from hf_credit.environments.randomness import stream
from hf_credit.environments.tool_calls import marked
from hf_credit.oracles import Oracle
from hf_credit.policies.scripted import Walk, recorded, walk
from hf_credit.rollouts import Chat, Decision, EnvironmentInteraction, Interaction, RolloutRequest, Row, decision_rows
from hf_credit.rollouts.batches import pad_rows
from hf_credit.rollouts.capabilities import Scripted, fingerprint
from hf_credit.rollouts.scripts import LikelyScript, OraclePlayer, Script, random_texts
from hf_credit.tasks import TASK_FILE, Sampling, TaskSpec
from hf_credit.validators import finite_number, whole_number

logger = logging.getLogger(__name__)

# A tag, a word with its number (C1) and what it equals (b3=2) or may equal (b3?14), a number, or one other character,
# each with the blank before it.
_UNIT = r"</?[a-z]+>| ?[A-Za-z]+[0-9]*(?:=[0-9.]|\?[0-9]+)?| ?[0-9]+(?:\.[0-9]+)?| ?[^\sA-Za-z]|\s"

_RANDOM_EPISODES = 32  # whose texts a tokenizer is built of

# An action of a board game is at most eight tokens of a micro policy, its end included, a relay's message is two; one
# that guesses eight weights and asks for two movies is twenty-nine.
MICRO_SAMPLING = Sampling(max_new_tokens=32, temperature=1.0, top_p=1.0, top_k=0)
"""How its replies are drawn, where no scripted one that it was warmed up on is longer."""

TokenShares = Mapping[int, float]
"""The tokens that may come next, each with its probability."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

TOOL_CHAT_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool.function.name }}: "
    "{{ tool.function.parameters.properties | join(', ') }}, {% endfor %}<|end|>{% endif %}"
    "{% for message in messages %}<|{{ 'user' if message.role == 'tool' else message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>"
    "{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""That of tasks with tools, of which it shows the names and those of their arguments."""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|end|>", "content": "text"},
    },
}
"""How tool calls are read in its replies, for `tokenizer.parse_response`."""


@dataclass(frozen=True, kw_only=True)
class MicroConfig:
    """How a micro policy is built.

    Attributes:
        hidden_size: width of the model.
        layers: depth of the model.
        heads: attention heads, each `2 * hidden_size / heads` wide.
        quality: how often the scripted player it imitates plays right, in [0, 1]: in an environment an oracle-valid
            action, and a drawn legal one otherwise.
        episodes: how many scripted episodes it imitates.
        epochs: how often it sees each of them.
        batch_rows: rows a step of warm-up.
        learning_rate: peak of the warm-up's cosine schedule.
        seed: of the weights, of the tasks' order and of the scripted player.
    """

    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    quality: float = 0.7
    episodes: int = 3000
    epochs: int = 1
    batch_rows: int = 32
    learning_rate: float = 4e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("hidden_size", "layers", "heads", "episodes", "epochs", "batch_rows"):
            whole_number(name, getattr(self, name), 1)
        finite_number("learning_rate", self.learning_rate, above=0)
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size must be a multiple of heads, got {self.hidden_size} and {self.heads}; "
                "take 64 and 4, say."
            )
        if not 0 <= self.quality <= 1:
            raise ValueError(f"quality must be in [0, 1], got {self.quality}; use 1 for only valid actions.")


def build_tokenizer(environment: Environment[Any], episodes: int = _RANDOM_EPISODES) -> PreTrainedTokenizerFast:
    """The `tokenizer_of` an environment's own text.

    Args:
        environment: whose instructions, observations and actions are read.
        episodes: how many randomly played episodes are read.
    """
    return tokenizer_of(random_texts(environment, episodes))


def tokenizer_of(texts: Iterable[str], tools: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer over the words, numbers and tags of `texts`, with every character of theirs behind them.

    Args:
        texts: all that is shown and replied.
        tools: whether its chat template shows tools, and its tool calls can be read.
    """
    units: dict[str, None] = {}
    characters: dict[str, None] = {}
    for text in texts:
        units.update(dict.fromkeys(re.findall(_UNIT, text)))
        characters.update(dict.fromkeys(text))
    special = ["<|pad|>", "<|end|>", "<|unknown|>", "<|system|>", "<|user|>", "<|assistant|>"]
    vocabulary = dict.fromkeys([*special, *sorted(characters), *sorted(units)])
    tokenizer = Tokenizer(
        models.WordPiece(
            {unit: index for index, unit in enumerate(vocabulary)},
            unk_token="<|unknown|>",
            continuing_subword_prefix="",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_UNIT), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        unk_token="<|unknown|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        chat_template=TOOL_CHAT_TEMPLATE if tools else CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    if tools:
        made.response_template = RESPONSE_TEMPLATE
    return made


def build_model(tokenizer: PreTrainedTokenizerFast, config: MicroConfig, context: int = 4096) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights of the chosen size, float32.

    Args:
        tokenizer: for the size of the vocabulary and the end and padding tokens.
        config: for the sizes and the seed.
        context: the longest sequence, in tokens.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=config.hidden_size,
                intermediate_size=4 * config.hidden_size,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.heads,
                head_dim=2 * config.hidden_size // config.heads,
                max_position_embeddings=context,
                # The cells of a board are a few tokens apart, and 0.02 is for models a hundred times as wide.
                rope_parameters={"rope_type": "default", "rope_theta": 100.0},
                initializer_range=config.hidden_size**-0.5,
                tie_word_embeddings=True,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
            )
        )


def warm_up(
    model: Qwen3ForCausalLM,
    rows: Sequence[Row],
    pad_token_id: int,
    config: MicroConfig,
    on_step: Callable[[int, int, float], None] | None = None,
    targets: Sequence[Sequence[TokenShares]] | None = None,
) -> None:
    """Supervised training on the action tokens of `rows`: the mean cross entropy of a batch, AdamW, cosine schedule.

    Args:
        model: trained in place.
        rows: whose loss masks say which tokens to imitate.
        pad_token_id: fills the gaps of a batch.
        config: for the epochs, the batch, the learning rate and the seed.
        on_step: told the step, the number of steps and the loss after each step.
        targets: for each row, how likely which token was in the place of each token in the loss; that token itself
            if `None`.
    """
    if targets is None:
        targets = [
            [{token: 1.0} for token, on in zip(row.completion_ids, row.loss_mask, strict=True) if on] for row in rows
        ]
    batches = [batch for epoch in range(config.epochs) for batch in _shuffled(len(rows), config, epoch)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01)
    schedule = get_cosine_schedule_with_warmup(optimizer, len(batches) // 20, len(batches))
    model.train()
    for step, batch in enumerate(batches, start=1):
        tokens = [target for index in batch for target in targets[index]]
        loss = _imitation_loss(model, pad_rows([rows[index] for index in batch], pad_token_id), tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(step, len(batches), loss.item())
    model.eval()


def token_shares(ids: Sequence[int], replies: Mapping[tuple[int, ...], float]) -> list[TokenShares]:
    """How likely which token was in the place of each token of a reply, given those before it.

    Imitating these in place of the tokens that were drawn has the same expected gradient, and none of the noise of
    the draw.

    Args:
        ids: the tokens of the reply that was given.
        replies: every reply that could have been given, `ids` among them, as tokens, with its probability.
    """
    shares: list[TokenShares] = []
    for place, token in enumerate(ids):
        following: dict[int, float] = {}
        for reply, probability in replies.items():
            following[reply[place]] = following.get(reply[place], 0.0) + probability
        total = sum(following.values())
        shares.append({one: probability / total for one, probability in following.items()})
        replies = {reply: probability for reply, probability in replies.items() if reply[place] == token}
    return shares


def init_policy(
    interaction: EnvironmentInteraction,
    oracle: Oracle[Any],
    starts: Iterable[RolloutRequest[Any]],
    output: str | Path,
    config: MicroConfig,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Path:
    """Builds a micro policy for an environment, warms it up on scripted play and saves it with a model card.

    Args:
        interaction: the environment and how it is shown; training and evaluation must show it the same way.
        oracle: who knows the valid actions that the scripted player plays.
        starts: the tasks of the scripted episodes, of the training split; the first `config.episodes` are played.
        output: the folder, which `from_pretrained` then opens.
        config: how it is built.
        on_step: as in `warm_up`.
    """
    script = OraclePlayer(interaction.environment, oracle, config.quality)
    return init_scripted_policy(interaction, script, starts, output, config, on_step)


def init_collaboration_policy(
    collaboration: Collaboration,
    player: Callable[[float], Script],
    starts: Iterable[RolloutRequest[Any]],
    output: str | Path,
    config: MicroConfig,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Path:
    """Builds a micro policy that plays all roles of a collaboration, warms it up on scripted play and saves it.

    Args:
        collaboration: who speaks when.
        player: makes the scripted player of a quality, here `config.quality`.
        starts: the tasks of the scripted episodes, each with a seed of its own, of the training split; the first
            `config.episodes` are played. The tokenizer knows the words that they show and no others.
        output: the folder, which `from_pretrained` then opens.
        config: how it is built.
        on_step: as in `warm_up`.
    """
    return init_scripted_policy(collaboration, player(config.quality), starts, output, config, on_step)


def init_scripted_policy(
    interaction: Interaction[Any],
    script: Script,
    starts: Iterable[RolloutRequest[Any]],
    output: str | Path,
    config: MicroConfig,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Path:
    """Builds a micro policy for any task, warms it up on scripted play and saves it with a model card and its task.

    Args:
        interaction: what is played; training and evaluation must show it the same way.
        script: who plays, such as `interaction.scripted_player(config.quality)`.
        starts, output, on_step: as in `init_policy`. The tokenizer knows the words of `interaction.texts`, or else
            those that scripted play shows, and no others.
        config: how it is built; its quality is only noted.
    """
    played: Iterable[RolloutRequest[Any]] = islice(starts, config.episodes)
    if on_step is None:
        played, on_step = tqdm(played, desc="scripted play", total=config.episodes), _bar("warm-up")
    walks: Iterable[Walk] = (walk(interaction, script, start) for start in played)
    texts, tools = Scripted(interaction).texts(_RANDOM_EPISODES), False
    replies: list[str] = []
    if texts is None:
        walks = list(walks)
        steps = [step for one, _ in walks for step in one]
        asked = [request for _, requests, _ in steps for request in requests]
        tools = any(request.tools for request in asked)
        shown = [str(message.get("content") or "") for request in asked for message in request.messages]
        offered = [json.dumps(list(request.tools)) for request in asked] + [marked("")] if tools else []
        replies = [reply for _, _, every in steps for reply in every]
        texts = [*shown, *offered, *replies]
    tokenizer = tokenizer_of(texts, tools)
    model = _imitate(interaction, tokenizer, script, walks, config, on_step)
    folder = _save(model, tokenizer, output, _card(interaction, config, model.num_parameters()))
    most = max([MICRO_SAMPLING.max_new_tokens, *(len(tokenizer.encode(reply)) + 1 for reply in replies)])
    try:
        TaskSpec.of(interaction, sampling=replace(MICRO_SAMPLING, max_new_tokens=most)).save(folder)
    except ValueError as error:
        logger.warning("saved the policy without %s, so name its task to evaluate it: %s", TASK_FILE, error)
    return folder


def _imitate(
    interaction: Interaction[Any],
    tokenizer: PreTrainedTokenizerFast,
    script: Script,
    walks: Iterable[Walk],
    config: MicroConfig,
    on_step: Callable[[int, int, float], None],
) -> Qwen3ForCausalLM:
    """A model that was warmed up on scripted episodes."""
    model, chat = build_model(tokenizer, config), Chat(tokenizer)
    encode = functools.cache(chat.encode)
    examples = [example for walked in walks for example in _examples(interaction, chat, encode, script, walked)]
    rows, targets = [row for row, _ in examples], [shares for _, shares in examples]
    warm_up(model, rows, tokenizer.pad_token_id, config, on_step, targets)
    return model


def _examples(
    interaction: Interaction[Any],
    chat: Chat,
    encode: Callable[[str], tuple[int, ...]],
    script: Script,
    walked: Walk,
) -> Iterator[tuple[Row, list[TokenShares]]]:
    """The rows of one scripted episode, with how likely the script was to say which token."""
    decisions, end = recorded(interaction, chat, walked).decisions, chat.tokenizer.eos_token_id
    for event in dict.fromkeys(decision.event for decision in decisions):
        own = [decision for decision in decisions if decision.event == event]  # whose rows hold them in this order
        shares = chain.from_iterable(_shares(interaction, encode, end, script, decision) for decision in own)
        for row in decision_rows(own, [1.0] * len(own)):
            yield row, list(islice(shares, sum(row.loss_mask)))


def _shares(
    interaction: Interaction[Any],
    encode: Callable[[str], tuple[int, ...]],
    end: int,
    script: Script,
    decision: Decision,
) -> list[TokenShares]:
    if not isinstance(script, LikelyScript):
        return [{token: 1.0} for token in decision.action_ids]
    (request,) = (one for one in interaction.pending(decision.state) if one.event == decision.event)
    replies = script.probabilities(decision.state, request)
    return token_shares(decision.action_ids, {(*encode(text), end): share for text, share in replies.items()})


def _bar(name: str) -> Callable[[int, int, float], None]:
    """Shows steps and loss, as bars of transformers are shown or not."""
    bars: list[Any] = []

    def on_step(step: int, steps: int, loss: float) -> None:
        if not bars:
            bars.append(tqdm(total=steps, desc=name))
        bars[0].update(1)
        bars[0].set_postfix_str(f"loss {loss:.3f}")
        if step == steps:
            bars[0].close()

    return on_step


def _save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, output: str | Path, card: str) -> Path:
    folder = Path(output)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


def _shuffled(rows: int, config: MicroConfig, epoch: int) -> list[list[int]]:
    order = list(range(rows))
    stream(config.seed, "warm-up", epoch).shuffle(order)
    return [order[first : first + config.batch_rows] for first in range(0, rows, config.batch_rows)]


def _imitation_loss(
    model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor], targets: Sequence[TokenShares]
) -> torch.Tensor:
    """The mean cross entropy of the tokens in the loss, of which `targets` has one each, row after row."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    length = batch["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=attention, logits_to_keep=length + 1).logits[:, :-1]
    logprobs = functional.log_softmax(logits[batch["tool_mask"].bool()], dim=-1)
    places = torch.tensor([place for place, target in enumerate(targets) for _ in target])
    tokens = torch.tensor([token for target in targets for token in target])
    shares = torch.tensor([share for target in targets for share in target.values()])
    return -(logprobs[places, tokens] * shares).sum() / len(targets)


def _card(interaction: Interaction[Any], config: MicroConfig, parameters: int) -> str:
    facts = [f"task: `{json.dumps(fingerprint(interaction), ensure_ascii=False)}`"]
    facts += [f"roles: {', '.join(interaction.roles)}"] if len(interaction.roles) > 1 else []
    listed = "\n".join(f"- {fact}" for fact in [*facts, f"built with: `{json.dumps(asdict(config))}`"])
    return f"""---
library_name: transformers
license: apache-2.0
tags: [hf-credit, micro-policy, {interaction.name}]
---

# A micro policy for `{interaction.name}`

{parameters:,} parameters, built from scratch by hf-credit and warmed up on scripted play. It is a starting point for
experiments in credit assignment on a CPU and knows nothing but this task.

{listed}
"""
