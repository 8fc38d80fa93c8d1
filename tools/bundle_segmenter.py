"""Makes a trained line network the one that comes with the package, and writes its card.

    python tools/bundle_segmenter.py RUN/segmenter.safetensors ATTRIBUTION.md

ATTRIBUTION.md is as for `tools/bundle.py`; what it says of the collections goes into the card, and into the file
itself, which may travel alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bundle import describe, read_attribution

from spikehtr.assets import SEGMENTER, SEGMENTER_CARD
from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.pages.segment import network_weights
from spikehtr.pages.segment.line_network import parameters

LARGEST = 4e6  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path)
    parser.add_argument("attribution", type=Path)
    options = parser.parse_args()
    network = network_weights.load(options.network)
    header = network_weights.line_network_header(options.network)
    about = {name: value for name, value in header.items() if name not in ("kind", "shape")}
    about["attribution"] = read_attribution(options.attribution, about["collections"])
    network_weights.save(SEGMENTER, network.state_dict(), network.shape, about, half=True)
    if SEGMENTER.stat().st_size > LARGEST:
        raise SpikeHTRError(f"{SEGMENTER}: larger than {LARGEST / 1e6:g} MB")
    card = f"""# The line network that comes along

Finds the lines of pages (`--segmenter network`, the default): {parameters(network):,} parameters, \
{SEGMENTER.stat().st_size / 1e6:.1f} MB. How it works, and how well it does on collections it was never shown, is told \
in the documentation of the source ("Finding lines", "How well are lines found on pages?").

It learned from {about["pages"]} pages of {len(about["collections"])} collections, {about["step"]} steps:

```sh
{about["command"]}
```

**What to expect.** Manuscripts, letters, registers in Latin script, as scans or photographs, whichever way they \
lie. On other layouts look at its lines first (`spikehtr transcribe --lines-only --overlay`), and train one of your \
own where it does not do (`spikehtr segmenter train`).

## What it was trained on

The network is made of these works and is published under CC-BY 4.0 like them: name them where you publish it, or
what you make of it.

{describe(about["attribution"])}
"""
    with whole_file(SEGMENTER_CARD) as path:
        path.write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
