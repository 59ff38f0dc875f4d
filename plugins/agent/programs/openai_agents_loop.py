"""`agent = "openai-agents"`: an Agent of the OpenAI Agents SDK with one tool, over Responses."""

from __future__ import annotations

import os

from agents import Agent, Runner, function_tool, set_tracing_disabled
from recipe_shell import arguments, bash

TURNS = 10_000  # budget.turns of the recipe is the limit


def main() -> None:
    asked = arguments()
    set_tracing_disabled(True)
    model = os.environ["OPENAI_MODEL"]
    agent = Agent(name="agent", instructions=asked.system, tools=[function_tool(bash)], model=model)
    print(Runner.run_sync(agent, asked.instruction, max_turns=TURNS).final_output)


if __name__ == "__main__":
    main()
