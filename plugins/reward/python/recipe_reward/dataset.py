"""Rows of a dataset: a JSON lines, JSON, CSV or Parquet file, a folder, or a name of the Hugging Face hub."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe_sdk import inflate

Row = dict[str, Any]


@dataclass
class Rows:
    """The rows of a dataset, and where they are."""

    name: str
    rows: list[Row]
    lines: list[int]  # of each, in a table the last one; none: not known

    def place(self, index: int) -> str:
        """Where a row is, for people."""
        return f"{self.name}:{self.lines[index]}" if self.lines else f"row {index + 1} of {self.name}"


#: Names under which files of several parts have their rows.
SPLITS = ("train", "training", "test", "validation", "data", "rows", "examples", "instances", "questions")
OTHERS = {";": "semicolons", "\t": "tabs"}  # what separates fields of tables that are named .csv


def read(name: str, folder: Path, *, split: str, config: str) -> Rows:
    """The rows of a file, if name ends as one does, or of a directory, both below folder; else of the hub."""
    path = folder / name
    packed = path.suffix.lower() == ".gz"
    ending = (path.with_suffix("") if packed else path).suffix.lower()
    if ending == ".parquet" and not packed:
        return Rows(name, _parquet(path), [])
    if ending in (".jsonl", ".ndjson"):
        return _lines(name, _text(path), path)
    if ending == ".json":
        return _json(name, path)
    if ending in (".csv", ".tsv"):
        return _table(name, path, "," if ending == ".csv" else "\t")
    if path.is_file():
        known = ".jsonl, .ndjson, .json, .csv and .tsv, each also as .gz, and .parquet"
        raise ValueError(f"{path}: the name of a file of rows ends in {known}")
    return Rows(name, _hub(str(path) if path.is_dir() else name, split, config), [])


def _parquet(path: Path) -> list[Row]:
    """The rows of a Parquet file. Repeated values take no room in one, so they are counted before they are read."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        values = sum(g.column(i).num_values for g in groups for i in range(g.num_columns))
        if values > max(1 << 26, 20 * path.stat().st_size):
            raise ValueError(f"{path}: it has {values} values, more than 67 million and 20 a byte: write JSON lines")
        found: list[Row] = file.read().to_pylist()
        return found


def _lines(name: str, text: str, path: Path) -> Rows:
    """JSON objects, one a line."""
    # not splitlines, which ends a line at characters that JSON strings may hold
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    return Rows(name, [_object(line, f"{path}:{n}") for n, line in lines], [n for n, _ in lines])


def _json(name: str, path: Path) -> Rows:
    """A list of objects, or objects one a line, as datasets and pandas write them."""
    text = _text(path)
    try:
        rows = json.loads(text)
    except ValueError as e:
        if text.lstrip().startswith("{"):
            return _lines(name, text, path)
        raise ValueError(f"{path}: want a list of JSON objects, or one object a line: {e}") from e
    if isinstance(rows, dict):
        for part in SPLITS:
            if isinstance(rows.get(part), list) and rows[part] and isinstance(rows[part][0], dict):
                raise ValueError(
                    f"{path} is one object, with rows in its member {part!r}; want a list of rows. Write the list to a "
                    f"file of its own: jq .{part} FILE > ROWS.json"
                )
        return _lines(name, text, path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: want a list of objects")
    return Rows(name, rows, [])


def _table(name: str, path: Path, delimiter: str) -> Rows:
    """The lines of a table with a line of names."""
    csv.field_size_limit(1 << 30)  # a prompt may be longer than 131072 characters
    with io.StringIO(_text(path), newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        rows, ends = [], list[int]()
        names = reader.fieldnames or []
        other = next((what for mark, what in OTHERS.items() if len(names) == 1 and mark in names[0]), "")
        if other and delimiter == ",":
            raise ValueError(
                f"{path}:1: the line of names has no comma, and fields that {other} separate: {names[0]!r:.80}. "
                "Separate the fields of all lines by commas; one with tabs has a name that ends in .tsv"
            )
        try:
            for row in reader:
                rows.append(_line(row, f"{path}:{reader.line_num}"))
                ends.append(reader.line_num)
        except csv.Error as e:
            raise ValueError(f"{path}:{reader.line_num}: {e}") from e
    return Rows(name, rows, ends)


def _text(path: Path) -> str:
    """A file's text, with or without a byte order mark."""
    try:
        data = path.read_bytes()
        if path.suffix.lower() == ".gz":
            data = inflate.gunzip(data, max(1 << 30, 200 * len(data)))
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except inflate.TooLarge as e:
        raise ValueError(f"{path}: it inflates to more than 1 GiB and 200 times its size: decompress it") from e
    except (gzip.BadGzipFile, EOFError) as e:
        raise ValueError(f"{path}: it is no whole gzip file: {e}") from e
    except UnicodeDecodeError as e:
        raise ValueError(f"{path}: want text in UTF-8: {e}") from e


def _line(row: dict[Any, Any], place: str) -> Row:
    """A line of a CSV file, which must have as many fields as the first."""
    if None in row or None in row.values():
        raise ValueError(f"{place}: it has another number of fields than the first line; quote fields with commas")
    return dict(row)


def _object(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise ValueError(f"{place}: want a JSON object, got {line[:80]!r}") from e
    if not isinstance(row, dict):
        raise ValueError(f"{place}: want a JSON object, got {line[:80]!r}")
    return row


def _hub(name: str, split: str, config: str) -> list[Row]:
    import datasets

    return [dict(row) for row in datasets.load_dataset(name, config or None, split=split)]
