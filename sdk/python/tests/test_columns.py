"""Batches as Arrow streams against the same batches as JSON, from the real server."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from recipe_sdk import columns
from recipe_sdk.api import Client
from recipe_sdk.errors import AtroposAPIError

pytest.importorskip("pyarrow")
ROOT = Path(__file__).resolve().parents[3]


def a_group(rng: random.Random) -> dict:
    """A group with every possible field, sometimes with more than columns can hold."""
    lengths = [rng.randrange(0, 9) for _ in range(rng.randrange(1, 5))]
    top = rng.choice([2**17, 2**31 - 1])

    def ids() -> list:
        return [[rng.choice([0, top, rng.randrange(200_000)]) for _ in range(n)] for n in lengths]

    def numbers() -> list:
        odd = [0.0, -0.0, 1.0, 5e-324, 3.4028234663852886e38, 123456789.125, 1, 2**60, 1e-7]
        return [[rng.choice([*odd, -rng.expovariate(1), math.log(rng.random())]) for _ in range(n)] for n in lengths]

    tokens = ids()
    masks = [[rng.choice([-100, token]) for token in row] for row in tokens]
    g = {"tokens": tokens, "masks": masks, "scores": [rng.random() for _ in lengths]}
    for name in ("inference_logprobs", "ref_logprobs", "advantages"):
        match rng.randrange(4):
            case 0:
                g[name] = numbers()
            case 1:
                g[name] = rng.choice([None, [], [[] for _ in lengths]])
    if rng.random() < 0.3:
        g |= {
            "messages": [[{"role": "user", "content": 'é "x" \n'}]],
            "images": {"a": [1, 2.5, None]},
            "policy_version": [1, 3],
        }
    if rng.random() < 0.3:
        g["overrides"] = [{"set_advantage_to_zero": True} for _ in lengths]
    return g


def test_columns_say_what_the_json_says(server, monkeypatch):
    rng = random.Random(5)
    for _ in range(40):
        groups = [a_group(rng) for _ in range(rng.randrange(1, 8))]
        size = sum(len(g["tokens"]) for g in groups)
        server.call(
            "POST",
            "/register",
            {"wandb_group": "", "batch_size": size, "max_token_len": 9, "checkpoint_dir": "", "num_steps": 9},
        )
        for g in groups:
            server.call("POST", "/scored_data", g)
        with monkeypatch.context() as m:
            m.setattr(columns, "pa", None)
            plain = server.call("GET", "/batch?lease=60s")
        server.call("POST", f"/batch/{plain['id']}/release", {})
        with monkeypatch.context() as m:
            decode = Mock(side_effect=columns.decode)
            m.setattr(columns, "decode", decode)
            fast = server.call("GET", "/batch?lease=60s")
        assert decode.called, "the reply was not an Arrow stream"
        fast["batch"] = json.loads(json.dumps(fast["batch"], default=lambda numbers: numbers.tolist()))
        assert fast["batch"] == plain["batch"]
        assert fast["lease_seconds"] == plain["lease_seconds"]
        for ours, theirs in zip(fast["batch"], plain["batch"], strict=True):
            assert list(map(type, ours["tokens"])) == list(map(type, theirs["tokens"]))
            assert all(type(t) is int for sequence in ours["tokens"] for t in sequence)
            assert all(type(x) in (int, float) for x in ours["scores"])
        server.call("POST", f"/batch/{fast['id']}/ack", {})
        assert server.call("GET", "/batch") == {"batch": None}


def test_a_damaged_stream_is_an_error_of_the_api(server, monkeypatch):
    server.call(
        "POST",
        "/register",
        {"wandb_group": "", "batch_size": 1, "max_token_len": 9, "checkpoint_dir": "", "num_steps": 9},
    )
    server.call("POST", "/scored_data", {"tokens": [[1]], "masks": [[1]], "scores": [1]})
    decode = columns.decode
    monkeypatch.setattr(columns, "decode", lambda raw: decode(raw[: len(raw) // 2]))
    with pytest.raises(AtroposAPIError) as e:
        server.call("GET", "/batch")
    assert e.value.kind == "not_json"


def test_without_pyarrow_json_is_asked_for():
    code = "import sys; sys.modules['pyarrow'] = None; from recipe_sdk import columns; print(columns.accept())"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "sdk/python/src"
    )
    assert out.stdout.strip() == "application/json"


def test_errors_and_events_do_not_quote_the_token():
    client = Client("http://me:s3cret@127.0.0.1:1/t/s3cret-s3cret", None, 5.0)
    with pytest.raises(AtroposAPIError) as e:
        client.call("GET", "/status")
    assert "s3cret" not in e.value.message + str(e.value.checks)
    assert "http://<token>@127.0.0.1:1/t/<token>" in e.value.message


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_columns_are_refused(compression):
    """A server that is not ours could make gigabytes of a few kilobytes."""
    import pyarrow as pa

    batch = pa.record_batch({"tokens": [[[0] * 100_000]], "scores": [[0.0]], "rest": ["{}"]})
    streams = []
    for chosen in (None, compression):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=chosen)) as stream:
            stream.write_batch(batch)
        streams.append(sink.getvalue().to_pybytes())
    plain, packed = streams
    assert len(columns.decode(plain)["batch"]) == 1
    with pytest.raises(ValueError, match="without compression"):
        columns.decode(packed)
