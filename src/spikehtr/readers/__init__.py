"""From fitted lines to frames and text, as fast as the device allows.

`make_reader` chooses: `torch` serves every network on every device, `cuda_graphs` Spike-HTR on a GPU, `cpu` Spike-HTR
on a CPU by compiled functions. `LineReader` goes from line images to `Line`s by any of them.
"""

from spikehtr.data.geometry import FittedLine
from spikehtr.readers.base import Precision, Reader, as_floats
from spikehtr.readers.factory import make_reader, uses_bf16
from spikehtr.readers.line_reader import LineReader, read_batches

__all__ = ["FittedLine", "LineReader", "Precision", "Reader", "as_floats", "make_reader", "read_batches", "uses_bf16"]
