"""verifiers' own way to train on a program: its interception server and its client for training, over the scripted
model. Each branch of a trace is one training sample.

usage: verifiers_way.py MODEL CONVERSATIONS STYLE OUT [default]   default: the renderer of models that it does not know
       verifiers_way.py serve MODEL ENGINE SESSIONS   for load.sh: prints base URLs and keys, then serves
"""

import asyncio
import importlib.metadata
import sys
from concurrent.futures import ThreadPoolExecutor

import agents
from renderers import DefaultRendererConfig, Qwen3RendererConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.interception.server import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

VERSION = importlib.metadata.version("verifiers")
RENDERERS = {"Qwen3": Qwen3RendererConfig(), "default": DefaultRendererConfig(tool_parser="qwen3")}


def training(folder: str, engine: str, renderer: str) -> TrainClientConfig:
    return TrainClientConfig(base_url=f"{engine}/v1", renderer=RENDERERS[renderer], renderer_model_name=folder)


def begin(client: TrainClientConfig, number: int) -> tuple[RolloutSession, Trace]:
    trace = Trace(task=TraceTask(type="Task", data=TaskData(idx=number)), agent=AgentInfo(config=AgentConfig()))
    return RolloutSession(ctx=ModelContext(model="policy", client=client), trace=trace), trace


async def serve(folder: str, engine: str, count: int) -> None:
    client = training(folder, engine, "Qwen3")
    async with InterceptionServer() as server:
        for n in range(count):
            secret, _ = server.register(begin(client, n)[0])
            print(f"{server.base_url}/v1", secret, flush=n + 1 == count)
        await asyncio.Event().wait()


async def rollouts(client: TrainClientConfig, count: int, rewrites: bool) -> list[list[tuple[list[int], list[bool]]]]:
    """The agent in sessions of the interception server."""
    few, threads = asyncio.Semaphore(8), ThreadPoolExecutor(8)

    async def one(server: InterceptionServer, number: int) -> list[tuple[list[int], list[bool]]]:
        session, trace = begin(client, number)
        async with few, server.acquire(session) as (base_url, secret, _):
            run = asyncio.get_running_loop().run_in_executor  # asyncio's own threads are for the renderers
            await run(threads, agents.agent, f"{base_url}/v1", secret, number, rewrites)
        return [(b.token_ids, b.sampled_mask) for b in trace.branches if b.trainable]

    async with InterceptionServer() as server:
        return list(await asyncio.gather(*(one(server, n) for n in range(count))))


def main() -> None:
    if sys.argv[1] == "serve":
        asyncio.run(serve(sys.argv[2], sys.argv[3], int(sys.argv[4])))
        return
    folder, count, style, out, renderer = [*sys.argv[1:], "Qwen3"][:5]
    model = agents.Model(folder, style)
    server = agents.serve(model)
    client = training(folder, f"http://127.0.0.1:{server.server_port}", renderer)
    for rewrites in False, True:
        model.exchanges.clear()
        got = asyncio.run(rollouts(client, int(count), rewrites))
        way = f"verifiers {VERSION}, renderer {renderer}" + ", rewrites" * rewrites
        agents.report(agents.compare(way, model, got), out)
    server.shutdown()


if __name__ == "__main__":
    main()
