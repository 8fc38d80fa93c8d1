"""Lightning's Fabric, without a second of loading that nothing here needs.

Not `lightning.fabric`, the same code: importing `lightning` loads torchvision where there is one, and fails where that
one was built for another torch. Fabric itself loads torchmetrics, and that SciPy and more, to look at its version.
"""

from __future__ import annotations

import sys
from typing import Any, cast

_modules = cast(dict[str, Any], sys.modules)
_hide = "torchmetrics" not in _modules
if _hide:
    _modules["torchmetrics"] = None  # Fabric takes it as not installed
try:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
finally:
    if _hide:
        del _modules["torchmetrics"]  # whoever does need it gets it

__all__ = ["Fabric", "SLURMEnvironment"]
