"""`spikehtr serve`: the workbench in a browser, and the HTTP service."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Optional

import typer

from spikehtr.cli.options import pick_device
from spikehtr.errors import SpikeHTRError


def serve(
    folder: Annotated[
        Path, typer.Argument(help="The project's folder: page images, and PAGE files beside them.")
    ] = Path(),
    model: Annotated[
        Optional[Path],
        typer.Option("--model", "-m", help="Model file (.safetensors). (default: bundled, the one that comes along)"),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at; any other than this computer's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any that is free.")] = 8765,
    token: Annotated[
        Optional[str],
        typer.Option(
            "--token",
            envvar="SPIKEHTR_TOKEN",
            help="What a browser or program must show. (default: a new one, where needed)",
        ),
    ] = None,
    allow_host: Annotated[
        Optional[list[str]],
        typer.Option("--allow-host", help="A further name that the server goes by, behind a proxy say. Repeatable."),
    ] = None,
    allow_private_iiif: Annotated[
        bool, typer.Option("--allow-private-iiif", help="IIIF manifests also from addresses that are not public.")
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the workbench in the browser.")] = True,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    backup: Annotated[
        Optional[Path],
        typer.Option("--backup", help="Write log, PAGE files and models into this .zip, and stop; a server may run."),
    ] = None,
) -> None:
    """Read and correct pages in a browser, and learn from the corrections.

    The pages of the folder are found, read and shown; every change is kept in a log, and written into the PAGE file
    beside its image. The same program answers POST /v1/transcribe (see /openapi.json). It listens to this computer
    alone unless --host says otherwise.
    """
    if backup is not None:
        from spikehtr.serve.backup import write_backup

        typer.echo(f"wrote {write_backup(folder, backup)}")
        return
    try:
        from spikehtr.serve.security import is_loopback, needs_token
        from spikehtr.serve.server import listen, run
    except ImportError as error:
        raise SpikeHTRError(f"the workbench needs {error.name}: pip install 'spikehtr[web]'") from None
    if token is not None and len(token) < 12:
        raise SpikeHTRError("--token: too short to be safe; take 12 characters or more")
    if token is None and needs_token(host, allow_host or ()):
        token = secrets.token_urlsafe(24)
    folder.mkdir(parents=True, exist_ok=True)
    listening = listen(host, port)
    port = listening.getsockname()[1]
    name = "localhost" if is_loopback(host) else host if host not in ("0.0.0.0", "::") else socket.gethostname()
    address = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
    shown = f"{address}?token={token}" if token else address

    from spikehtr.serve.limits import Limits
    from spikehtr.serve.security import Access
    from spikehtr.serve.workbench import Workbench

    if model is not None:  # a wrong one is told now, not by the first page that is to be read
        from spikehtr.serve.models import check_file

        check_file(model)
    bench = Workbench(folder, model, device if device in ("auto", "cpu") else pick_device(device))
    access = Access(host, token, frozenset(name.lower() for name in allow_host or ()))
    bench.load_reader_soon(browser_comes=browser)
    typer.echo(f"{folder.resolve().name}: {shown}\nCtrl-C stops the server; everything is kept.")
    if browser:
        threading.Thread(target=webbrowser.open, args=(shown,), daemon=True).start()
    run(bench, access, Limits(allow_private_iiif=allow_private_iiif), listening)
