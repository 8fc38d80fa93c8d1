"""Fetching over HTTP with manners: few requests a second to a host, repeated with patience, kept on disk, limited."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file
from spikehtr.pages.iiif.limiter import RateLimiter
from spikehtr.pages.iiif.manifests import Canvas, Collection, Manifest, Reference, is_address, parse_resource
from spikehtr.version import __version__

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # what may be gone in a moment
_CHUNK = 1 << 16
_LARGEST_DOCUMENT = 64 << 20  # bytes of JSON
_WHY = {
    401: "it asks for a login, which spikehtr cannot do: download the images yourself",
    403: "access is forbidden: download the images yourself, or ask the library",
    404: "not found: is the address right?",
    410: "it is gone",
    429: "too many requests: wait, or ask for fewer a second",
}


class FetchError(SpikeHTRError):
    """Something that could not be fetched; the message names the address and says why."""


class RefusedError(FetchError):
    """The server answered, and will not give this address whenever it is asked; it may give another."""


@dataclass(frozen=True)
class ClientOptions:
    """How a client behaves. Plain values, so that they can be handed to other processes."""

    cache: Path | None = None  # None: `default_cache()`
    requests_per_second: float = 2.0  # to one host, over all processes that share the cache
    attempts: int = 5
    timeout: float = 60.0  # seconds without an answer
    longest_wait: float = 300.0  # seconds; a server that asks for more is given up
    first_wait: float = 1.0  # before the second attempt; twice as long before each further one
    max_bytes: int = 512 << 20  # of a file
    document_age: float = 86400.0  # seconds for which a manifest in the cache is taken for current
    cache_bytes: int = 20 << 30  # beyond which what was not used for longest is deleted
    contact: str = ""  # an address for the user agent, for a library's questions; or $SPIKEHTR_CONTACT


def default_cache() -> Path:
    if own := os.environ.get("SPIKEHTR_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spikehtr"


class Client:
    """Fetches manifests, collections and images. Safe to use from several threads, and beside other processes."""

    def __init__(self, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        if not self.options.requests_per_second > 0:
            raise SpikeHTRError(f"requests per second must be above 0, not {self.options.requests_per_second}")
        self.cache = self.options.cache or default_cache()
        self._limiter = RateLimiter(self.cache / "hosts", self.options.requests_per_second)
        contact = self.options.contact or os.environ.get("SPIKEHTR_CONTACT", "")
        agent = f"spikehtr/{__version__} (handwriting recognition{'; ' * bool(contact)}{contact})"
        self._headers = {"User-Agent": agent, "Accept-Encoding": "gzip, deflate"}
        self._pools: dict[str | None, urllib3.PoolManager] = {}  # by the proxy
        self._lock = threading.Lock()
        self._since_pruned = 0
        self.requests = 0  # sent so far

    def load(self, address: str | os.PathLike[str]) -> Manifest | Collection:
        """A manifest or a collection: an http(s) address, or a file. Pages of a collection are put together."""
        found = parse_resource(self.load_json(address), os.fspath(address))
        if isinstance(found, Manifest):
            return found
        members, problems, seen = list(found.members), list(found.problems), {os.fspath(address)}
        following = found.next_page
        while following is not None and following not in seen:
            seen.add(following)
            part = parse_resource(self.load_json(following), following)
            if not isinstance(part, Collection):
                break
            members += part.members
            problems += part.problems
            following = part.next_page
        once = tuple({member.id: member for member in members}.values())
        return Collection(found.id, found.label, found.version, once, None, tuple(problems))

    def references(self, address: str | os.PathLike[str], failures: list[str]) -> Iterator[Reference]:
        """The manifests of a collection and of those within it, each once; none of them is fetched yet.

        The address of a manifest yields that one. What cannot be fetched or understood goes to `failures`.
        """
        seen: set[str] = set()
        waiting: list[Reference | str] = [os.fspath(address)]
        while waiting:
            one = waiting.pop(0)
            name = one if isinstance(one, str) else one.id
            if name in seen:
                continue
            seen.add(name)
            if isinstance(one, Reference) and not one.is_collection:
                yield one
                continue
            try:
                found = self.load(name)
            except SpikeHTRError as error:
                failures.append(str(error))
                continue
            if isinstance(found, Manifest):
                yield Reference(name, found.label, False)
            else:
                failures += found.problems
                waiting = [*found.members, *waiting]

    def load_json(self, address: str | os.PathLike[str]) -> Any:
        text = os.fspath(address)
        file = self.fetch(text, self.options.document_age) if is_address(text) else Path(text)
        try:
            if file.stat().st_size > _LARGEST_DOCUMENT:
                raise FetchError(f"{text}: more than {_LARGEST_DOCUMENT >> 20} MiB of JSON; name a part of it")
            return json.loads(file.read_bytes())
        except FileNotFoundError:
            raise FetchError(f"{text}: no such file") from None
        except (ValueError, RecursionError) as error:
            raise FetchError(f"{text}: not JSON ({reason_of(error)}); name a IIIF manifest or collection") from None

    def image(self, canvas: Canvas) -> Path:
        """The file of a canvas's image, fetched unless it is in the cache; as large as the server gives it."""
        for address in canvas.images:
            if self.cached(address):
                return self.fetch(address)
        refused: RefusedError | None = None
        for address in canvas.images:
            try:
                return self.fetch(address)
            except RefusedError as error:  # of some servers the full size is not to be had
                refused = refused or error
        raise refused or FetchError(f"{canvas.id}: the canvas names no image")

    def cached(self, address: str) -> bool:
        return self._file(address).is_file()

    def fetch(self, address: str, max_age: float | None = None) -> Path:
        """The file of an address: from the cache, where it is no older than `max_age` seconds, or fetched."""
        if not is_address(address):
            raise FetchError(f"{address}: only http and https addresses can be fetched")
        file = self._file(address)
        try:
            if max_age is None or time.time() - file.stat().st_mtime <= max_age:
                os.utime(file, (time.time(), file.stat().st_mtime))  # used now: pruning takes others first
                return file
        except OSError:  # not there
            pass
        self._download(address, file)
        return file

    def _file(self, address: str) -> Path:
        name = hashlib.sha256(address.encode()).hexdigest()[:40]
        return self.cache / "files" / name[:2] / name

    def _download(self, address: str, file: Path) -> None:
        try:
            host = urlsplit(address).netloc
        except ValueError as error:
            raise FetchError(f"{address}: not an address ({error})") from None
        reason = ""
        for attempt in range(1, self.options.attempts + 1):
            self._limiter.wait(host)
            wait = self.options.first_wait * 2 ** (attempt - 1) * random.uniform(0.8, 1.2)  # not all at the same moment
            try:
                reason, asked = self._try(address, file)
            except urllib3.exceptions.LocationValueError as error:
                raise FetchError(f"{address}: not an address ({reason_of(error)})") from None
            except urllib3.exceptions.HTTPError as error:
                reason, asked = f"no answer ({_short(error)})", None
            if not reason:
                return
            if asked is not None and asked > self.options.longest_wait:
                raise FetchError(f"{address}: {reason}; the server asks to come back in {asked:.0f} s")
            if attempt < self.options.attempts:
                self._limiter.pause(host, max(wait, asked or 0.0))
        raise FetchError(f"{address}: {reason}; gave up after {self.options.attempts} attempts")

    def _try(self, address: str, file: Path) -> tuple[str, float | None]:
        """One request. Empty where it went well; else what is worth another attempt, and the wait asked for."""
        self.requests += 1
        timeout = urllib3.Timeout(connect=min(30.0, self.options.timeout), read=self.options.timeout)
        retries = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=5)
        pool = self._pool(urlsplit(address))
        answer = pool.request("GET", address, preload_content=False, timeout=timeout, retries=retries)
        try:
            if answer.status in _AGAIN:
                after = answer.headers.get("Retry-After")
                return f"the server answers {answer.status} {answer.reason or ''}".rstrip(), _seconds(after)
            if answer.status != 200:
                why = _WHY.get(answer.status, answer.reason or "not understood")
                raise RefusedError(f"{address}: the server answers {answer.status}, {why}")
            if answer.headers.get("Content-Type", "").startswith("text/html"):
                raise RefusedError(f"{address}: a web page, not a IIIF document or an image; name the manifest itself")
            self._store(answer, address, file)
        finally:
            answer.drain_conn() if answer.status != 200 else answer.release_conn()
        return "", None

    def _pool(self, parts: SplitResult) -> urllib3.PoolManager:
        """Connections, by the proxy that the environment names for the host."""
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        with self._lock:
            if proxy not in self._pools:
                direct = partial(urllib3.PoolManager) if proxy is None else partial(urllib3.ProxyManager, proxy)
                self._pools[proxy] = direct(headers=self._headers, maxsize=8)
            return self._pools[proxy]

    def _store(self, answer: urllib3.BaseHTTPResponse, address: str, file: Path) -> None:
        limit = self.options.max_bytes
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with whole_file(file) as temporary, temporary.open("wb") as opened:
            for chunk in answer.stream(_CHUNK, decode_content=True):
                size += len(chunk)
                if size > limit:
                    answer.close()
                    raise FetchError(f"{address}: larger than {limit >> 20} MiB, which is as much as is taken")
                opened.write(chunk)
        self._since_pruned += size
        if self._since_pruned > self.options.cache_bytes // 16:
            self._since_pruned = 0
            prune(self.cache / "files", self.options.cache_bytes)


def prune(folder: Path, limit: int) -> None:
    """Delete what was not used for longest, until the folder holds no more than `limit` bytes."""
    entries = []
    for file in folder.rglob("*"):
        try:
            info = file.stat()
        except OSError:  # another process was quicker
            continue
        if file.is_file() and not file.name.startswith("."):
            entries.append((info.st_atime, info.st_size, file))
    total = sum(size for _, size, _ in entries)
    for _, size, file in sorted(entries):
        if total <= limit:
            break
        file.unlink(missing_ok=True)
        total -= size


def _seconds(value: str | None) -> float | None:
    """A Retry-After header: seconds, or a date."""
    if value is None:
        return None
    try:
        return float(urllib3.Retry().parse_retry_after(value))
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError):
        return None


def _short(error: BaseException) -> str:
    cause = getattr(error, "reason", None)
    return reason_of(cause if isinstance(cause, BaseException) else error)
