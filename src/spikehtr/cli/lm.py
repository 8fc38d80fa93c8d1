"""`spikehtr lm`: language models of characters: train, show, tune, from-arpa, to-arpa."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from spikehtr.cli.options import AsJson, Device, print_json, writable
from spikehtr.cli.progress import counting

if TYPE_CHECKING:
    from spikehtr.decoding.corpus import Corpus

app = typer.Typer(help="Language models of characters, which help reading (--lm).", no_args_is_help=True)

LMFile = Annotated[Path, typer.Argument(metavar="LM", help="A language model (.safetensors).")]
KnownLM = Annotated[
    Path, typer.Argument(metavar="LM", help="A language model (.safetensors; bundled: the one that comes along).")
]


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
def show(file: KnownLM, as_json: AsJson = False) -> None:
    """What a language model is made of."""
    _show(file, as_json)


@app.command()
def tune(
    file: LMFile,
    data: Annotated[
        list[str], typer.Option("--data", "-d", help="Whose validation lines to tune on, any format. Repeatable.")
    ],
    model: Annotated[Path, typer.Option("--model", "-m", help="The network it is to help (.safetensors).")] = Path(
        "bundled"
    ),
    device: Device = "auto",
) -> None:
    """Find out what a language model should count beside a network, and note it in the language model's file.

    Weight, bonus for each character and the temperature of confidences are those that suit the validation lines; never
    give it test lines. What the network says of the lines is kept in the cache, so that they are read once. If the
    language model does not help, its file is left as it is, and the exit code is 3.
    """
    writable(file)
    from spikehtr.cli.options import pick_device
    from spikehtr.decoding.language_model import LanguageModel
    from spikehtr.evaluation.lm_tuning import NO_HELP, kept_frames, tune
    from spikehtr.weights import load_model

    language_model, loaded = LanguageModel.load(file), load_model(model)
    with counting("reading validation lines") as progress:
        frames = kept_frames(model, loaded, data, pick_device(device), progress)
    with counting("trying settings") as progress:
        found = tune(frames, language_model, loaded.charset, progress)
    said = f"CER {found.cer[0]:.2%} -> {found.cer[1]:.2%}, WER {found.wer[0]:.2%} -> {found.wer[1]:.2%}"
    count = len(frames.references)
    if not found.helps:
        typer.echo(f"{file} is left as it was: it does not help on {count} validation lines ({said})", err=True)
        raise typer.Exit(NO_HELP)
    language_model.notes["tuned"] = found.notes(model.name, [Path(source).name for source in data], count)
    language_model.save(file)
    options = found.options
    typer.echo(f"{count} validation lines: {said}; weight {options.weight:g}, bonus {options.bonus:g}, noted in {file}")


@app.command()
def attach(
    file: Annotated[str, typer.Argument(metavar="LM", help="A language model (.safetensors; none takes it out).")],
    model: Annotated[Path, typer.Option("--model", "-m", help="The network's file (.safetensors).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write; may be the model's own.")],
) -> None:
    """Write a model file that carries a language model: it is used wherever the model reads, but with --lm none."""
    writable(output)
    from spikehtr.decoding.decoders import NO_MODEL, language_model
    from spikehtr.weights import attach_language_model

    attach_language_model(model, None if file == NO_MODEL else language_model(file), output)
    typer.echo(str(output))


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
    file: KnownLM,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write (.arpa, .arpa.gz).")],
) -> None:
    """Write a language model as an ARPA file, for other programs."""
    writable(output)
    from spikehtr.decoding.arpa import write_arpa
    from spikehtr.decoding.decoders import language_model

    write_arpa(language_model(file), output)
    typer.echo(str(output))


def _tell(corpus: Corpus) -> None:
    for source in corpus.sources:
        count = sum(map(len, source.lines))
        typer.echo(f"{source.name}: {len(source.lines)} lines, {count} characters", err=True)


def _show(file: Path, as_json: bool) -> None:
    from spikehtr.decoding.decoders import language_model, language_model_file

    model = language_model(file)
    facts: dict[str, Any] = {
        "file": str(file),
        "order": model.order,
        "characters": len(model.vocabulary.characters),
        "ngrams": model.arcs,
        "states": model.states,
        "bytes": language_model_file(file).stat().st_size,
        **model.notes,
    }
    if as_json:
        print_json(facts | {"alphabet": "".join(model.vocabulary.characters)})
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
        fitted = "fitted" if "calibration" in tuned else "as usual, since errors were too few to fit them"
        typer.echo(
            f"  tuned for {tuned['model']}: weight {tuned['weight']:g}, bonus {tuned['bonus']:g}; confidences {fitted}"
        )
    typer.echo(f"  alphabet: {''.join(model.vocabulary.characters)!r}")
