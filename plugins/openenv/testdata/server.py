"""OpenEnv servers for the tests: moves as JSON with faults to order, and tools."""

import os
import time
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    x: int
    note: str = ""


class Seen(Observation):
    text: str = ""
    seed: int = 0


class Moves(Environment[Move, Seen, State]):
    """An episode of two moves. Fault says what goes wrong in the first one; `once` is a file whose absence says that it
    has not gone wrong yet."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int = 0, episode_id: str | None = None, fault: str = "", once: str = "", **_: Any) -> Seen:
        self._state, self._seed, self._fault, self._once = State(), seed, fault, once
        return Seen(text="move", seed=seed)

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Seen:
        if self._fault and (not self._once or not os.path.exists(self._once)):
            if self._once:
                open(self._once, "w").close()
            self._fail()
        self._state.step_count += 1
        return Seen(text=f"moved {action.x}", seed=self._seed, reward=action.x, done=self._state.step_count == 2)

    def _fail(self) -> None:
        match self._fault:
            case "hang":
                time.sleep(30)
            case "die":
                os._exit(3)
            case "raise":
                raise ValueError("that move is not allowed")
            case "big":
                self._state.step_count += 1
                raise ValueError("x" * 100_000_000)

    @property
    def state(self) -> State:
        return self._state


class Tools(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("sums")

        @mcp.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        super().__init__(mcp)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        return Observation(metadata={"task": "add 1 and 2"})

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return Observation(reward=0.0)

    @property
    def state(self) -> State:
        return self._state


moves = create_fastapi_app(Moves, Move, Seen, max_concurrent_envs=int(os.environ.get("MAX_ENVS", "64")))
tools = create_fastapi_app(Tools, CallToolAction, CallToolObservation, max_concurrent_envs=8)
