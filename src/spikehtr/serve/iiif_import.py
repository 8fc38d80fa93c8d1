"""Pages of a IIIF manifest into a project; only from public addresses, so that no request can be forged through us."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import Canvas, Client, ClientOptions, FetchError, Manifest, RefusedError
from spikehtr.pages.remote import name_of
from spikehtr.serve import scanning, uploads
from spikehtr.serve.jobs import BackgroundJob
from spikehtr.serve.limits import Limits

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_MOST = 5000  # pages of one import
_ATTEMPTS = 3
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # whose last four bytes are an address of the other kind


class NotPublicError(FetchError):
    """An address within this computer or its network."""


def check_public(address: str, host: str) -> None:
    """An IP address that anybody on the internet has; not this computer's, its network's or a cloud's own."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None) or found
    if found in _NAT64:
        inner = ipaddress.ip_address(found.packed[-4:])
    if not found.is_global or not inner.is_global or found.is_multicast or inner.is_multicast:
        remedy = "download the images yourself, or start the server with --allow-private-iiif"
        raise NotPublicError(f"{host}: {address} is not a public address; {remedy}")


def _checked(connection: HTTPConnection) -> socket.socket:
    """Connect, and look at where to: the name is resolved once, so that it cannot mean another address later."""
    host = connection.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise urllib3.exceptions.NameResolutionError(host, connection, socket.gaierror(str(error))) from None
    for *_, place in found:
        check_public(str(place[0]), host)
    name = connection._dns_host
    try:
        for number, (*_, place) in enumerate(found, start=1):
            connection._dns_host = str(place[0])  # what is connected to; a certificate is still of the name
            try:
                return HTTPConnection._new_conn(connection)
            except urllib3.exceptions.HTTPError:
                if number == len(found):
                    raise
    finally:
        connection._dns_host = name
    raise urllib3.exceptions.NameResolutionError(host, connection, socket.gaierror("no address"))


class _PublicHTTP(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(self)


class _PublicHTTPS(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(self)


class _PublicPool(HTTPConnectionPool):
    ConnectionCls = _PublicHTTP


class _PublicTLSPool(HTTPSConnectionPool):
    ConnectionCls = _PublicHTTPS


class PublicClient(Client):
    """Fetches from public addresses alone, redirects included; proxies are not used, which would hide the address."""

    def _pool(self, parts: SplitResult) -> urllib3.PoolManager:
        with self._lock:
            if None not in self._pools:
                pool = urllib3.PoolManager(headers=self._headers, maxsize=8)
                pool.pool_classes_by_scheme = {"http": _PublicPool, "https": _PublicTLSPool}
                self._pools[None] = pool
            return self._pools[None]


def import_job(bench: Workbench, job: BackgroundJob, limits: Limits) -> None:
    """Fetch a manifest's images, or those of a collection's manifests, into a folder of the project."""
    url = job.options["url"]
    options = ClientOptions(bench.project.private / "fetched", attempts=_ATTEMPTS, max_bytes=limits.file_bytes)
    client = (Client if limits.allow_private_iiif else PublicClient)(options)
    job.advance(message="fetching the manifest", unit="pages")
    failures: list[str] = []
    canvases: list[tuple[str, Canvas]] = []
    for reference in client.references(url, failures):
        job.check()
        try:
            found = client.load(reference.id)
        except SpikeHTRError as error:
            failures.append(str(error))
            continue
        if isinstance(found, Manifest):
            failures += found.problems
            canvases += [(name_of(reference.id), canvas) for canvas in found.canvases]
    for failure in failures:
        job.problem(url, failure)
    if not canvases:
        raise SpikeHTRError(f"{url}: nothing to import ({failures[0] if failures else 'no page'}); check the address")
    if len(canvases) > _MOST:
        job.problem(url, f"has {len(canvases)} pages; the first {_MOST} are taken")
    _fetch_all(bench, job, client, canvases[:_MOST], limits)
    bench.read_new(scanning.scan(bench, job))


def _fetch_all(
    bench: Workbench, job: BackgroundJob, client: Client, canvases: list[tuple[str, Canvas]], limits: Limits
) -> None:
    width = int(bench.project.settings["iiif_width"])
    numbers: dict[str, int] = {}
    job.advance(0, len(canvases), "")
    for done, (folder, canvas) in enumerate(canvases, start=1):
        numbers[folder] = number = numbers.get(folder, 0) + 1
        title = f"{folder}, page {number}"
        job.advance(done - 1, message=title)
        try:
            file = _image(client, canvas, width)
            name = uploads.safe_name(f"{folder}/{number:04d}")
            with file.open("rb") as opened:
                uploads.keep(bench.project, opened, PurePosixPath(name), limits)
        except SpikeHTRError as error:
            job.problem(title, str(error))
    job.advance(len(canvases))


def _image(client: Client, canvas: Canvas, width: int):  # type: ignore[no-untyped-def]
    if width and canvas.service is not None:
        try:
            return client.fetch(f"{canvas.service}/full/{width},/0/default.jpg")
        except RefusedError:
            pass
    return client.image(canvas)
