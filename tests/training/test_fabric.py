"""Loading Fabric leaves no trace."""

import importlib
import sys

from spikehtr.training import fabric


def test_what_was_hidden_can_be_imported_afterwards(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchmetrics", raising=False)
    again = importlib.reload(fabric)
    assert again.Fabric is not None
    assert "torchmetrics" not in sys.modules  # None there would make every later import fail


def test_what_is_loaded_already_stays(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", sys)
    importlib.reload(fabric)
    assert sys.modules["torchmetrics"] is sys
