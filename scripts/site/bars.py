"""bars.py: draw the pictures of docs/benchmarks/gpu.md from its table of results: both show the same figures.

A picture compares recipe with a peer in the rows that it names, a bar each, light and dark, in docs/pictures.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks/gpu.md"
PICTURES = {  # name: title, unit, and the rows by their first cell with what the picture calls them
    "gpu-step": ("A step of the whole loop, in seconds: less is better", "s", {
        "step of the whole loop, LoRA, defaults": "1.5B, LoRA, one H100",
        "the same on one H200, 2026-11-30": "1.5B, LoRA, one H200",
    }),
    "gpu-tokens": ("A 7B training step, in thousand tokens a second: more is better", "k", {
        "7B step, LoRA, 8 × 8,192 tokens, bfloat16": "LoRA, 8 × 8,192 tokens",
        "7B step, LoRA, 2 × 32,768 tokens, bfloat16": "LoRA, 2 × 32,768 tokens",
    }),
}
COLORS = {"light": ("#1f2328", "#0969da", "#afb8c1", "#ffffff"), "dark": ("#e6edf3", "#4493f8", "#656c76", "#0d1117")}
WIDTH, LABEL, BAR = 720, 230, 26


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page, by their first cell."""
    found = (line.strip().strip("|").split("|") for line in page.split("\n") if line.startswith("|"))
    return {cells[0].strip(): [c.strip() for c in cells[1:]] for cells in found}


def number(cell: str) -> float:
    m = re.search(r"\d+(\.\d+)?", cell)
    if m is None:
        raise ValueError(f"{PAGE}: {cell!r} has no number")
    return float(m[0])


def picture(name: str, scheme: str, table: dict[str, list[str]]) -> str:
    title, unit, wanted = PICTURES[name]
    text, ours, theirs, back = COLORS[scheme]
    bars = []
    for row, label in wanted.items():
        if row not in table:
            raise ValueError(f"{PAGE} has no row {row!r}")
        peer = table[row][1].split()[0]
        bars += [(label, "recipe", number(table[row][0]), ours), ("", peer, number(table[row][1]), theirs)]
    most = max(value for _, _, value, _ in bars)
    height = 56 + len(bars) * (BAR + 6) + (len(wanted) - 1) * 14
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
           "<style>text { font: 14px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; "
           f"fill: {text} }} .t {{ font-weight: 600 }}</style>",
           f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{back}"/>',
           f'<text class="t" x="16" y="28">{html.escape(title)}</text>']
    y = 44
    for i, (label, who, value, color) in enumerate(bars):
        if label and i:
            y += 14
        length = (WIDTH - LABEL - 150) * value / most
        if label:
            out.append(f'<text x="16" y="{y + 18}">{html.escape(label)}</text>')
        out.append(f'<rect x="{LABEL}" y="{y}" width="{length:.0f}" height="{BAR}" rx="3" fill="{color}"/>')
        out.append(f'<text x="{LABEL + length + 8:.0f}" y="{y + 18}">{who} {value:g} {unit}</text>')
        y += BAR + 6
    return "\n".join([*out, "</svg>", ""])


def pictures() -> dict[str, str]:
    """The pictures by their file's name."""
    table = rows(PAGE.read_text(encoding="utf-8"))
    return {f"{name}-{scheme}.svg": picture(name, scheme, table) for name in PICTURES for scheme in COLORS}


if __name__ == "__main__":
    for file, svg in pictures().items():
        (ROOT / "docs/pictures" / file).write_text(svg, encoding="utf-8")
