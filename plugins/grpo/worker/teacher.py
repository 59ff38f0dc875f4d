"""A teacher that is served: log-probabilities of a batch's tokens from an inference block.

Each sequence is one request for the log-probabilities of a prompt (vLLM: prompt_logprobs), several requests at a time;
the engine batches them. They are under way while the trainer calculates its own. Nothing stands in for an answer that
does not come: the batch is not trained.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from recipe_sdk.api import Client
from recipe_sdk.errors import AtroposAPIError, DataError, WorkerError
from torch import Tensor

from .batch import Batch
from .settings import Reference

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts
TELL_AFTER = 30.0  # seconds of waiting
PASSING = (408, 425, 429)  # statuses of 4xx that another attempt can change


class TeacherError(WorkerError):
    """The teacher did not give the log-probabilities of a batch."""

    code = "teacher"


@dataclass
class Question:
    """A batch that the teacher was asked about."""

    batch: Batch
    client: Client
    model: str
    timeout: float
    deadline: float
    open: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)  # sequences without a request
    answers: queue.SimpleQueue[tuple[int, list[float] | WorkerError]] = field(default_factory=queue.SimpleQueue)
    trouble: str = ""  # of the last attempt that failed
    given_up: bool = False


class Teacher:
    """The inference block of reference.inference."""

    def __init__(self, settings: Callable[[], Reference], tell: Callable[[str], None] = lambda _: None):
        """settings: returns the present ones, with an address once the run has started. tell: shows what training
        waits for, once for each batch that waits long."""
        self.settings, self.tell = settings, tell

    @property
    def name(self) -> str:
        """The inference block."""
        return self.settings().inference or ""

    def ask(self, b: Batch, raw: bool) -> Question:
        """Sends the requests for a batch. raw: the loss takes log-probabilities that ignore the temperature."""
        r = self.settings()
        if not r.url:
            raise TeacherError(f"the address of {r.inference} is not known", [f"Does {r.inference} have base_url?"])
        warm = b.temperature[(b.temperature - 1).abs() > 1e-6]
        if not raw and len(warm):
            raise DataError(
                f"{self.name} gives log-probabilities at temperature 1, the batch was sampled at {float(warm[0]):g}, "
                "and the loss compares the two at that temperature",
                ["Set temperature = 1 in the environment.",
                 'Or set correction { logprobs_mode = "raw" } here and logprobs_mode = "raw_logprobs" in inference.'],
                "teacher",
            )  # fmt: skip
        q = Question(b, Client(r.url, r.token, r.timeout), r.served_model, r.timeout, time.monotonic() + r.timeout)
        wanted = [i for i in range(b.n) if len(b.positions[i])]
        for i in wanted:
            q.open.put(i)
        for _ in range(min(r.requests, len(wanted))):
            threading.Thread(target=self._work, args=(q,), name="teacher", daemon=True).start()
        return q

    def wait(self, q: Question) -> Tensor:
        """(N,) log-probabilities of the batch's trained tokens; TeacherError without them."""
        b = q.batch
        out = torch.full((b.size,), math.nan, dtype=torch.float64)
        missing = {i for i in range(b.n) if len(b.positions[i])}
        began, told = time.monotonic(), False
        try:
            while missing:
                now = time.monotonic()
                if now >= q.deadline:
                    raise self._late(q, len(missing))
                if not told and now - began > TELL_AFTER:
                    told = True
                    self.tell(f"training waits for {self._waiting(q, len(missing))}")
                try:
                    i, answer = q.answers.get(timeout=min(1.0, q.deadline - now))
                except queue.Empty:
                    continue
                if isinstance(answer, WorkerError):
                    raise answer
                # an entry is the log-probability of the token at its position
                out[b.offset[i] : b.offset[i + 1]] = torch.tensor(answer, dtype=torch.float64)[b.positions[i]]
                missing.remove(i)
        finally:
            q.given_up = True
        return out

    def _waiting(self, q: Question, missing: int) -> str:
        trouble = f"; last: {q.trouble}" if q.trouble else ""
        return f"the log-probabilities of {missing} of {q.batch.n} sequences from {self.name}{trouble}"

    def _late(self, q: Question, missing: int) -> TeacherError:
        return TeacherError(
            f"{self.name} did not give {self._waiting(q, missing)} within reference.timeout = {q.timeout:g} s",
            [f"Does {self.name} run, and does its log show requests to /completions?",
             "Raise reference.timeout for a slow teacher; reference.requests is how many it gets at once."],
            setting="reference.inference",
        )  # fmt: skip

    def _work(self, q: Question) -> None:
        """Requests sequences until none is left. A failed attempt is repeated up to the deadline, unless the next one
        would fail in the same way."""
        while not q.given_up:
            try:
                i = q.open.get_nowait()
            except queue.Empty:
                return
            pause = FIRST_PAUSE
            while not q.given_up and time.monotonic() < q.deadline:
                try:
                    q.answers.put((i, self._logprobs(q, q.batch.tokens[i].tolist())))
                    break
                except AtroposAPIError as e:
                    if lasting(e):
                        q.answers.put((i, self._refused(e)))
                        return
                    q.trouble = e.message
                except Exception as e:
                    own = isinstance(e, WorkerError)
                    q.answers.put((i, e if own else TeacherError(f"{self.name}: {type(e).__name__}: {e}")))
                    return
                time.sleep(min(pause, max(q.deadline - time.monotonic(), 0)))
                pause = min(2 * pause, LONGEST_PAUSE)

    def _logprobs(self, q: Question, tokens: list[int]) -> list[float]:
        """The log-probability of each token given those before it; NaN for the first."""
        body: dict[str, Any] = {"prompt": tokens, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        if q.model:
            body["model"] = q.model
        answer = q.client.call("POST", "/completions", body, max(q.deadline - time.monotonic(), 0.1))
        return read(answer, tokens, self.name)

    def _refused(self, e: AtroposAPIError) -> TeacherError:
        return TeacherError(
            f"{self.name} refuses a sequence: {e.message}",
            ["Does it serve a model with the policy's tokenizer?",
             "Is its longest sequence at least one token longer than max_length of the trainer?"],
            setting="reference.inference",
        )  # fmt: skip


def lasting(e: AtroposAPIError) -> bool:
    """Whether another attempt would fail in the same way."""
    status = getattr(e.__cause__, "code", 0)
    return e.kind in ("not_json", "too_large", "status") or (e.kind == "http_4xx" and status not in PASSING)


def read(answer: Any, tokens: list[int], name: str) -> list[float]:
    """The log-probabilities in an answer; TeacherError unless there is one for each of these very tokens."""

    def wrong(what: str) -> TeacherError:
        return TeacherError(
            f"{name} answers without the log-probabilities of the prompt: {what}",
            ["Expected prompt_logprobs in the shape of vLLM's /v1/completions: null for the first token, then an "
             "object with the token's id for each.", "Use inference \"vllm\", or a server that offers prompt_logprobs.",
             "Does a proxy between the two change requests or answers?"],
            setting="reference.inference",
        )  # fmt: skip

    try:
        found = answer["choices"][0]["prompt_logprobs"]
    except (KeyError, IndexError, TypeError):
        found = None
    if not isinstance(found, list):
        raise wrong("there is no list prompt_logprobs")
    if len(found) != len(tokens):
        raise wrong(f"{len(found)} positions for {len(tokens)} tokens")
    out = [math.nan]
    for t, (token, at) in enumerate(zip(tokens[1:], found[1:], strict=True), 1):
        entry = at.get(str(token)) if isinstance(at, dict) else None
        value = entry.get("logprob") if isinstance(entry, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -math.inf < value <= 1e-3:
            raise wrong(f"position {t} has no log-probability of token {token}")
        out.append(min(float(value), 0.0))
    return out
