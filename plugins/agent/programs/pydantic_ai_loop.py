"""`agent = "pydantic-ai"`: an Agent of Pydantic AI with one tool, over Chat Completions."""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits
from recipe_shell import arguments, bash


def main() -> None:
    asked = arguments()
    agent = Agent("openai-chat:" + os.environ["OPENAI_MODEL"], system_prompt=asked.system, tools=[bash])
    # budget.turns of the recipe is the limit
    print(agent.run_sync(asked.instruction, usage_limits=UsageLimits(request_limit=None)).output)


if __name__ == "__main__":
    main()
