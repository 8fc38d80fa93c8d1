"""Model files: one .safetensors that holds the weights and, in its header, all that is needed to rebuild the network.

Nothing is ever unpickled: a model file from a stranger is data, not code.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from spikehtr.assets import MODEL
from spikehtr.config import Config
from spikehtr.config.retired import config_of_file
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file
from spikehtr.model.network import Network
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.version import MODEL_FORMAT, __version__

_CARRIED = "language_model."  # what the names of a carried language model's parts begin with
BUNDLED = "bundled"  # stands for the model that comes with the package wherever a model file is asked for


class Loaded(NamedTuple):
    net: Network
    config: Config
    charset: Charset
    notes: dict[str, Any]  # provenance and scores, as they were saved
    language_model: LanguageModel | None = None  # that the file carries

    @property
    def temperature(self) -> float:
        """What the logits are divided by before confidences are taken from them; 1 for a model not calibrated."""
        return float(self.notes.get("temperature", 1.0))


def save_model(
    path: str | os.PathLike[str],
    net: Network,
    config: Config,
    charset: Charset,
    notes: dict[str, Any] | None = None,
    half: bool = False,
) -> None:
    """Write `net` with its configuration, characters and notes (anything JSON can hold); `half` stores fp16 weights.

    What a network keeps beside its weights (running statistics, counters) is stored as it is.
    """
    if len(charset) != net.vocab_size:
        raise SpikeHTRError(f"a charset of {len(charset)} labels does not fit a network of {net.vocab_size}")
    header = {
        "format": MODEL_FORMAT,
        "version": __version__,
        "config": json.dumps(config.model_copy(update={"model": net.config}).to_dict()),
        "charset": json.dumps(charset.characters, ensure_ascii=False),
        "notes": json.dumps(notes or {}, ensure_ascii=False),
    }
    dtype = torch.float16 if half else torch.float32
    beside = {name: value.float() if value.is_floating_point() else value for name, value in net.state_dict().items()}
    tensors = beside | {name: p.detach().to(dtype) for name, p in net.named_parameters()}
    tensors = {name: value.cpu().contiguous() for name, value in tensors.items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary, header)


def model_file(path: str | os.PathLike[str]) -> Path:
    """The file that `path` stands for."""
    if os.fspath(path) != BUNDLED:
        return Path(path)
    if not MODEL.is_file():
        raise SpikeHTRError(
            "this version comes without a model: train one (`spikehtr train -d DATA -o RUN` makes "
            "RUN/best.safetensors) and name its file, on the command line with --model FILE"
        )
    return MODEL


def load_header(path: str | os.PathLike[str]) -> dict[str, str]:
    """What a model file says of itself, as text; a file that is none of ours is an error."""
    path = model_file(path)
    if not path.is_file():
        raise SpikeHTRError(f"{path}: {'a folder, not a model file' if path.is_dir() else 'no such file'}")
    try:
        with safe_open(str(path), "pt") as file:
            header: dict[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise SpikeHTRError(_damaged(path, error)) from None
    if header.get("format") != MODEL_FORMAT:
        if "state" in header:
            raise SpikeHTRError(
                f"{path}: a checkpoint to go on with a training, no model: best.safetensors beside it is"
            )
        found = header.get("format", "no format note")
        raise SpikeHTRError(f"{path}: not a Spike-HTR model of format {MODEL_FORMAT} (found {found})")
    return header


def _damaged(path: str | os.PathLike[str], error: Exception) -> str:
    if Path(path).suffix.lower() != ".safetensors":
        return f"{path}: not a model file, whose name ends in .safetensors ({reason_of(error)})"
    return f"{path}: damaged, or not a model file ({reason_of(error)}); get it again"


def load_model(path: str | os.PathLike[str]) -> Loaded:
    """The network of a file that `save_model` wrote, in fp32, on the CPU and in evaluation mode."""
    header = load_header(path)
    try:
        config = config_of_file(json.loads(header["config"]), str(path))
        charset, notes = Charset(tuple(json.loads(header["charset"]))), json.loads(header.get("notes", "{}"))
        net = build(config.model, len(charset))
        with safe_open(str(model_file(path)), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        carried = {name: tensors.pop(name) for name in list(tensors) if name.startswith(_CARRIED)}
        net.load_state_dict(tensors)
    except (SafetensorError, json.JSONDecodeError, KeyError, RuntimeError) as error:
        raise SpikeHTRError(_damaged(path, error)) from None
    return Loaded(net.eval(), config, charset, notes, _carried(carried, header, str(path)))


def _carried(tensors: dict[str, Tensor], header: dict[str, str], where: str) -> LanguageModel | None:
    """The language model in a model file, if any."""
    if not tensors:
        return None
    tensors = {name.removeprefix(_CARRIED): value for name, value in tensors.items()}
    own = {name.removeprefix(_CARRIED): value for name, value in header.items() if name.startswith(_CARRIED)}
    return LanguageModel.unpack(tensors, own, where)


def attach_language_model(
    path: str | os.PathLike[str], model: LanguageModel | None, output: str | os.PathLike[str]
) -> None:
    """Write a model file anew with a language model in it, in place of one that it carries; None: without any."""
    header = {name: value for name, value in load_header(path).items() if not name.startswith(_CARRIED)}
    with safe_open(str(model_file(path)), "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(_CARRIED)}  # noqa: SIM118
    if model is not None:
        tensors |= {f"{_CARRIED}{name}": torch.from_numpy(values.copy()) for name, values in model.arrays.items()}
        header |= {f"{_CARRIED}{name}": value for name, value in model.header().items()}
    with whole_file(output) as temporary:
        save_file(tensors, temporary, header)


def read_with(loaded: Loaded, overrides: Iterable[str]) -> Loaded:
    """The same weights under other settings of reading, data.* and model.reducer.*; the rest was learned with."""
    config = loaded.config.with_overrides(overrides)
    now, trained = config.model, loaded.config.model
    if now.model_copy(update={"reducer": trained.reducer}) != trained or config.training != loaded.config.training:
        raise SpikeHTRError("a trained network cannot be changed: -s takes data.* and model.reducer.* here")
    if now == trained:
        return loaded._replace(config=config)
    net = build(now, loaded.net.vocab_size)
    if net.load_state_dict(loaded.net.state_dict(), strict=False).missing_keys:
        raise SpikeHTRError(
            f"trained with model.reducer.mode={trained.reducer.mode}, it has no weights to read with {now.reducer.mode}"
        )
    return loaded._replace(net=net.eval(), config=config)


def check_changeable(path: str | os.PathLike[str]) -> None:
    """Says what is wrong with a file whose notes cannot be changed: none of ours, or the package's own."""
    if os.fspath(path) == BUNDLED:
        raise SpikeHTRError(f"the bundled model stays as it is; change a copy: cp '{MODEL}' my-model.safetensors")
    load_header(path)


def update_notes(path: str | os.PathLike[str], notes: dict[str, Any]) -> None:
    """Add notes to a model file, or replace those of the same name. Its tensors stay as they are, bit for bit.

    Only the header is written anew: eight bytes of length, JSON, then the tensors, whose places count from there.
    """
    check_changeable(path)
    with Path(path).open("rb") as old, whole_file(path) as temporary:
        (length,) = struct.unpack("<Q", old.read(8))
        header = json.loads(old.read(length))
        kept = json.loads(header["__metadata__"].get("notes", "{}"))
        header["__metadata__"]["notes"] = json.dumps(kept | notes, ensure_ascii=False)
        packed = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        packed += b" " * (-len(packed) % 8)  # tensors begin at a multiple of 8
        with temporary.open("wb") as new:
            new.write(struct.pack("<Q", len(packed)) + packed)
            shutil.copyfileobj(old, new, 1 << 20)
