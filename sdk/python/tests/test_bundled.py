"""The environments that come with recipe, where they need neither a model nor another package."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from recipe_sdk import Code
from recipe_sdk.environment.base import Context

PLUGINS = Path(__file__).parents[3] / "plugins"


def loaded(name: str, path: Path, package: bool = False) -> ModuleType:
    found = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=found)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


loaded("recipe_reward", PLUGINS / "reward/python/recipe_reward/__init__.py", True)
reward = importlib.import_module("recipe_reward.reward")
read = importlib.import_module("recipe_reward.dataset").read
text = loaded("recipe_gymnasium_text", PLUGINS / "gymnasium/python/recipe_gymnasium/text.py")


def test_an_alternation_names_the_action_found() -> None:
    pattern = re.compile("(0)|(2)")
    for answer, index in (("I take 0", 0), ("I take 2", 1), ("0 or 2", 1), ("none", None)):
        assert text.chosen(answer, pattern, ["0", "2"]) == index
    assert text.chosen("go <hit> or stick", re.compile("<(.*?)>"), ["stick", "hit"]) == 1


def test_lines_end_where_json_lines_do(tmp_path: Path) -> None:
    rows = [{"prompt": "a\u2028b\u0085c"}, {"prompt": "d"}]
    lines = "\r\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\r\n\r\n"
    (tmp_path / "d.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    found = read("d.jsonl", tmp_path, split="", config="")
    assert found.rows == rows
    assert [found.place(0), found.place(1)] == ["d.jsonl:1", "d.jsonl:2"]
    (tmp_path / "d.jsonl").write_bytes(b'{"prompt": "\xe4"}\n')
    with pytest.raises(ValueError, match=r"d\.jsonl: want text in UTF-8"):
        read("d.jsonl", tmp_path, split="", config="")


def test_a_line_of_a_table_that_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text('prompt,answer\n"a, b",1\n')
    found = read("d.csv", tmp_path, split="", config="")
    assert found.rows == [{"prompt": "a, b", "answer": "1"}]
    assert found.place(0) == "d.csv:2"
    for line in ("a,1,2", "a"):
        (tmp_path / "d.csv").write_text(f"prompt,answer\nb,1\n{line}\n")
        with pytest.raises(ValueError, match=r"d\.csv:3: it has another number of fields"):
            read("d.csv", tmp_path, split="", config="")


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        ({"prompt": 12}, False),
        ({"prompt": None}, False),
        ({"prompt": ""}, False),
        ({"prompt": [{"from": "human", "value": "1+1="}]}, False),
        ({"prompt": []}, False),
        ({"answer": "a"}, False),
        ({"prompt": [{"role": "user", "content": "1+1="}]}, True),
    ],
)
def test_a_row_that_is_no_prompt_is_named_early(tmp_path: Path, row: dict[str, object], fits: bool) -> None:
    (tmp_path / "r.py").write_text("def f(completions, **_): return [1.0]\n")
    rows = [{"prompt": "a"}, {"prompt": "b"}, row]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    made = reward.Reward()
    made.context = Context("e", tmp_path, tmp_path)
    made.settings = reward.Settings(dataset="d.jsonl", function=Code(tmp_path / "r.py", "f"), eval_rows=1)
    if fits:
        made.setup()
        return
    with pytest.raises(ValueError, match=r"d\.jsonl:3: want in column 'prompt'"):
        made.setup()


@pytest.mark.parametrize(("held", "same"), [("a", 1), ("c", 0), ([{"role": "user", "content": "b"}], 1)])
def test_held_out_rows_that_are_trained_on_are_counted(tmp_path: Path, held: object, same: int) -> None:
    (tmp_path / "r.py").write_text("def f(completions, **_): return [1.0]\n")
    rows = [{"prompt": held}, {"prompt": "a"}, {"prompt": "a"}, {"prompt": [{"content": "b", "role": "user"}]}]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    made, said = reward.Reward(), []
    made.log = lambda message, level="info": said.append(message)  # type: ignore[method-assign]
    made.context = Context("e", tmp_path, tmp_path)
    made.settings = reward.Settings(dataset="d.jsonl", function=Code(tmp_path / "r.py", "f"), eval_rows=1)
    made.setup()
    assert len([m for m in said if "1 of the 1 rows that eval_rows keeps back" in m]) == same


def test_functions_of_one_name_have_separate_metrics(tmp_path: Path) -> None:
    given = [("a.py", "f"), ("b.py", "f"), ("a.py", "f"), ("b.py", "g")]
    functions = [reward.Function(Code(tmp_path / file, name)) for file, name in given]
    assert reward._names(functions) == ["f", "f_2", "f", "g"]


@pytest.mark.parametrize(
    ("signature", "absent"),
    [
        ("completions, answer, **kwargs", []),
        ("prompts, completions, completion_ids, trainer_state, log_metric, log_extra, answer", []),
        ("completions, answer=None, level=3, **kwargs", []),
        ("completions, answr, level, **kwargs", ["answr", "level"]),
        ("completions, *, level", ["level"]),
    ],
)
def test_missing_columns_are_named_early(tmp_path: Path, signature: str, absent: list[str]) -> None:
    (tmp_path / "r.py").write_text(f"def f({signature}): return [1.0]\n")
    (tmp_path / "d.jsonl").write_text('{"prompt": "a", "answer": "1"}\n' * 3)
    made = reward.Reward()
    made.context = Context("e", tmp_path, tmp_path)
    made.settings = reward.Settings("d.jsonl", function=Code(tmp_path / "r.py", "f"), eval_rows=1)
    if not absent:
        made.setup()
        return
    with pytest.raises(ValueError, match=f"f needs {' and '.join(map(repr, absent))}.*it has prompt, answer"):
        made.setup()


def test_arguments_not_taken_are_named_at_setup(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def f(prompts, completions): return [1.0]\n")
    (tmp_path / "d.jsonl").write_text('{"prompt": "a", "answer": "1"}\n' * 3)
    made = reward.Reward()
    made.context = Context("e", tmp_path, tmp_path)
    made.settings = reward.Settings("d.jsonl", function=Code(tmp_path / "r.py", "f"), eval_rows=1)
    with pytest.raises(ValueError, match=r"f does not take .*'answer'.*\*\*kwargs"):
        made.setup()


def test_a_decorator_may_take_any_arguments(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import functools\n\ndef some(g):\n    @functools.wraps(g)\n"
        "    def h(completions, **rest): return g(completions)\n"
        "    return h\n\n@some\ndef f(completions): return [1.0]\n"
    )
    (tmp_path / "d.jsonl").write_text('{"prompt": "a", "answer": "1"}\n' * 3)
    made = reward.Reward()
    made.context = Context("e", tmp_path, tmp_path)
    made.settings = reward.Settings("d.jsonl", function=Code(tmp_path / "r.py", "f"), eval_rows=1)
    made.setup()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.csv", "prompt;answer\n1;2\n", "d.csv:1: the line of names has no comma, and fields that semicolons"),
        ("d.csv", "prompt\tanswer\n1\t2\n", "one with tabs has a name that ends in .tsv"),
        ("d.json", '{"train": [{"prompt": "1"}]}', "rows in its member 'train'; want a list of rows"),
    ],
)
def test_files_of_another_form_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read(name, tmp_path, split="", config="")


def test_what_only_looks_like_another_form_is_read(tmp_path: Path) -> None:
    for name, text, rows in (
        ("d.csv", "prompt\na;b\n", [{"prompt": "a;b"}]),
        ("d.json", '{"prompt": "1", "data": [1]}', [{"prompt": "1", "data": [1]}]),
    ):
        (tmp_path / name).write_text(text)
        assert read(name, tmp_path, split="", config="").rows == rows


def test_a_parquet_file_of_repeated_values_is_refused(tmp_path):
    """A megabyte of them would be gigabytes of rows."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    repeated = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), (1 << 26) + 1), pa.array(["x"]))
    pyarrow.parquet.write_table(pa.table({"prompt": repeated}), tmp_path / "bomb.parquet")
    with pytest.raises(ValueError, match="67108865 values"):
        read("bomb.parquet", tmp_path, split="", config="")
