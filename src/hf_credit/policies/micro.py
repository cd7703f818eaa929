"""Micro policies: small enough for a CPU, built from the text of a task and warmed up on scripted play.

A micro policy is an ordinary transformers model and tokenizer in a folder, and is trained like a large policy.
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

# A tag, a word with its number (C1) and its value (b3=2) or candidates (b3?14), a number, or one other character,
# each with the space before it.
_UNIT = r"</?[a-z]+>| ?[A-Za-z]+[0-9]*(?:=[0-9.]|\?[0-9]+)?| ?[0-9]+(?:\.[0-9]+)?| ?[^\sA-Za-z]|\s"

_RANDOM_EPISODES = 32  # their texts define the vocabulary

# In tokens of a micro policy, with the end token, an action of a board game has at most 8, a relay's message 2, and an
# action that guesses eight weights and asks for two movies 29.
MICRO_SAMPLING = Sampling(max_new_tokens=32, temperature=1.0, top_p=1.0, top_k=0)
"""Its sampling parameters, unless a scripted reply of the warm-up is longer."""

TokenShares = Mapping[int, float]
"""The probability of each possible next token."""

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
"""The chat template of tasks with tools. It shows the names of tools and of their arguments."""

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
"""The format of tool calls in its replies, for `tokenizer.parse_response`."""


@dataclass(frozen=True, kw_only=True)
class MicroConfig:
    """The size and warm-up of a micro policy.

    Attributes:
        hidden_size: width of the model.
        layers: number of layers.
        heads: number of attention heads, each `2 * hidden_size / heads` wide.
        quality: probability in [0, 1] that the imitated player plays well: in an environment an oracle-valid action,
            and otherwise a random legal one.
        episodes: number of scripted episodes to imitate.
        epochs: passes over them.
        batch_rows: rows per step of the warm-up.
        learning_rate: maximum of the warm-up's cosine schedule.
        seed: of the weights, of the tasks' order and of the scripted player.

    Raises:
        ValueError: a number is out of range, or `hidden_size` is not a multiple of `heads`.
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
                "use 64 and 4, for example."
            )
        if not 0 <= self.quality <= 1:
            raise ValueError(f"quality must be in [0, 1], got {self.quality}; use 1 for only valid actions.")


def build_tokenizer(environment: Environment[Any], episodes: int = _RANDOM_EPISODES) -> PreTrainedTokenizerFast:
    """`tokenizer_of` the instructions, observations and actions of an environment.

    Args:
        environment: the environment.
        episodes: number of random episodes from which the texts are taken.
    """
    return tokenizer_of(random_texts(environment, episodes))


def tokenizer_of(texts: Iterable[str], tools: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary is the words, numbers, tags and single characters of `texts`.

    Args:
        texts: contexts and replies of the task.
        tools: whether to use `TOOL_CHAT_TEMPLATE` and `RESPONSE_TEMPLATE`.
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
    """A Qwen3 model with random weights in float32.

    Args:
        tokenizer: for the vocabulary and the end and padding tokens.
        config: the sizes and the seed.
        context: maximum length of a sequence in tokens.
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
                rope_parameters={"rope_type": "default", "rope_theta": 100.0},  # the cells of a board are a few apart
                initializer_range=config.hidden_size**-0.5,  # the default 0.02 is for much wider models
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
        rows: their loss masks select the tokens to imitate.
        pad_token_id: for padding.
        config: the epochs, the batch, the learning rate and the seed.
        on_step: called after each step with its number, the number of steps and the loss.
        targets: for each row, the target distribution of each token in the loss; the token itself if `None`.
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
    """The distribution of each token of a sampled reply, given the tokens before it.

    Imitating these distributions has the same expected gradient as imitating the sampled tokens, without the variance
    of sampling.

    Args:
        ids: the tokens of the sampled reply.
        replies: the probability of every possible reply, as tokens; `ids` is one of them.
    """
    shares: list[TokenShares] = []
    for place, token in enumerate(ids):
        following: dict[int, float] = {}
        for reply, probability in replies.items():
            following[reply[place]] = following.get(reply[place], 0.0) + probability
        total = sum(following.values())
        shares.append({candidate: probability / total for candidate, probability in following.items()})
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
        interaction: the environment and the format of its prompts, which training and evaluation must share.
        oracle: judges which actions are valid, for the scripted player.
        starts: the tasks of the scripted episodes, of the training split; the first `config.episodes` are played.
        output: the folder to write, for `from_pretrained`.
        config: the sizes and the warm-up.
        on_step: as in `warm_up`; shows progress bars if `None`.
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
    """Builds a micro policy for all roles of a collaboration, warms it up on scripted play and saves it.

    Args:
        collaboration: the collaboration.
        player: returns a scripted player of a quality; called with `config.quality`.
        starts: the tasks of the scripted episodes, of the training split, with distinct seeds; the first
            `config.episodes` are played. The vocabulary is that of their texts.
        output, config, on_step: as in `init_policy`.
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
        interaction: the task and the format of its prompts, which training and evaluation must share.
        script: the scripted player, such as `interaction.scripted_player(config.quality)`.
        starts, output, on_step: as in `init_policy`. The vocabulary is that of `interaction.texts`, or else of the
            scripted episodes.
        config: the sizes and the warm-up; its quality is only recorded in the model card.
    """
    played: Iterable[RolloutRequest[Any]] = islice(starts, config.episodes)
    if on_step is None:
        played, on_step = tqdm(played, desc="scripted play", total=config.episodes), _bar("warm-up")
    walks: Iterable[Walk] = (walk(interaction, script, start) for start in played)
    texts, tools = Scripted(interaction).texts(_RANDOM_EPISODES), False
    replies: list[str] = []
    if texts is None:
        walks = list(walks)
        steps = [step for steps, _ in walks for step in steps]
        requests = [request for _, requests, _ in steps for request in requests]
        tools = any(request.tools for request in requests)
        shown = [str(message.get("content") or "") for request in requests for message in request.messages]
        offered = [json.dumps(list(request.tools)) for request in requests] + [marked("")] if tools else []
        replies = [reply for _, _, replies in steps for reply in replies]
        texts = [*shown, *offered, *replies]
    tokenizer = tokenizer_of(texts, tools)
    model = _imitate(interaction, tokenizer, script, walks, config, on_step)
    folder = _save(model, tokenizer, output, _card(interaction, config, model.num_parameters()))
    longest = max([MICRO_SAMPLING.max_new_tokens, *(len(tokenizer.encode(reply)) + 1 for reply in replies)])
    try:
        TaskSpec.of(interaction, sampling=replace(MICRO_SAMPLING, max_new_tokens=longest)).save(folder)
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
    """A model warmed up on scripted episodes."""
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
    """The rows of one scripted episode, with the script's distribution of each token in the loss."""
    decisions, end = recorded(interaction, chat, walked).decisions, chat.tokenizer.eos_token_id
    for event in dict.fromkeys(decision.event for decision in decisions):
        of_event = [decision for decision in decisions if decision.event == event]  # the order of tokens in the rows
        shares = chain.from_iterable(_shares(interaction, encode, end, script, decision) for decision in of_event)
        for row in decision_rows(of_event, [1.0] * len(of_event)):
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
    (request,) = (request for request in interaction.pending(decision.state) if request.event == decision.event)
    replies = script.probabilities(decision.state, request)
    return token_shares(decision.action_ids, {(*encode(text), end): share for text, share in replies.items()})


def _bar(name: str) -> Callable[[int, int, float], None]:
    """A progress bar of steps with the loss, shown if transformers' progress bars are."""
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
    """The mean cross entropy of the tokens in the loss, with their `targets` in order."""
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
