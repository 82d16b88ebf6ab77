"""Make a tokenizer and a Qwen3 of well under a million parameters, and train it: torch and transformers are met here.

The same text, seed, thread count, library versions and processor type give the same weights, bit by bit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from model_folder import tell

END = "<|endoftext|>"
TURN = ("<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WINDOWS, WINDOW_TOKENS = 64, 256
TELL_EVERY = 100
# Steps whose mean loss is the first and the last: one step's batch says little.
AVERAGED = 10


@dataclass(frozen=True)
class Shape:
    """The model: dimensions are multiples of 128, so that weights can be quantised in groups of 128."""

    vocabulary: int = 1024
    hidden: int = 128
    intermediate: int = 384
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    positions: int = 1024


@dataclass(frozen=True)
class Plan:
    """How it is trained: ``steps`` batches of ``batch`` windows of ``window`` tokens."""

    steps: int
    seed: int
    threads: int
    batch: int = 16
    window: int = 128
    rate: float = 3e-3
    warmup: int = 50


@dataclass(frozen=True)
class Trained:
    """What came of it. ``perplexity`` is of held-out text, ``unigram_perplexity`` that of knowing frequencies alone."""

    parameters: int
    loss_first: float
    loss_last: float
    perplexity: float
    unigram_perplexity: float
    train_s: float


def tokenizer(texts: tuple[str, ...], shape: Shape) -> Any:
    """Return a byte-level BPE tokenizer learnt from the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=[END, *TURN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=list(TURN),
        model_max_length=shape.positions,
    )
    made.chat_template = CHAT
    return made


def model(tokens: Any, shape: Shape) -> Any:
    """Return the model with random weights; needs a seeded torch."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    end = tokens.eos_token_id
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokens),
            hidden_size=shape.hidden,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.positions,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=end,
            pad_token_id=end,
        )
    )


def settle(seed: int, threads: int) -> None:
    """Fix what makes two runs differ: seeds, the number of threads, and operations that may choose their way."""
    import random

    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)


def stream(tokens: Any, texts: tuple[str, ...]) -> Any:
    """Return all texts as one tensor of token ids, each text ended by the end token."""
    import torch

    ids: list[int] = []
    for encoded in tokens(list(texts), add_special_tokens=False)["input_ids"]:
        ids += [*encoded, tokens.eos_token_id]
    return torch.tensor(ids, dtype=torch.long)


def train(network: Any, ids: Any, plan: Plan) -> list[float]:
    """Train in place; return the loss (nats for each token) of every step."""
    import torch
    from torch.nn.functional import cross_entropy

    draw = torch.Generator().manual_seed(plan.seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.1)
    network.train()
    losses, began = [], time.monotonic()
    for step in range(plan.steps):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * _share(step, plan)
        starts = torch.randint(0, len(ids) - plan.window - 1, (plan.batch,), generator=draw)
        batch = torch.stack([ids[i : i + plan.window + 1] for i in starts.tolist()])
        logits = network(batch[:, :-1]).logits
        loss = cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise ValueError(f"the loss is {losses[-1]} at step {step}")
        if (step + 1) % TELL_EVERY == 0:
            tell(f"step {step + 1}: loss {losses[-1]:.3f}, {time.monotonic() - began:.0f} s")
    return losses


def _share(step: int, plan: Plan) -> float:
    """The learning rate's share of its peak: a linear start, then a cosine down to a twentieth."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / plan.steps))
    return min(1.0, (step + 1) / plan.warmup) * (0.05 + 0.95 * cosine)


def perplexity(network: Any, ids: Any) -> float:
    """Return exp of the mean loss over the first windows of a stream, which is followed by nothing it was shown."""
    import torch
    from torch.nn.functional import cross_entropy

    network.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(0, min(WINDOWS * WINDOW_TOKENS, len(ids) - WINDOW_TOKENS), WINDOW_TOKENS):
            window = ids[start : start + WINDOW_TOKENS + 1][None]
            logits = network(window[:, :-1]).logits.float()
            total += cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
            count += window.shape[1] - 1
    return math.exp(total / count)


def unigram_perplexity(learnt: Any, shown: Any, size: int) -> float:
    """Return the perplexity of a model that knows only how frequent each token is in the training text."""
    counts = Counter(learnt.tolist())
    everything = len(learnt) + size
    window = shown[: WINDOWS * WINDOW_TOKENS].tolist()
    return math.exp(-sum(math.log((counts[t] + 1) / everything) for t in window) / len(window))


def trained(training: tuple[str, ...], held_out: tuple[str, ...], shape: Shape, plan: Plan) -> tuple[Any, Any, Trained]:
    """Return the model in bfloat16 as it is to be served, its tokenizer, and what came of the training."""
    import torch

    settle(plan.seed, plan.threads)
    began = time.monotonic()
    tokens = tokenizer(training, shape)
    learnt, shown = stream(tokens, training), stream(tokens, held_out)
    network = model(tokens, shape)
    losses = train(network, learnt, plan)
    network.to(torch.bfloat16)
    network.config.dtype = torch.bfloat16
    return (
        network,
        tokens,
        Trained(
            parameters=sum(p.numel() for p in network.parameters()),
            loss_first=_mean(losses[:AVERAGED]),
            loss_last=_mean(losses[-AVERAGED:]),
            perplexity=round(perplexity(network, shown), 4),
            unigram_perplexity=round(unigram_perplexity(learnt, shown, len(tokens)), 4),
            train_s=round(time.monotonic() - began, 2),
        ),
    )


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 4)


def described(shape: Shape, plan: Plan) -> dict[str, Any]:
    """Return shape and plan as plain values."""
    return {"shape": asdict(shape), "plan": asdict(plan)}
