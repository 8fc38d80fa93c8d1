"""python -m spikehtr.pages.segment pack | train | evaluate | export: the segmenter's tasks by themselves."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cv2
import torch

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.segment import network_onnx as onnx
from spikehtr.pages.segment import network_weights as weights
from spikehtr.pages.segment.line_network import LineNetwork, NetworkShape, folded, parameters
from spikehtr.pages.segment.packed_pages import PackedPage, folds, pack, unpack
from spikehtr.pages.segment.score_pages import evaluate, table
from spikehtr.pages.segment.train_network import Trainer, TrainOptions

FOLDS = 5


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        {"pack": _pack, "train": _train, "evaluate": _evaluate, "export": _export}[options.task](options)
    except SpikeHTRError as error:
        raise SystemExit(f"error: {error}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spikehtr.pages.segment", description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    packing = tasks.add_parser("pack", help="pages with PAGE or ALTO files into one compact folder")
    packing.add_argument("folders", nargs="+", type=Path)
    packing.add_argument("--out", type=Path, required=True)
    train = tasks.add_parser("train", help="train on the pages of a packed folder")
    check = tasks.add_parser("evaluate", help="score weights on the pages of a packed folder")
    for task in (train, check):
        task.add_argument("pack", type=Path)
        task.add_argument("--group", default="layout", help="the packed folder's pages to train on, or to score")
        task.add_argument(
            "--fold", type=int, choices=range(FOLDS), help=f"leave out one of {FOLDS} folds by collection"
        )
        task.add_argument("--leave-out", nargs="*", default=[], metavar="COLLECTION")
        task.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    train.add_argument("--also", nargs="*", default=[], metavar="GROUP", help="groups to score at the end as well")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--only", nargs="*", default=[], metavar="PAGE", help="train on these pages alone")
    train.add_argument("--resume", action="store_true")
    train.add_argument("--small", action="store_true", help="a network of a fiftieth of the size, for trying out")
    for name in ("minutes", "learning-rate", "weight-decay", "average"):
        train.add_argument(f"--{name}", type=float, default=argparse.SUPPRESS)
    for name in ("steps", "batch", "size", "workers", "seed", "log-every", "save-every"):
        train.add_argument(f"--{name}", type=int, default=argparse.SUPPRESS)
    check.add_argument("weights", type=Path)
    check.add_argument("--out", type=Path, help="a file for the rows, JSON lines")
    exporting = tasks.add_parser("export", help="weights as an ONNX file, or with kernels in 16 bits")
    exporting.add_argument("weights", type=Path)
    exporting.add_argument("out", type=Path, help="a file that ends in .onnx or in .safetensors")
    return parser


def _pack(options: argparse.Namespace) -> None:
    for problem in pack(options.folders, options.out):
        print(problem)


def _divided(options: argparse.Namespace) -> tuple[list[PackedPage], list[PackedPage], list[PackedPage]]:
    """Pages of the group that are kept, those that are left out, and pages of other groups."""
    pages = list(unpack(options.pack))
    group = [page for page in pages if page.group == options.group]
    if not group:
        known = ", ".join(sorted({page.group for page in pages}))
        raise SpikeHTRError(f"{options.pack}: no pages of {options.group!r} in it; it has {known}")
    out = set(options.leave_out)
    if unknown := out - {page.collection for page in group}:
        raise SpikeHTRError(f"no collection {', '.join(sorted(unknown))} in {options.group}")
    if options.fold is not None:
        out |= set(folds([page.collection for page in group], FOLDS)[options.fold])
    others = [page for page in pages if page.group != options.group]
    return [p for p in group if p.collection not in out], [p for p in group if p.collection in out], others


def _train(options: argparse.Namespace) -> None:
    cv2.setNumThreads(1)
    kept, left_out, others = _divided(options)
    if options.only:
        kept = [page for page in kept if page.name in options.only]
    shape = (
        NetworkShape((8, 12, 16, 16, 16), (1, 1, 1, 1, 1), decoder=(12, 16, 16)) if options.small else NetworkShape()
    )
    fields = {name: value for name, value in vars(options).items() if name in TrainOptions.__slots__}
    about = {"collections": sorted({page.collection for page in kept}), "pages": len(kept)}
    trainer = Trainer(options.out, TrainOptions(**fields), shape, options.device, about)
    resumed = options.resume and trainer.resume()
    print(
        f"{parameters(trainer.network):,} parameters; {len(kept)} pages to train on, {len(left_out)} left out"
        + (f"; goes on from step {trainer.step}" if resumed else ""),
        flush=True,
    )
    trainer.train(kept)
    network = weights.load(options.out / "weights.safetensors")
    scored = (left_out or (kept if options.only else [])) + [page for page in others if page.group in options.also]
    _score(network, scored, options.device, options.out / "pages.jsonl")


def _evaluate(options: argparse.Namespace) -> None:
    kept, left_out, _ = _divided(options)
    _score(weights.load(options.weights), left_out or kept, options.device, options.out)


def _export(options: argparse.Namespace) -> None:
    network, about = weights.load(options.weights), weights.header(options.weights)
    if options.out.suffix == ".onnx":
        onnx.save(network, options.out, about)
    elif options.out.suffix == ".safetensors":
        weights.save(options.out, network.state_dict(), network.shape, about, half=True)
    else:
        raise SpikeHTRError(f"{options.out}: what it is to be is told by its ending; give .onnx or .safetensors")


def _score(network: LineNetwork, pages: list[PackedPage], device: str, out: Path | None) -> None:
    network = folded(network).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = []
    for row in evaluate(network, pages):
        rows.append(row)
        if out is not None:
            with out.open("w" if len(rows) == 1 else "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    for by in ("group", "collection"):
        if rows:
            print("\n".join(table(rows, by)), flush=True)


if __name__ == "__main__":
    main()
