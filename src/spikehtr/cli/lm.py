"""`spikehtr lm`: language models of characters: train, show, tune, from-arpa, to-arpa."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from spikehtr.cli.options import writable
from spikehtr.cli.progress import counting

if TYPE_CHECKING:
    from spikehtr.decoding.corpus import Corpus

app = typer.Typer(help="Language models of characters, which help reading (--lm).", no_args_is_help=True)

LMFile = Annotated[Path, typer.Argument(metavar="LM", help="A language model (.safetensors).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command()
def train(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXTS|DATA...",
            help="Text files (.txt, .txt.gz) or handwriting data of any format, whose training lines are taken.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, e.g. lm.safetensors.")],
    order: Annotated[int, typer.Option("--order", min=1, max=8, help="Characters an n-gram has at most.")] = 6,
    min_count: Annotated[
        int,
        typer.Option("--min-count", min=1, help="Leave out n-grams of 4 and more characters that are rarer than this."),
    ] = 1,
    words: Annotated[
        Optional[list[Path]],
        typer.Option("--words", help="A list of words, one a line, that may well occur; others may, too. Repeatable."),
    ] = None,
    validation: Annotated[
        Optional[list[str]],
        typer.Option(
            "--validation",
            help="Text files or data whose validation lines weigh the sources and give the perplexity. Repeatable. "
            "(default: the validation lines of DATA)",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the n-grams of texts (interpolated modified Kneser-Ney).

    Transcriptions of the same kind of documents help most, those the network was trained on first. Of data with splits
    only the lines marked `train` are taken, never test lines. All DATA make one source; with text files or word lists
    beside it each is a source of its own, and they are mixed with the weights that make the validation lines likeliest.
    """
    writable(output)
    from spikehtr.decoding.corpus import read_corpus
    from spikehtr.decoding.training import train_language_model

    corpus = read_corpus(sources, words or [], validation or [], lambda message: typer.echo(message, err=True))
    _tell(corpus)
    model = train_language_model(corpus, order, min_count)
    model.save(output)
    _show(output, as_json)


@app.command()
def show(file: LMFile, as_json: AsJson = False) -> None:
    """What a language model is made of."""
    _show(file, as_json)


@app.command("from-arpa")
def from_arpa(
    file: Annotated[Path, typer.Argument(metavar="ARPA", help="A model of characters (.arpa, .arpa.gz).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write, e.g. lm.safetensors.")],
    space: Annotated[
        Optional[str],
        typer.Option("--space", help="What stands for the space. (default: <space> and other usual ones)"),
    ] = None,
) -> None:
    """Make a language model of an ARPA file, such as KenLM, SRILM and PyLaia have."""
    writable(output)
    from spikehtr.decoding.arpa import read_arpa

    with counting(f"reading {file}"):
        model = read_arpa(file, space)
    model.save(output)
    _show(output, False)


@app.command("to-arpa")
def to_arpa(
    file: LMFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write (.arpa, .arpa.gz).")],
) -> None:
    """Write a language model as an ARPA file, for other programs."""
    writable(output)
    from spikehtr.decoding.arpa import write_arpa
    from spikehtr.decoding.language_model import LanguageModel

    write_arpa(LanguageModel.load(file), output)
    typer.echo(str(output))


def _tell(corpus: Corpus) -> None:
    for source in corpus.sources:
        count = sum(map(len, source.lines))
        typer.echo(f"{source.name}: {len(source.lines)} lines, {count} characters", err=True)


def _show(file: Path, as_json: bool) -> None:
    from spikehtr.decoding.language_model import LanguageModel

    model = LanguageModel.load(file)
    facts: dict[str, Any] = {
        "file": str(file),
        "order": model.order,
        "characters": len(model.vocabulary.characters),
        "ngrams": model.arcs,
        "states": model.states,
        "bytes": file.stat().st_size,
        **model.notes,
    }
    if as_json:
        typer.echo(json.dumps(facts | {"alphabet": "".join(model.vocabulary.characters)}, indent=2, ensure_ascii=False))
        return
    typer.echo(
        f"{file}: order {model.order}, {facts['characters']} characters, {model.arcs} n-grams, "
        f"{facts['bytes'] / 1e6:.1f} MB"
    )
    for source in model.notes.get("sources", []):
        parts = [f"{source[name]} {name}" for name in ("lines", "characters") if name in source]
        parts += [f"weight {source['weight']:.3f}"] if "weight" in source else []
        typer.echo(f"  {source['name']}: {', '.join(parts)}")
    if validated := model.notes.get("validation"):
        typer.echo(f"  perplexity {validated['perplexity']:.3f} a character on {validated['lines']} validation lines")
    if tuned := model.notes.get("tuned"):
        typer.echo(f"  tuned for {tuned['model']}: weight {tuned['weight']:g}, bonus {tuned['bonus']:g}")
    typer.echo(f"  alphabet: {''.join(model.vocabulary.characters)!r}")
