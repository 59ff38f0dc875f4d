"""Errors that tell a user what to do. Each has a code for machines, a sentence, and numbered things to check."""

from __future__ import annotations

from typing import Any


class WorkerError(RuntimeError):
    """A failure that ends the run, or a request that cannot be served. setting: the one that it is about, by its name
    in the configuration (lora.rank, config.optim); recipe shows where the recipe has it."""

    code = "error"

    def __init__(self, message: str, checks: list[str] | None = None, code: str | None = None, setting: str = ""):
        super().__init__(message)
        self.message, self.checks, self.setting = message, checks or [], setting
        self.code = code or type(self).code

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.checks, self.code, self.setting)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {k}. {c}" for k, c in enumerate(self.checks, 1))])

    def record(self) -> dict[str, Any]:
        """What an event carries."""
        about = {"setting": self.setting} if self.setting else {}
        return {"code": self.code, "message": self.message, "checks": self.checks, **about}


def _rebuild(cls: type[WorkerError], message: str, checks: list[str], code: str, setting: str = "") -> WorkerError:
    """Errors travel between ranks."""
    error = cls.__new__(cls)
    WorkerError.__init__(error, message, checks, code, setting)
    if isinstance(error, AtroposAPIError):
        error.kind = code.rsplit(".", 1)[-1]
    return error


class AtroposAPIError(WorkerError):
    """The trajectory API cannot be reached or refuses. kind: refused | unreachable | timeout | http_4xx | http_5xx |
    status | not_json | too_large | closed."""

    code = "trajectory_api"

    def __init__(self, kind: str, message: str, checks: list[str] | None = None):
        super().__init__(message, checks, f"trajectory_api.{kind}")
        self.kind = kind


class NoDataError(WorkerError):
    """No batch came for data.no_data_timeout seconds."""

    code = "no_data"


class MismatchError(WorkerError):
    """The sampler's log-probabilities cannot belong to these weights."""

    code = "mismatch"


class DivergedError(WorkerError):
    """Training has come to numbers that are not finite, and stays there."""

    code = "diverged"


class SyncTimeout(WorkerError):
    """The published weights were not acknowledged in time."""

    code = "sync_timeout"


class OutOfMemory(WorkerError):
    """The device ran out of memory."""

    code = "out_of_memory"


class DataError(WorkerError):
    """A batch breaks a rule that this run takes as fatal."""

    code = "data"


class CheckpointError(WorkerError):
    """A checkpoint cannot be read or written."""

    code = "checkpoint"


class Unwritable(CheckpointError):
    """A checkpoint could not be written for a reason that can pass: rights, a read-only or a failing disk. Nothing of
    it is left. folder: where it was to go."""

    code = "unwritable"
    remedies: tuple[str, ...] = (
        "May this user write there? Is the disk mounted, writable and sound? It is tried again.",
    )

    def __init__(self, message: str, folder: str):
        super().__init__(message, list(self.remedies))
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.folder)

    def awaited(self, free: int) -> str:
        """What the run waits for. free: bytes on the disk."""
        return f"{self.folder} to become writable: {self.message}"


class DiskFull(Unwritable):
    """A checkpoint or published weights found no room. Nothing of them is left."""

    code = "disk_full"
    remedies = ("Make room there: it is tried again.", "keep_last = 1 keeps fewer checkpoints.")

    def awaited(self, free: int) -> str:
        return f"room on the disk of {self.folder} ({free} bytes free): {self.message}"


def out_of_memory(
    phase: str, row_tokens: int, longest: int, used: int, limit: int, resident: int, movable: int = 0
) -> OutOfMemory:
    """What to lower, and by how much. used, limit, resident in bytes: peak so far, device size, and what stays
    allocated whatever the row size (weights, gradients, optimizer). movable: bytes of the optimizer's state that
    optimizer.offload would take from the device."""
    gib = 1 << 30
    room, wanted = max(limit - resident, 1), max(used - resident, 1)
    share = min(0.9 * room / wanted, 0.5) if wanted >= room else 0.5
    lower = max(int(row_tokens * share) // 64 * 64, 64)
    checks = [
        f"Lower model.row_tokens from {row_tokens} to {lower} (activations grow with it).",
        f"The longest sequence has {longest} tokens and cannot be split: lower data.max_response_length"
        + (f" below {lower}." if longest > lower else " if this happens with few tokens a row."),
        "Turn model.gradient_checkpointing on, or train adapters (lora.rank), or set reference.offload = true.",
        *([f"Set optimizer.offload = true: {movable / gib:.1f} GiB of AdamW's moments then lie in the host's memory."]
          if movable >= gib else []),
        "When inference shares the GPU, lower its gpu_memory_utilization or let it sleep during training.",
    ]  # fmt: skip
    return OutOfMemory(
        f"out of memory in phase {phase}: {used / gib:.1f} GiB used at the peak, {resident / gib:.1f} GiB of them "
        f"resident, the device has {limit / gib:.1f} GiB",
        checks,
    )
