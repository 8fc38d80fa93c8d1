"""The documents of a bulk run as files: what `transcribe` would have written, and protected as that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spikehtr.bulk.report import result_files, result_rows
from spikehtr.bulk.run import RESULTS
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.digests import sealed
from spikehtr.pages.origins import SUFFIX, Format, Origins
from spikehtr.pages.protected_results import FileState, LeftAsItIs, NoBackupError, ProtectedResults


@dataclass
class Unpacked:
    written: int = 0
    failed: list[str] = field(default_factory=list)  # pages without a document, and why
    left: list[str] = field(default_factory=list)  # files that somebody changed, or that are not ours


def unpack(
    folder: Path, target: Path, overwrite: bool = False, tell: Callable[[int], None] = lambda pages: None
) -> Unpacked:
    """Write the document of each page of the run in `folder` below `target`, under its id."""
    if not result_files(folder / RESULTS):
        raise SpikeHTRError(f"{folder} holds no results of a bulk run; name the folder that was given to it by -o")
    target.mkdir(parents=True, exist_ok=True)
    origins = Origins(target)
    results, done = ProtectedResults(target, origins, overwrite), Unpacked()
    for row in result_rows(folder / RESULTS, ["location", "format", "document", "error_kind", "error"]):
        if row["error_kind"]:
            done.failed.append(f"{row['id']}: {row['error']}")
            continue
        form: Format = row["format"]
        file = target / f"{row['id']}{SUFFIX[form]}"
        if not file.resolve().is_relative_to(target.resolve()):
            done.failed.append(f"{row['id']}: its name leads out of the folder")
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with origins.lock():
                origins.refresh()
                location = row["location"]
                origins.note(row["id"], location if "://" in location else Path(location))
                with results.writing(file) as temporary:
                    temporary.write_bytes(sealed(row["document"], form))
        except LeftAsItIs as left:
            reason = "changed since it was written" if left.state is FileState.CHANGED else left.state.value
            done.left.append(f"{left.path}: left as it is ({reason})")
            continue
        except NoBackupError as error:
            done.left.append(str(error))
            continue
        done.written += 1
        tell(done.written)
    return done
