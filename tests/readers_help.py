"""Recordings as they behave, without a GPU: work is done again on the very tensors it was recorded with."""

import torch

from spikehtr.ops.recording import Recordings


def tensors(held):
    if isinstance(held, torch.Tensor):
        return [held]
    return [tensor for part in held or () for tensor in tensors(part)]


class Rehearsals(Recordings):
    def __init__(self):
        super().__init__(torch.device("cpu"))

    def has_room(self):
        return True

    def capture(self, work, rehearse):
        if not rehearse:
            return work, None
        held = work()

        def replay():
            for old, new in zip(tensors(held), tensors(work()), strict=True):
                old.copy_(new)

        return replay, held
