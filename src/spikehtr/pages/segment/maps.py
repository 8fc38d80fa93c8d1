"""What the line network says of an image, as numpy has it: who decodes maps needs neither PyTorch nor the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MULTIPLE = 32  # sides of the network's input must be multiples of this
FINE, COARSE = 2, 4  # pixels of the input to one of the fine and the coarse maps
FINE_NAMES = ("baseline", "start", "end", "border")
COARSE_NAMES = ("body", "above", "below", "up0", "up90", "up180", "up270")
UNIT = 16.0  # pixels: heights are learned as the logarithm of their ratio to this

Gray = NDArray[np.uint8]


class Logits(NamedTuple):
    """Of one image, in the precision that the network computed them in."""

    fine: NDArray[Any]  # [4, H/2, W/2]
    coarse: NDArray[Any]  # [7, H/4, W/4]


LookAt = Callable[[Sequence[Gray]], list[Logits]]  # images of any sizes; what is said of one does not depend on others
