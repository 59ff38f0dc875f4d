"""What a trainer computed for the tokens of a batch, posted to the trajectory API for the record of samples. It is for
people: nothing waits for it, and a batch whose report fails is recorded without it."""

from __future__ import annotations

import base64
import threading
from typing import Any

import torch
from torch import Tensor

from .api import Client
from .batch import GroupBatch
from .errors import AtroposAPIError
from .groups import trained

LAST = 10.0  # seconds that close waits for the report of the last step


class Recorder:
    """Posts to POST /batch/{lease}/trained from a thread, one batch at a time."""

    def __init__(self, client: Client):
        self.client = client
        self.wanted = True  # False once the server has said that it records nothing
        self._thread: threading.Thread | None = None

    def post(self, batch: GroupBatch, version: int, values: dict[str, Tensor]) -> None:
        """Reports a batch that was trained from the weights of a policy version, unless the server does not record it
        or the report before is still under way."""
        busy = self._thread is not None and self._thread.is_alive()
        if batch.lease is None or not values or not self.wanted or busy:
            return
        body = {"step": batch.step, "version": version, "groups": groups(batch, values)}
        self._thread = threading.Thread(target=self._post, args=(batch.lease, body), name="record", daemon=True)
        self._thread.start()

    def _post(self, lease: str, body: dict[str, Any]) -> None:
        try:
            answer = self.client.call("POST", f"/batch/{lease}/trained", body)
        except AtroposAPIError as e:
            self.wanted = e.kind != "http_4xx"  # a server without the route, or without these leases
            return
        self.wanted = not isinstance(answer, dict) or answer.get("recorded") != 0

    def close(self) -> None:
        """Waits for the report that is under way."""
        if self._thread is not None:
            self._thread.join(LAST)


def groups(batch: GroupBatch, values: dict[str, Tensor]) -> list[dict[str, Any]]:
    """The groups of the request's body. values: [N] each, in the order of the batch's trained tokens. The API counts
    every token whose mask is set; a sequence that this trainer left out of the loss gets NaN."""
    done = [c for g in batch.groups for c in g.completions]
    lengths = [len(c.positions) for c in done]
    split: dict[str, list[Tensor]] = {}
    for name, x in values.items():
        if x.shape != (sum(lengths),):
            raise ValueError(f"{name} has the shape {list(x.shape)}, expected [{sum(lengths)}]: one a trained token")
        split[name] = list(x.split(lengths))
    out, first = [], 0
    for group, raw, place in zip(batch.groups, batch.raw, batch.places, strict=True):
        row: dict[str, Any] = {"index": place}
        for name, parts in split.items():
            read = {c.sequence: parts[first + i] for i, c in enumerate(group.completions)}
            whole = [_whole(read.get(i), mask) for i, mask in enumerate(raw["masks"])]
            row[name] = base64.b64encode(torch.cat(whole).numpy().astype("<f4").tobytes()).decode()
        first += len(group.completions)
        out.append(row)
    return out


def _whole(values: Tensor | None, mask: Any) -> Tensor:
    """One value for each token that the mask marks, the first token excepted."""
    marked = int((trained(mask) > 0).sum())
    return values if values is not None and len(values) == marked else torch.full((marked,), float("nan"))
