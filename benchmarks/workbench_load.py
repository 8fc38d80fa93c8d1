"""What the HTTP service costs beside reading directly: many clients against one reader that has all lines at once.

    python benchmarks/workbench_load.py                    # 32 clients, 2,000 lines
    python benchmarks/workbench_load.py --lines 400 --rounds 2 --json

The lines go in rounds: in each, first the direct reader has its share in one call (from the files' bytes to texts, in a
process of its own that only reads), then 32 clients send the same share to `spikehtr serve`, each line by itself. All
answers are compared with the direct texts. Lines a second of the clock are what a user sees; they hold if nothing else
uses the machine, and the clients' own work counts against the server. Lines a second of processor time are of the
reading process alone: other programs do not change them. Memory: the most that the server had, before and after.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from served import processor_seconds, start

WORDS = ("I", "have", "read", "your", "letter", "by", "the", "window", "where", "light", "is", "best", "and", "some")


def line_images(count: int) -> list[bytes]:
    """Lines of three to nine words, 64 pixels high, as PNG."""
    chance, out = np.random.default_rng(1), []
    for _ in range(count):
        text = " ".join(chance.choice(WORDS, chance.integers(3, 10)))
        image = Image.fromarray(chance.normal(225, 6, (64, 30 + 17 * len(text))).clip(0, 255).astype(np.uint8))
        ImageDraw.Draw(image).text((12, 12), text, fill=40, font_size=32)
        data = io.BytesIO()
        image.save(data, "PNG")
        out.append(data.getvalue())
    return out


def read_directly(pipe: Connection, model: str) -> None:
    """The process of the direct reader: gets images, gives texts and seconds, by the clock and of the processor."""
    from spikehtr.recognizer import Recognizer

    reader = Recognizer.load(model)
    while (images := pipe.recv()) is not None:
        clock, processor = time.perf_counter(), time.process_time()
        texts = [" ".join(line.text.split()) for line in reader.transcribe(images)]
        pipe.send((texts, time.perf_counter() - clock, time.process_time() - processor))


def most_memory(pid: int) -> int:
    """Megabytes."""
    found = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) >> 10


def send(address: str, images: list[bytes]) -> list[str]:
    """One client: line after line over one connection; asks again where the queue is full."""
    connection, texts = http.client.HTTPConnection(address, timeout=600), []
    for image in images:
        while True:
            headers = {"Content-Type": "image/png", "Accept": "text/plain"}
            connection.request("POST", "/v1/transcribe?as=line", image, headers)
            answer = connection.getresponse()
            said = answer.read().decode()
            if answer.status == 200:
                texts.append(said.strip())
                break
            if answer.status != 429:
                raise SystemExit(f"status {answer.status}: {said}")
            time.sleep(int(answer.headers["Retry-After"]))
    return texts


def served_texts(address: str, images: list[bytes], clients: int) -> list[str]:
    with ThreadPoolExecutor(clients) as threads:
        parts = list(threads.map(lambda client: send(address, images[client::clients]), range(clients)))
    texts = [""] * len(images)
    for client, part in enumerate(parts):
        texts[client::clients] = part
    return texts


def measure(lines: int, clients: int, rounds: int, model: str) -> dict[str, Any]:
    images = line_images(lines)
    shares = [images[number::rounds] for number in range(rounds)]
    pipe, other = multiprocessing.get_context("spawn").Pipe()
    reader = multiprocessing.get_context("spawn").Process(target=read_directly, args=(other, model), daemon=True)
    reader.start()
    clock: dict[str, list[float]] = {"direct": [], "served": []}
    processor: dict[str, list[float]] = {"direct": [], "served": []}
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        process, url = start(Path(name), "--no-browser", "-m", model)
        address = url.removeprefix("http://")
        try:
            pipe.send(images[:clients])
            pipe.recv()
            served_texts(address, images[:clients], clients)  # both have loaded their model
            before = most_memory(process.pid)
            for share in shares:
                pipe.send(share)
                expected, seconds, used = pipe.recv()
                clock["direct"].append(seconds)
                processor["direct"].append(used)
                began, had = time.perf_counter(), processor_seconds(process.pid)
                found = served_texts(address, share, clients)
                clock["served"].append(time.perf_counter() - began)
                processor["served"].append(processor_seconds(process.pid) - had)
                wrong += sum(a != b for a, b in zip(expected, found, strict=True))
            after = most_memory(process.pid)
        finally:
            process.terminate()
            process.wait(60)
            pipe.send(None)

    def rates(seconds: dict[str, list[float]]) -> dict[str, float]:
        each = [direct / served for direct, served in zip(seconds["direct"], seconds["served"], strict=True)]
        out = {f"{key}_lines_per_second": round(lines / sum(values), 2) for key, values in seconds.items()}
        return out | {
            "share": round(sum(seconds["direct"]) / sum(seconds["served"]), 3),
            "median": round(statistics.median(each), 3),
        }

    return {
        "lines": lines,
        "clients": clients,
        "wrong": wrong,
        "clock": rates(clock),
        "processor": rates(processor),
        "memory_mb": {"before": before, "after": after},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    result = measure(asked.lines, asked.clients, asked.rounds, asked.model)
    if asked.json:
        print(json.dumps(result))
        return
    print(f"{result['lines']} lines by {result['clients']} clients: {result['wrong']} wrong or lost")
    for name in ("clock", "processor"):
        values = result[name]
        print(
            f"{name:9} direct {values['direct_lines_per_second']:7.1f}, "
            f"served {values['served_lines_per_second']:7.1f} lines/s: "
            f"{values['share']:.1%} (median of rounds {values['median']:.1%})"
        )
    print(f"memory    {result['memory_mb']['before']} MB before, {result['memory_mb']['after']} MB after")


if __name__ == "__main__":
    main()
