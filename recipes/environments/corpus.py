"""Search over a folder of text files, ranked by BM25: an index of SQLite (FTS5) in memory, which Python brings."""

import re
import sqlite3
from pathlib import Path
from typing import List

SUFFIXES = (".txt", ".md")


class Corpus:
    """The passages of the text files in a folder and below it; a blank line ends a passage."""

    def __init__(self, folder: str):
        files = sorted(p for p in Path(folder).rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not files:
            raise ValueError(f"corpus = {folder!r}: the folder has no file that ends in {' or '.join(SUFFIXES)}")
        self.index = sqlite3.connect(":memory:")
        # porter: "islands" finds "island". rowid keeps the order of passages, in which equal ranks are returned.
        self.index.execute("CREATE VIRTUAL TABLE passages USING fts5(text, tokenize = 'porter unicode61')")
        for path in files:
            for passage in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
                if passage.strip():
                    self.index.execute("INSERT INTO passages VALUES (?)", (" ".join(passage.split()),))

    def search(self, query: str, most: int) -> List[str]:
        """The passages that have a word of the query, the best first."""
        words = re.findall(r"\w+", query)
        if not words:
            return []
        found = " OR ".join(f'"{word}"' for word in words)  # quoted: no word is an operator of the query language
        rows = self.index.execute(
            "SELECT text FROM passages WHERE passages MATCH ? ORDER BY bm25(passages), rowid LIMIT ?", (found, most)
        )
        return [text for (text,) in rows]
