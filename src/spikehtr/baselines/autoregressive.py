"""What recognisers share that spell a line character by character: a decoder over the line's tokens, trained on the
transcripts, and its greedy reading with cached keys.

What is read becomes frames as CTC has them, so that everything behind a network serves these too: a frame for each
character, whose blank is the end of the text, a sure blank between two of them, and as its place the token that the
last layer looked at most.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns
from spikehtr.baselines.htr_vt import positions
from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Output, Transcripts
from spikehtr.ops.masks import at_least_fp32, valid_mask
from spikehtr.text import BLANK

END = BLANK  # of a text: its label stands where CTC has the blank's
_SURE = 30.0  # logit of the blank between two characters
_LOOK = 8  # steps between two looks at whether every line has ended, for which the host waits


class Memory(NamedTuple):
    """What the decoder reads from: a line's tokens, row by row."""

    tokens: Tensor  # [B, rows L, d]
    inside: Tensor  # [B, rows L]


class Cache(NamedTuple):
    """What a layer keeps from character to character: keys and values, [2, B, heads, N, d / heads] each."""

    line: Tensor
    text: Tensor


class Lookup(nn.Module):
    """What queries find in values, by keys: all [B, heads, N, d / heads], mask [.., queries, keys]."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, keys: Tensor, queries: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        found: Tensor = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)
        return found


class DecoderLayer(nn.Module):
    """Attention to the characters before, to the line, and a feed-forward part, each normalised after it is added."""

    def __init__(self, dim: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.own_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.query, self.key_value, self.line_out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.own_lookup, self.line_lookup = Lookup(dropout), Lookup(dropout)
        self.feed = nn.Sequential(
            nn.Linear(dim, feed_forward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feed_forward, dim)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor, parts: int) -> Tensor:
        """[B, N, parts d] -> [parts, B, heads, N, d / heads]"""
        parted: Tensor = x.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return parted

    def line_keys(self, memory: Memory) -> Tensor:
        """Keys and values of the line: [2, B, heads, M, d / heads]"""
        keys: Tensor = self.key_value(memory.tokens)
        return self.split(keys, 2)

    def cache(self, memory: Memory, longest: int) -> Cache:
        """For texts of at most `longest` characters."""
        line = self.line_keys(memory)
        return Cache(line, line.new_zeros((*line.shape[:3], longest, line.shape[4])))

    def forward(
        self,
        x: Tensor,
        memory: Memory,
        before: Tensor,
        cache: Cache | None = None,
        place: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """x [B, U, d], `before` [U, keys] what each sees of the text -> x [B, U, d], and its queries to the line
        [B, heads, U, d / heads].

        With a cache, x is the one character at `place` [1], and its keys are put there.
        """
        line = self.line_keys(memory) if cache is None else cache.line
        q, k, v = self.split(self.qkv(x), 3)
        if cache is not None and place is not None:
            cache.text.index_copy_(3, place, torch.stack([k, v]))
            k, v = cache.text
        found = self.own_lookup(k, q, v, before)
        x = self.norms[0](x + self.dropout(self.own_out(found.transpose(1, 2).flatten(2))))
        queries = self.split(self.query(x), 1)[0]
        found = self.line_lookup(line[0], queries, line[1], memory.inside[:, None, None])
        x = self.norms[1](x + self.dropout(self.line_out(found.transpose(1, 2).flatten(2))))
        x = self.norms[2](x + self.dropout(self.feed(x)))
        return x, queries


class Spelled(NamedTuple):
    """What greedy reading gave."""

    logits: Tensor  # [B, N, V] of each step, fp32 at least
    places: Tensor  # [B, N], the token of the line that it looked at most, of all rows
    counts: Tensor  # [B], characters of each line


class CharacterDecoder(nn.Module):
    def __init__(
        self,
        dim: int,
        vocab_size: int,
        layers: int,
        heads: int,
        feed_forward: int,
        dropout: float,
        window: int | None = None,
        recurrent: bool = False,
    ) -> None:
        """`window`: characters that self-attention looks back on, itself included. `recurrent`: an LSTM before the
        head, and a ReLU after it."""
        super().__init__()
        self.dim, self.window = dim, window
        self.embedding = nn.Embedding(vocab_size, dim)
        self.start = nn.Parameter(torch.randn(dim))
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, feed_forward, dropout) for _ in range(layers))
        self.lstm = nn.LSTM(dim, dim, batch_first=True) if recurrent else None
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(dim, vocab_size)

    def teach(self, memory: Memory, text: Transcripts, noise: float) -> Tensor:
        """Logits of each character from those before it, and of the end: [B, U + 1, V]. `noise`: the share of the
        characters before that are others than they were."""
        shown = text.labels
        if noise:
            wrong = torch.rand(shown.shape, device=shown.device) < noise
            shown = torch.where(wrong, torch.randint_like(shown, self.embedding.num_embeddings), shown)
        begin = self.start.expand(len(shown), 1, -1)
        x = torch.cat([begin, self.embedding(shown)], dim=1)
        size = x.shape[1]
        x = x + positions(size, self.dim, x.device).to(x.dtype)
        place = torch.arange(size, device=x.device)
        before = self.seen(place, place)
        for layer in self.layers:
            x, _ = layer(x, memory, before)
        if self.lstm is not None:
            x = self.lstm(x)[0].relu()
        logits: Tensor = self.head(self.dropout(x))
        return logits

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]

    def seen(self, place: Tensor, others: Tensor) -> Tensor:
        """Which of the other places each place sees: [U, N]"""
        apart = place[:, None] - others
        return (apart >= 0) & (apart < self.window) if self.window else apart >= 0

    def spell(self, memory: Memory, most: Tensor, longest: int) -> Spelled:
        """The likeliest character after those before, until the end: `most` [B], characters a line may have, of which
        no line has more than `longest`."""
        lines, device = len(most), most.device
        caches = [layer.cache(memory, longest) for layer in self.decoder_layers]
        others = torch.arange(longest, device=device)
        table = positions(longest, self.dim, device)
        state: tuple[Tensor, Tensor] | None = None
        shown, ended = self.start.expand(lines, -1), most < 1
        counts = torch.zeros_like(most)
        logits, places = [], []
        for step in range(longest):
            place = others[step : step + 1]
            x = shown[:, None] + table[step].to(shown.dtype)
            before = self.seen(place, others)
            queries = x
            for layer, cache in zip(self.layers, caches, strict=True):
                x, queries = layer(x, memory, before, cache, place)
            if self.lstm is not None:
                x, state = self.lstm(x, state)
                x = x.relu()
            said = at_least_fp32(self.head(x)[:, 0])
            logits.append(said)
            places.append(_looked_at(queries, caches[-1].line[0], memory.inside))
            label = said.argmax(-1)
            ended = ended | (label == END)
            counts = counts + ~ended
            ended = ended | (counts >= most)
            if step % _LOOK == _LOOK - 1 and bool(ended.all()):
                break
            shown = self.embedding(label)
        return Spelled(torch.stack(logits, 1), torch.stack(places, 1), counts)


def _looked_at(queries: Tensor, keys: Tensor, inside: Tensor) -> Tensor:
    """The place that one query [B, heads, 1, d] looks at most, over all heads, among keys [B, heads, M, d]: [B]"""
    scores = at_least_fp32(queries @ keys.transpose(-1, -2)) * queries.shape[-1] ** -0.5
    shares: Tensor = scores.masked_fill(~inside[:, None, None], float("-inf")).softmax(-1).mean(1)[:, 0]  # [B, M]
    return shares.argmax(-1)


class Autoregressive(Baseline):
    """`features` makes tokens of a line, `memory` what the decoder reads from."""

    per_label = ("decoder.embedding.weight", "decoder.head.weight", "decoder.head.bias")
    reads_transcripts = autoregressive = True
    shortcut = None
    decoder: CharacterDecoder

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)

    @abstractmethod
    def memory(self, tokens: Tensor, lengths: Tensor) -> Memory:
        """[B, L, d], [B] -> Memory"""

    def pass_over(
        self, ink: Tensor, own: Columns, whole: Tensor, min_lengths: Tensor | None, transcripts: Transcripts | None
    ) -> Output:
        tokens = self.features(ink, own)
        if not self.training:
            return self.frames(tokens, whole)
        if transcripts is None:
            raise SpikeHTRError(f"{self.config.arch} learns from transcripts: give them in training")
        c = self.config.baseline
        logits = self.decoder.teach(self.memory(tokens, whole), transcripts, c.teacher_noise)
        costs = spelling_costs(logits, transcripts, c.label_smoothing)
        spans = transcripts.labels.new_zeros((*logits.shape[:2], 2))
        return Output(logits, transcripts.lengths + 1, None, spans, torch.ones_like(costs), costs)

    def frames(self, tokens: Tensor, lengths: Tensor) -> Output:
        """What is read in the tokens [B, L, d] of lines, as CTC would have said it."""
        size = tokens.shape[1]
        characters = self.stride // self.config.character_width  # a token, at most
        spelled = self.decoder.spell(self.memory(tokens, lengths), characters * lengths, characters * size)
        blank = F.one_hot(torch.tensor(BLANK, device=tokens.device), self.vocab_size).to(spelled.logits.dtype) * _SURE
        logits = torch.stack([spelled.logits, blank.expand_as(spelled.logits)], dim=2).flatten(1, 2)
        count = (2 * spelled.counts - 1).clamp(min=1)  # of nothing, one frame: the end
        place = (spelled.places % size).cummax(1).values.repeat_interleave(2, dim=1)  # of the column; never back
        spans = torch.stack([place, place + 1], dim=-1) * valid_mask(count, place.shape[1])[..., None]
        return Output(logits, count, None, spans, torch.ones_like(lengths, dtype=logits.dtype))

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.frames(tokens, lengths).logits


def spelling_costs(logits: Tensor, text: Transcripts, smoothing: float) -> Tensor:
    """Mean cross entropy of a line's characters and its end: logits [B, U + 1, V] -> [B]"""
    size = logits.shape[1]
    wanted = F.pad(text.labels * valid_mask(text.lengths, size - 1), (0, 1), value=END)  # [B, U + 1]
    costs = F.cross_entropy(
        at_least_fp32(logits).flatten(0, 1), wanted.flatten(), reduction="none", label_smoothing=smoothing
    )
    costs = costs.view_as(wanted) * valid_mask(text.lengths + 1, size)
    return costs.sum(1) / (text.lengths + 1)
