"""GSM8K in several turns with tools: the model calls a calculator in the form of Hermes models, reads the result, and
goes on until it answers. With `corpus`, a folder of text files, it can search these as well, and answers may be words.

What is different when a rollout has more than one turn:
- each member of the group is a conversation of its own, so they run side by side, each in its own managed server;
- the prompt of a turn is the whole text so far with the tool's answer appended. It only grows, so that the tokens of
  earlier turns stay the sampled ones and are never tokenized again; the tool's text is masked and not trained on;
- the tools run here, in the environment. A call that fails gets the error as its answer: the model learns from it.

The questions come from the hub (openai/gsm8k) or from local files, as in gsm8k.py.
"""

import ast
import json
import operator
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from atroposlib.envs.base import APIServerConfig
from conversations import Conversations, carry
from corpus import Corpus
from gsm8k import GSM8K, GSM8KConfig, same_number
from pydantic import Field

SYSTEM = (
    "Solve the problem step by step. You can call a calculator. To do so, write\n"
    '<tool_call>{"name": "calculator", "arguments": {"expression": "12 * (3 + 0.5)"}}</tool_call>\n'
    "and read the result. When you know the answer, write it as a number, for example <answer>42</answer>.\n"
)
SEARCH = (
    "Answer the question. You can search a collection of texts. To do so, write\n"
    '<tool_call>{"name": "search", "arguments": {"query": "height of the tower"}}</tool_call>\n'
    "and read what is found. A calculator is called in the same way:\n"
    '<tool_call>{"name": "calculator", "arguments": {"expression": "12 * (3 + 0.5)"}}</tool_call>\n'
    "When you know the answer, write nothing but it in the tags: <answer>42</answer>.\n"
)
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


class ToolsConfig(GSM8KConfig):
    max_turns: int = Field(default=6, description="Turns of one conversation")
    max_new_tokens: int = Field(default=256, description="Tokens of one turn")
    eval_temperature: float = Field(default=0.0, description="Temperature of evaluation; 0: greedy")
    corpus: Optional[str] = Field(default=None, description="Folder of text files; with it there is a tool search")
    passages: int = Field(default=3, description="Passages that one search returns at most")
    system_prompt: str = Field(default="", description="Text before the question; empty: one that explains the tools")


def calculate(expression: str) -> str:
    """The value of an expression of numbers with + - * / and parentheses; nothing else is ever run."""

    def value(node):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.operand))
        raise ValueError("expected numbers with + - * / and parentheses")

    if len(expression) > 100:
        raise ValueError("the expression is longer than 100 characters")
    result = value(ast.parse(expression.strip(), mode="eval").body)
    return str(result) if isinstance(result, int) else f"{result:.10g}"


Tool = Callable[[Dict[str, Any]], str]


def call(text: str, tools: Dict[str, Tool]) -> Optional[str]:
    """The tool's answer to the call in a turn; None when the turn has none."""
    found = re.search(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)
    if found is None:
        return None
    try:
        request = json.loads(found[1])
        if request["name"] not in tools:
            raise ValueError(f"there is no tool {request['name']}, only {', '.join(tools)}")
        return tools[request["name"]](request["arguments"])
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, SyntaxError, RecursionError) as e:
        return f"error: {e}"


def same_answer(answer: str, gold: str) -> bool:
    """Whether both are the same number, or the same words but for case and a full stop."""
    return same_number(answer, gold) or answer.strip(" .\n").casefold() == gold.strip(" .").casefold()


class Tools(Conversations, GSM8K):
    name = "tools"
    counted = "tool_calls"
    env_config_cls = ToolsConfig

    @classmethod
    def config_init(cls) -> Tuple[ToolsConfig, List[APIServerConfig]]:
        _, servers = super().config_init()
        config = ToolsConfig(
            group_size=8, use_wandb=False, max_token_length=1536, steps_per_eval=25, wandb_name="tools"
        )
        return config, servers

    async def setup(self):
        await super().setup()
        self.tools: Dict[str, Tool] = {"calculator": lambda given: calculate(given["expression"])}
        if self.config.corpus is not None:
            corpus = Corpus(self.config.corpus)
            self.tools["search"] = lambda given: self.found(corpus.search(given["query"], self.config.passages))
        self.system = self.config.system_prompt or (SYSTEM if self.config.corpus is None else SEARCH)

    @staticmethod
    def found(passages: List[str]) -> str:
        return "\n".join(passages) or "nothing was found"

    def held_out(self) -> List[dict]:
        return self.test[: self.config.eval_limit or None]

    def question(self, item: dict) -> str:
        return f"{self.system}\nProblem: {item['question']}\n"

    async def conversation(self, item: dict, temperature: float, split: str = "train"):
        """One rollout: its sequence, its score, and how often it called the tool."""
        text, calls, right, node, length = self.question(item), 0, False, None, 0
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            for _ in range(self.config.max_turns):
                if node is not None and length + self.config.max_new_tokens > self.config.max_token_length:
                    break
                reply = await managed.completion(
                    prompt=text,
                    n=1,
                    max_tokens=self.config.max_new_tokens,
                    temperature=temperature,
                    stop=["</tool_call>", "</answer>"],
                    split=split,
                )
                turn = reply.choices[0].text
                node = carry(node, managed.get_state()["nodes"][-1])
                text = node.full_text
                answer = re.search(r"<answer>([^<]*)", turn)
                if answer is not None:
                    right = same_answer(answer[1], item["gold"])
                    break
                # Some servers include the text that stopped the turn, others do not.
                response = call(turn if "</tool_call>" in turn else turn + "</tool_call>", self.tools)
                if response is None:
                    break
                calls += 1
                told = f"\n<tool_response>{response}</tool_response>\n"
                text += told
                length = len(node.tokens) + len(self.tokenizer.encode(told, add_special_tokens=False))
        return node, float(right), calls


if __name__ == "__main__":
    Tools.cli()
