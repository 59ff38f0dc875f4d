"""`agent = "smolagents"`: a CodeAgent, which writes Python, with one tool, over Chat Completions."""

from __future__ import annotations

import os

from recipe_shell import arguments, bash
from smolagents import CodeAgent, OpenAIServerModel, tool

STEPS = 10_000  # budget.turns of the recipe is the limit


def main() -> None:
    asked = arguments()
    model = OpenAIServerModel(
        os.environ["OPENAI_MODEL"], api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    agent = CodeAgent(tools=[tool(bash)], model=model, instructions=asked.system, max_steps=STEPS)
    print(agent.run(asked.instruction))


if __name__ == "__main__":
    main()
