"""A language model from a corpus: a model of each source, and where there are several their mixture."""

from __future__ import annotations

from typing import Any

from spikehtr.decoding.corpus import Corpus
from spikehtr.decoding.kneser_ney import train_ngrams
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.mixing import mix
from spikehtr.errors import SpikeHTRError


def train_language_model(corpus: Corpus, order: int = 6, min_count: int = 1) -> LanguageModel:
    """With notes of what it was made of and of its perplexity on the validation lines, where there are any."""
    counted = [train_ngrams(source.lines, order, min_count) for source in corpus.sources]
    about: list[dict[str, Any]] = [
        {"name": source.name, "lines": len(source.lines), "characters": sum(map(len, source.lines))}
        for source in corpus.sources
    ]
    if len(counted) == 1:
        model = LanguageModel.from_ngrams(counted[0])
    else:
        if not corpus.validation:
            raise SpikeHTRError(
                f"{len(counted)} sources are weighed by validation lines, and there are none: name some with "
                "--validation TEXTS|DATA"
            )
        mixture = mix([LanguageModel.from_ngrams(ngrams) for ngrams in counted], corpus.validation)
        model = LanguageModel.from_ngrams(mixture.model)
        for source, weight in zip(about, mixture.weights, strict=True):
            source["weight"] = weight
    model.notes["sources"] = about
    if corpus.validation:
        perplexity = model.perplexity(corpus.validation)
        model.notes["validation"] = {"perplexity": perplexity, "lines": len(corpus.validation)}
    return model
