"""A bulk run: the list of pages -> open -> read -> finish -> Parquet, by Ray Data, with its checkpoints."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from spikehtr.bulk.plan import Planned, write_plan
from spikehtr.bulk.report import BulkReport, summarise
from spikehtr.bulk.stages import BulkReader, OpenPages, ReadLines, Settings, finish_rows
from spikehtr.data.geometry import LineFitting
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import read_json, whole_file
from spikehtr.pages.iiif import ClientOptions
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.worker_pool import available_cores

_STARTS = 3  # attempts at a Ray of our own: it gives itself 30 s, which a busy machine may exceed
PAGES, RESULTS, CHECKPOINT, NOTES = "pages.parquet", "results", "checkpoint", "run.json"


@dataclass(frozen=True)
class BulkOptions:
    """How a run uses its machines."""

    address: str | None = None  # of a Ray cluster, `auto` for the one at hand; None: a Ray of its own
    workers: int | None = None  # actors that open pages, a core each; None: as many as the cluster has cores to spare
    readers: int | None = None  # actors that read lines; None: one a GPU, or one
    reader_cpus: float = 1.0  # cores of each reader where there is no GPU
    pages_at_once: int = 16  # pages whose lines are read together
    rows_in_a_file: int = 2000  # of results, about
    environment: dict[str, str] = field(default_factory=dict)  # variables of the processes


def run_bulk(
    inputs: Sequence[str],
    folder: Path,
    load: Callable[[], BulkReader],
    fitting: LineFitting,
    read: ReadOptions,
    form: PageFormat,
    client: ClientOptions | None = None,
    options: BulkOptions | None = None,
    say: Callable[[str], None] = lambda text: None,
    described: dict[str, Any] | None = None,
    batch_size: int | None = None,
) -> BulkReport:
    """Read all pages of the inputs into `folder`; called again on the same folder, it goes on.

    `load` makes a reader; it is called once in each process that reads. `described`: what results depend on; a folder
    that was begun with other values is an error. Without inputs the folder's own list of pages is taken.
    """
    ray = _ray()
    options, client = options or BulkOptions(), client or ClientOptions()
    folder = folder.absolute()
    plan(inputs, folder, client, say, described or {})
    settings = Settings(load, fitting, read, form, client, batch_size)
    begun = time.monotonic()
    with _cluster(ray, options):
        _execute(ray, folder, settings, options)
    report = summarise(folder / RESULTS, folder / PAGES, time.monotonic() - begun)
    _write_json(folder / "report.json", report.to_dict())
    return report


def plan(
    inputs: Sequence[str],
    folder: Path,
    client: ClientOptions,
    say: Callable[[str], None],
    described: dict[str, Any],
) -> None:
    """The list of pages of a new run; of one that goes on, a check that it is the same run."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = {"inputs": list(inputs)} | described
    before = read_json(folder / NOTES)
    if before is not None and (folder / PAGES).is_file():
        changed = [key for key in notes if before.get(key) != notes[key] and (key != "inputs" or inputs)]
        if changed:
            some = "; ".join(f"{key} was {before.get(key)!r}, is {notes[key]!r}" for key in changed)
            raise SpikeHTRError(f"{folder} was begun otherwise ({some}): go on with the same, or name another folder")
        say(f"{folder}: goes on with the pages it was begun with")
        return
    if not inputs:
        raise SpikeHTRError(f"{folder} holds no run to go on with: name what to read")
    found: Planned = write_plan(inputs, folder / PAGES, client)
    _write_json(folder / NOTES, notes)
    for remark in found.remarks:
        say(remark)
    missing = f", {found.errors} that cannot be read" if found.errors else ""
    say(f"{found.pages} pages{missing}")


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise SpikeHTRError(f"bulk runs need Ray ({reason_of(error)}): pip install 'spikehtr[ray]'") from None
    for name in ("ray", "ray.data"):  # its progress is not ours to print; its errors are raised
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


@contextmanager
def _cluster(ray: Any, options: BulkOptions) -> Iterator[None]:
    """A Ray of our own for as long as the block lasts, or the one that is asked for."""
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": str(max(1, round(options.reader_cpus)))}
    variables |= options.environment
    if options.address:
        connect = partial(ray.init, options.address, runtime_env={"env_vars": variables})
    else:
        # Logical cores: actors that wait hold theirs, and the small tasks between them need some too.
        cores = (options.workers or available_cores()) + (options.readers or 1) * options.reader_cpus + 4
        own = {"num_cpus": round(cores), "include_dashboard": False, "object_store_memory": _object_store()}
        connect = partial(ray.init, "local", **own)
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets anything else on the machine starve them
        os.environ.update(variables)  # its processes are ours, and have our environment
    for attempt in range(1, _STARTS + 1):
        try:
            connect(log_to_driver=False, configure_logging=False)
            break
        except Exception as error:  # Ray raises a bare Exception where a busy machine starts it too slowly
            ray.shutdown()
            if options.address or attempt == _STARTS:
                where = f"--address {options.address}" if options.address else "a Ray of its own"
                raise SpikeHTRError(f"{where}: cannot be reached or started ({reason_of(error)})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _object_store() -> int:
    """Bytes of shared memory: pages on their way between stages, a few MB each."""
    try:
        about = os.statvfs("/dev/shm")
        free = about.f_bavail * about.f_frsize
    except OSError:
        free = 2 << 30
    return int(min(4 << 30, max(256 << 20, free * 0.5)))


def _execute(ray: Any, folder: Path, settings: Settings, options: BulkOptions) -> None:
    """The pipeline. Ray holds each stage back where the next one is full."""
    from ray.data import ActorPoolStrategy, DataContext
    from ray.data.checkpoint import CheckpointConfig

    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = False
    checkpoint = folder / CHECKPOINT
    checkpoint.mkdir(exist_ok=True)
    # What was written stays noted when all is done: called again, the run finds nothing left to do.
    config = CheckpointConfig(id_column="id", checkpoint_path=str(checkpoint), delete_checkpoint_on_success=False)
    config.checkpoint_actor_memory_bytes = 256 << 20
    context.checkpoint_config = config
    total = ray.cluster_resources()
    gpus = int(total.get("GPU", 0))
    readers = options.readers or max(1, gpus)
    cpus = 1.0 if gpus else options.reader_cpus
    spare = int(total.get("CPU", 1) - readers * cpus - 3)  # the rest: reading the list, finishing, writing
    workers = max(1, min(options.workers or spare, spare))
    blocks = max(1, min(4 * workers, _rows_of(folder / PAGES) // 8 or 1))
    pages = ray.data.read_parquet(str(folder / PAGES), override_num_blocks=blocks)
    opened = pages.map_batches(
        OpenPages,
        fn_constructor_args=(settings,),
        batch_size=4,
        num_cpus=1,
        compute=ActorPoolStrategy(size=workers),
    )
    read = opened.map_batches(
        ReadLines,
        fn_constructor_args=(settings,),
        batch_size=options.pages_at_once,
        num_cpus=cpus,
        num_gpus=1 if gpus else 0,
        compute=ActorPoolStrategy(size=readers),
    )
    done = read.map_batches(partial(finish_rows, settings=settings), batch_size=options.pages_at_once, num_cpus=1)
    try:
        done.write_parquet(str(folder / RESULTS), compression="zstd")
    except ray.exceptions.RayError as error:
        raise SpikeHTRError(
            f"Ray ended the run ({type(error).__name__}: {reason_of(error)}); the same command goes on with it"
        ) from None


def _write_json(file: Path, values: dict[str, Any]) -> None:
    with whole_file(file) as temporary:
        temporary.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _rows_of(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)
