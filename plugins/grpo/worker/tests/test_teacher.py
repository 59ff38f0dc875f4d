"""A reference that is served: log-probabilities of the very tokens at their very places, or none."""

import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from recipe_sdk.checkpoint import newest
from recipe_sdk.errors import DataError
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.ranks import Ranks
from recipe_sdk.testing import make_group
from transformers import AutoModelForCausalLM

from worker import batch as batches
from worker.metrics import Clock
from worker.teacher import Teacher, TeacherError

from .test_model import stepper

CPU = torch.device("cpu")
FAST = {"requests": 3, "timeout": 20.0}
KL = {"kl": {"coefficient": 0.1}}


class Served:
    """A server that answers as vLLM does, from a model in float64. spoil(answer, tokens, number) may change the answer
    of the number-th request, or return a status instead."""

    def __init__(self, path, spoil=lambda answer, tokens, number: 200):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).eval()
        served, lock = self, threading.Lock()
        self.requests, self.at_once, self.most, self.keys = [], 0, 0, set()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    served.requests.append(body)
                    served.keys.add(self.headers["Authorization"])
                    served.at_once += 1
                    served.most = max(served.most, served.at_once)
                    number = len(served.requests)
                    with torch.no_grad():
                        lp = model(torch.tensor([body["prompt"]])).logits[0].log_softmax(-1)
                tokens = body["prompt"]
                positions = [None] + [
                    {str(t): {"logprob": float(lp[k, t]), "rank": 1, "decoded_token": "x"}}
                    for k, t in enumerate(tokens[1:])
                ]
                answer = {"choices": [{"index": 0, "text": "", "prompt_logprobs": positions}]}
                status = spoil(answer, tokens, number)
                raw = json.dumps(answer).encode()
                with lock:
                    served.at_once -= 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    @property
    def block(self):
        """Settings of a trainer that asks it."""
        return {"inference": "inference.vllm.teacher", "url": self.url, "token": "k", "served_model": "t", **FAST}


@pytest.fixture
def serve(tmp_path_factory, tiny, tied):
    """Makes servers of a model that differs from the policy."""
    made = []

    def make(spoil=lambda *_: 200, path=None):
        made.append(Served(path or tied, spoil))
        return made[-1]

    yield make
    for s in made:
        s.server.shutdown()
        s.server.server_close()


def batch(n=3):
    return batches.build([read_group(make_group(10 + k), ReadOptions()) for k in range(n)])


def test_a_served_reference_is_a_loaded_one(tmp_path, tiny, tied, serve):
    """The same model as a second copy in the trainer and behind a server: the same step."""
    s = serve()
    kl = {"kl": {"coefficient": 0.5}}
    loaded = stepper(tmp_path, tiny, **kl, reference={"path": tied})
    served = stepper(tmp_path, tiny, **kl, reference=s.block)
    assert served.reference.copy is None and served.reference.source == "served"
    b = batch()
    want = loaded.reference_scores(b)
    got = served.taught(served.ask_teacher(b))
    assert got.shape == want.shape and float((got - want).abs().max()) < 1e-9
    assert float((want - loaded.scores(loaded.policy, b)["lp"]).abs().max()) > 1e-3  # it is another model
    one, two = loaded.train(b, 0, Clock(CPU)), served.train(b, 0, Clock(CPU))
    for name in ("loss/total", "kl/reference", "grad_norm"):
        assert two[name] == pytest.approx(one[name], abs=1e-9), name
    assert s.keys == {"Bearer k"} and {r["model"] for r in s.requests} == {"t"}


def test_kl_in_the_reward_waits_for_it(tmp_path, tiny, tied, serve):
    kl = {"kl": {"coefficient": 0.0, "reward_coefficient": 0.3}}
    loaded = stepper(tmp_path, tiny, **kl, reference={"path": tied}).train(batch(), 0, Clock(CPU))
    served = stepper(tmp_path, tiny, **kl, reference=serve().block).train(batch(), 0, Clock(CPU))
    assert served["kl/reward"] == pytest.approx(loaded["kl/reward"], abs=1e-9)
    assert served["loss/total"] == pytest.approx(loaded["loss/total"], abs=1e-9)


def test_requests_are_bounded_and_whole(tmp_path, tiny, serve):
    s = serve()
    w = stepper(tmp_path, tiny, **KL, reference=s.block)
    b = batch()
    w.train(b, 0, Clock(CPU))
    assert sorted(r["prompt"] for r in s.requests) == sorted(t.tolist() for t in b.tokens)
    assert 1 <= s.most <= FAST["requests"]
    assert all(r["prompt_logprobs"] == 0 and r["temperature"] == 1.0 for r in s.requests)


def shifted(answer, tokens, number):
    positions = answer["choices"][0]["prompt_logprobs"]
    positions[1:] = [*positions[2:], positions[1]]
    return 200


def elsewhere(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"] = [
        None, *({str(t + 1): {"logprob": -1.0}} for t in tokens[1:])
    ]  # fmt: skip
    return 200


def short(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"].pop()
    return 200


def null(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"][-1] = None
    return 200


def absent(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"] = None
    return 200


def empty(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"][-1][str(tokens[-1])]["logprob"] = None
    return 200


def positive(answer, tokens, number):
    answer["choices"][0]["prompt_logprobs"][-1][str(tokens[-1])]["logprob"] = 0.5
    return 200


@pytest.mark.parametrize(
    ("spoil", "part"),
    [(shifted, "has no log-probability of token"), (elsewhere, "has no log-probability of token"),
     (short, "positions for"), (null, "has no log-probability"), (absent, "there is no list prompt_logprobs"),
     (empty, "has no log-probability"), (positive, "has no log-probability"),
     (lambda *_: 400, "refuses a sequence: POST /completions"), (lambda *_: 401, "HTTP 401")],
)  # fmt: skip
# docs: distillation.md what is no answer trains nothing
def test_a_wrong_answer_trains_nothing(tmp_path, tiny, serve, spoil, part):
    s = serve(spoil)
    w = stepper(tmp_path, tiny, **KL, reference=s.block)
    before = [p.detach().clone() for p in w.policy.parameters()]
    with pytest.raises(TeacherError, match=part) as e:
        w.train(batch(), 0, Clock(CPU))
    assert "inference.vllm.teacher" in str(e.value) and e.value.setting == "reference.inference"
    assert all(torch.equal(p, q) for p, q in zip(w.policy.parameters(), before, strict=True))


def test_passing_failures_are_tried_again(tmp_path, tiny, tied, serve):
    s = serve(lambda answer, tokens, number: (503, 429, 500)[number - 1] if number <= 3 else 200)
    w = stepper(tmp_path, tiny, **KL, reference=s.block)
    b = batch()
    want = stepper(tmp_path, tiny, **KL, reference={"path": tied}).reference_scores(b)
    assert float((w.taught(w.ask_teacher(b)) - want).abs().max()) < 1e-9
    assert len(s.requests) == b.n + 3


def test_the_deadline_names_the_teacher(tmp_path, tiny, serve):
    s = serve(lambda *_: 503)
    w = stepper(tmp_path, tiny, **KL, reference={**s.block, "timeout": 0.5})
    with pytest.raises(TeacherError) as e:
        w.train(batch(), 0, Clock(CPU))
    for part in ("12 of 12 sequences from inference.vllm.teacher", "HTTP 503", "reference.timeout = 0.5 s"):
        assert part in str(e.value)


def test_another_temperature_is_refused(tmp_path, tiny, serve):
    s = serve()
    w = stepper(tmp_path, tiny, **KL, reference=s.block)
    b = batches.build([read_group(make_group(1), ReadOptions(temperature=0.7))])
    with pytest.raises(DataError, match=r"at temperature 1, the batch was sampled at 0\.7"):
        w.train(b, 0, Clock(CPU))
    assert not s.requests
    plain = stepper(tmp_path, tiny, **KL, reference=s.block, correction={"logprobs_mode": "raw"})
    assert plain.ask_teacher(b).question.batch is b


def test_a_long_wait_is_told(tmp_path, tiny, serve, monkeypatch):
    monkeypatch.setattr("worker.teacher.TELL_AFTER", 0.0)
    s = serve(lambda answer, tokens, number: 503 if number < 9 else 200)
    told = []
    w = stepper(tmp_path, tiny, **KL, reference=s.block)
    teacher = Teacher(lambda: w.config.reference, told.append)
    teacher.wait(teacher.ask(batch(), False))
    assert len(told) == 1 and "training waits for the log-probabilities of" in told[0]


# docs: distillation.md a student learns from its teacher's log-probabilities alone, without rewards
@pytest.mark.parametrize("score", [0.0, None])
def test_a_student_nears_its_teacher(tmp_path, tiny, serve, score):
    """Samples of the student itself, equal scores: the reverse KL of held-out samples falls."""
    s = serve()
    w = stepper(tmp_path, tiny, loss={"name": "distill", "probability_gap": 1.0}, kl={"coefficient": 0.0},
                reference=s.block, optimizer={"learning_rate": 3e-3})  # fmt: skip
    generator = torch.Generator().manual_seed(3)

    @torch.no_grad()
    def sampled(first, n=16, length=12):
        w.policy.eval()
        ids = torch.full((n, 2), 1) + torch.arange(n)[:, None] % 3 + first
        lp = torch.zeros(n, 0, dtype=torch.float64)
        for _ in range(length):
            now = w.policy.causal(ids).logits[:, -1].double().log_softmax(-1)
            token = torch.multinomial(now.exp(), 1, generator=generator)
            ids, lp = torch.cat([ids, token], 1), torch.cat([lp, now.gather(1, token)], 1)
        return batches.build([read_group({
            "tokens": ids.tolist(), "masks": [[-100] * 2 + row[2:] for row in ids.tolist()],
            "scores": [score or 0.0] * n,
            "inference_logprobs": [[1.0] * 2 + row for row in lp.tolist()],
        }, ReadOptions())])  # fmt: skip

    def distance():
        b = sampled(20, 64)
        return float((w.scores(w.policy, b)["lp"] - w.taught(w.ask_teacher(b))).mean())

    before = distance()
    for step in range(30):
        report = w.train(sampled(3), step, Clock(CPU))
        assert not [x for x in report["warnings"] if "every advantage" in x]
    after = distance()
    assert 0 < after < 0.6 * before, (before, after)


def test_a_run_keeps_no_token(make, api, serve):
    s = serve()
    block = {**s.block, "token": "teachers-secret"}
    w = make(api().url, kl={"coefficient": 0.1}, reference=block, steps=2)()
    assert w.reason == "completed" and s.keys == {"Bearer teachers-secret"}
    assert all(math.isfinite(m["kl/reference"]) and m["kl/reference"] > 0 for m in w.metrics())
    state = newest(w.config.checkpoint_dir) / "training" / "state.json"
    assert "teachers-secret" not in open(w.config.events_file).read()
    assert "teachers-secret" not in state.read_text()


def test_a_teacher_of_no_address(tmp_path, tiny):
    w = stepper(tmp_path, tiny, **KL, reference={"inference": "inference.vllm.teacher"})
    with pytest.raises(TeacherError, match=r"the address of inference\.vllm\.teacher is not known"):
        w.train(batch(), 0, Clock(CPU))


def test_without_a_kl_term_nothing_is_asked(tmp_path, tiny, serve):
    s = serve()
    stepper(tmp_path, tiny, kl={"coefficient": 0.0}, reference=s.block).train(batch(), 0, Clock(CPU))
    assert not s.requests


class Second(Ranks):
    """The second of two ranks, which is told what the first one says."""

    def __init__(self, said):
        super().__init__(CPU)
        self.rank, self.said = 1, said

    def share(self, value):
        assert value is None
        return self.said


def test_other_ranks_ask_nothing(tmp_path, tiny, serve):
    s, b = serve(), batch()
    want = torch.rand(b.size, dtype=torch.float64)
    for said in (want, TeacherError("no answer")):
        w = stepper(tmp_path, tiny, **KL, reference=s.block)
        w.ranks = Second(said)
        asked = w.ask_teacher(b)
        if said is want:
            assert torch.equal(w.taught(asked), want)
        else:
            with pytest.raises(TeacherError, match="no answer"):
                w.taught(asked)
    assert not s.requests


def test_settings_of_now_are_used(tmp_path, tiny, serve):
    """An address that is known only when the run starts, and a live change of requests."""
    s = serve()
    now = [stepper(tmp_path, tiny, **KL, reference={"inference": "inference.vllm.teacher"}).config.reference]
    teacher = Teacher(lambda: now[0])
    with pytest.raises(TeacherError):
        teacher.ask(batch(), False)
    now[0] = stepper(tmp_path, tiny, **KL, reference={**s.block, "requests": 1}).config.reference
    teacher.wait(teacher.ask(batch(), False))
    assert s.most == 1
