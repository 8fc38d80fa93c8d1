"""Pages a second from image files to PAGE files, beside what each stage takes alone; processor, memory and GPU use.

    python benchmarks/page_speed.py PAGES... --copies 400               # with a GPU where there is one
    python benchmarks/page_speed.py PAGES... --copies 200,2000 --device cpu

The images are read again and again until there are `--copies` pages, by `spikehtr transcribe` in a process of its own;
the rate is that of its last four fifths. `at most` is what its cores would do if none ever waited: cores
over the processor seconds that a page took. Every PAGE file is compared with what the page gives that is read by
itself, but for time stamps and the image's name (not with more options of `transcribe`). Stages are timed one page
after another in this process, with one thread but for the reading of lines.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from spikehtr import Recognizer
from spikehtr.cli.options import pick_device
from spikehtr.data.geometry import FittedLine
from spikehtr.data.images import open_gray
from spikehtr.pages.given import RegionPlace
from spikehtr.pages.network_segmenter import NetworkSegmenter
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadBy, SegmentedPage, assemble, cut_lines, found_sheet
from spikehtr.pages.segment.maps import Gray, Logits
from spikehtr.pages.segmenters import segmenter
from spikehtr.pages.worker_pool import available_cores
from spikehtr.profiling.roofline import synchronize

P = ParamSpec("P")
T = TypeVar("T")
TOGETHER = 4  # times all pages, in a batch
EVERY = 0.5  # seconds between two looks at memory and GPU


class Watch(threading.Thread):
    """Most memory of a process and all it has started, and how busy the GPU is, while it runs."""

    def __init__(self, process: subprocess.Popen[bytes], gpu: bool) -> None:
        super().__init__(daemon=True)
        self.process, self.gpu, self.most = process, gpu, 0
        self.busy: list[float] = []

    def run(self) -> None:
        while self.process.poll() is None:
            self.most = max(self.most, sum(map(resident, family(self.process.pid))))
            if self.gpu:
                query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
                self.busy.append(float(subprocess.run(query, capture_output=True, text=True).stdout.split()[0]))
            time.sleep(EVERY)


def family(pid: int) -> list[int]:
    """A process and all that it has started, and those they have."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in family(child))]


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def alone(pages: list[Path], device: str, lm: str | None) -> list[str]:
    """What each page gives that is read by itself."""
    recognizer = Recognizer.load(device=device, lm=lm)
    return [text_of(recognizer.transcribe_page(page).to_page()) for page in pages]


def text_of(file: str) -> str:
    """A PAGE file without its time stamps, their digest and the name of its image."""
    return re.sub(r"<(Created|LastChange)>[^<]*<|imageFilename=\"[^\"]*\"|<!-- spikehtr:digest=.*", "", file).rstrip()


def run(pages: list[Path], count: int, device: str, options: list[str], expected: list[str] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder, "in"), Path(folder, "out")
        given.mkdir()
        for number in range(count):
            page = pages[number % len(pages)]
            shutil.copy(page, given / f"{number:06d}{page.suffix}")
        command = [sys.executable, "-m", "spikehtr", "transcribe", str(given), "-f", "page", "-o", str(out), *options]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
        process = subprocess.Popen([*command, "--device", device], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        watch = Watch(process, device != "cpu")
        watch.start()
        _, said = process.communicate()
        wall = time.time() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        files = sorted(out.rglob("*.xml"))
        times = sorted(file.stat().st_mtime for file in files)
        if process.returncode or len(times) != count:
            sys.exit(f"{len(times)} of {count} pages were read: {said.decode()[-2000:]}")
        equal = ""
        if expected is not None:
            same = sum(text_of(file.read_text()) == expected[n % len(pages)] for n, file in enumerate(files))
            equal = f"; {same} files as by themselves"
    used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count
    cores, first = available_cores(), len(times) // 5
    rate = (len(times) - 1 - first) / (times[-1] - times[first])
    busy = statistics.mean(sorted(watch.busy)[len(watch.busy) // 4 :]) if watch.busy else None  # not while it starts
    print(
        f"{count} pages: {rate:.2f} pages/s, {wall:.0f} s from start to end; {used:.3f} processor seconds a page: "
        f"at most {cores / used:.2f} pages/s on {cores} cores, of which it reached {100 * rate * used / cores:.0f} %; "
        f"{watch.most / 1e9:.2f} GB{equal}" + ("" if busy is None else f"; GPU busy {busy:.0f} % of the time")
    )


def stages(pages: list[Path], device: str, lm: str | None) -> None:
    recognizer, find = Recognizer.load(device=device, lm=lm), segmenter("network", device)
    assert isinstance(find, NetworkSegmenter)
    where = torch.device(device)
    spent: dict[str, float] = {}

    def timed(name: str, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        synchronize(where)
        start = time.perf_counter()
        result = call(*arguments, **named)
        synchronize(where)
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
        return result

    look_at = NetworkSegmenter.look_at

    def looked(self: NetworkSegmenter, images: Sequence[Gray]) -> list[Logits]:
        return timed("network of lines", look_at, self, images)

    NetworkSegmenter.look_at = looked  # type: ignore[method-assign]
    form, by, threads = PageFormat("page"), ReadBy.reader(recognizer), torch.get_num_threads()
    grays = [open_gray(page) for page in pages]
    prepared: list[tuple[SegmentedPage, list[RegionPlace], list[FittedLine]]] = []
    for _ in range(2):  # the first compiles and records
        spent.clear()
        prepared.clear()
        for page in pages:
            torch.set_num_threads(1)
            gray = timed("open", open_gray, page)
            sheet = timed("find", found_sheet, "page", gray, find)
            prepared.append((sheet, *timed("cut", cut_lines, recognizer.fitting, sheet)))
        torch.set_num_threads(threads)
        fitted = [line for _, _, lines in prepared for line in lines]
        read = iter(timed("read", recognizer.read_lines, fitted))
        for sheet, regions, lines in prepared:
            own = [next(read) for _ in lines]
            result = timed("put together", assemble, sheet, regions, own, by)
            timed("write", form.shown, result)
    spent["find"] -= spent["network of lines"]
    count = len(fitted) / len(pages)
    pixels = sum(gray.width * gray.height for gray in grays) / len(grays)
    print(f"{device}: milliseconds a page of {count:.0f} lines and {pixels / 1e6:.1f} megapixels")
    for name, seconds in spent.items():
        print(f"  {name}: {1000 * seconds / len(pages):.1f}")
    for _ in range(2):  # as above
        spent.clear()
        find.segment_pages(grays * TOGETHER)
    each = 1000 * spent["network of lines"] / len(pages) / TOGETHER
    print(f"  network of lines, {len(pages) * TOGETHER} pages together: {each:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, help="images, or folders of them")
    parser.add_argument("--copies", default="400", help="pages a run, several with commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--lm", help="a language model to read with")
    options, more = parser.parse_known_args()
    device = pick_device(options.device)
    pages = sorted(
        file
        for path in options.pages
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.suffix.lower() in (".jpg", ".jpeg", ".png", ".tif")
    )
    stages(pages, device, options.lm)
    expected = None if more else alone(pages, device, options.lm)
    for count in options.copies.split(","):
        run(pages, int(count), device, [*more, *(["--lm", options.lm] if options.lm else [])], expected)


if __name__ == "__main__":
    main()
