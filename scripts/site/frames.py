"""frames.py FOLDER light|dark RUN: print an animated SVG of the screens in FOLDER, texts with ANSI colors.

A screen was taken each half second. RUN is the folder in which the run was: the picture shows it as ~. A screen that
stays is one frame; the last one is held for six seconds, then the recording begins again. A reader who wants no motion
sees the last one.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.style import Style

WIDTH, LINE, PAD = 8.4, 17, 16  # of a column, a row and the margin, in pixels
COLUMNS = 100
STEP, LAST = 0.5, 6.0  # seconds of a screen, and of the last one
FRAMES = 16  # at most
NAMES = ["", "red", "green", "yellow", "blue", "magenta", "cyan", ""]  # of the first eight colors of a terminal
COLORS = {
    "light": {"back": "#ffffff", "text": "#1f2328", "edge": "#d1d9e0", "red": "#cf222e", "green": "#116329",
              "yellow": "#7d4e00", "blue": "#0550ae", "magenta": "#8250df", "cyan": "#1b7c83"},
    "dark": {"back": "#0d1117", "text": "#e6edf3", "edge": "#3d444d", "red": "#ff7b72", "green": "#3fb950",
             "yellow": "#d29922", "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#39c5cf"},
}


def classes(style: Style) -> str:
    number = style.color.number if style.color else None
    name = NAMES[number % 8] if number is not None and number < 16 else ""
    return " ".join(filter(None, ["b" if style.bold else "", "d" if style.dim else "", name]))


def row(text, y: int) -> str:
    """A line of a screen. Each run of a style begins at its column, whatever font the reader has."""
    spans = []
    column = 0
    for segment in text.render(CONSOLE, ""):
        value = segment.text
        if value.strip():
            lead = len(value) - len(value.lstrip())
            kind = classes(segment.style or Style())
            kind = f' class="{kind}"' if kind else ""
            shown = value.strip()
            spans.append(f'<tspan x="{PAD + (column + lead) * WIDTH:.1f}" textLength="{len(shown) * WIDTH:.1f}"{kind}>'
                         f"{html.escape(shown)}</tspan>")
        column += len(value)
    return f'<text y="{y}">{"".join(spans)}</text>' if spans else ""


def frames(folder: Path, run: str) -> list[tuple[str, float]]:
    """The screens in their order, without those that equal the one before, and how long each is shown."""
    screens: list[tuple[str, float]] = []
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8").replace(run, "~").rstrip()
        if screens and screens[-1][0] == text:
            screens[-1] = (text, screens[-1][1] + STEP)
        else:
            screens.append((text, STEP))
    every = max(1, -(-(len(screens) - 2) // (FRAMES - 2)))
    kept = [s for i, s in enumerate(screens) if i in (0, len(screens) - 1) or i % every == 1 or every == 1]
    return [*((text, min(1.0, STEP * every)) for text, _ in kept[:-1]), (kept[-1][0], LAST)]


def picture(shown: list[tuple[str, float]], scheme: str) -> str:
    colors = COLORS[scheme]
    rows = max(text.count("\n") + 1 for text, _ in shown)
    width, height = int(COLUMNS * WIDTH + 2 * PAD), rows * LINE + 2 * PAD
    total = sum(seconds for _, seconds in shown)
    styles = [
        "text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; "
        f"white-space: pre; fill: {colors['text']} }}",
        ".b { font-weight: 700 } .d { opacity: .65 }",
        *(f".{name} {{ fill: {colors[name]} }}" for name in colors if name not in ("back", "text", "edge")),
        ".f { visibility: hidden }",
    ]
    groups = []
    begin = 0.0
    for i, (text, seconds) in enumerate(shown):
        end = begin + seconds
        a, b = 100 * begin / total, 100 * end / total
        steps = ["0% { visibility: hidden }"] if i else []
        steps.append(f"{a:.3f}% {{ visibility: visible }}")
        if i < len(shown) - 1:
            steps.append(f"{b:.3f}%, 100% {{ visibility: hidden }}")
        styles += [f"@keyframes f{i} {{ {' '.join(steps)} }}",
                   f".f{i} {{ animation: f{i} {total:g}s step-end infinite }}"]
        lines = AnsiDecoder().decode(text)
        body = "".join(row(line, PAD + 14 + n * LINE) for n, line in enumerate(lines))
        groups.append(f'<g class="f f{i}">{body}</g>')
        begin = end
    last = len(shown) - 1
    still = f".f {{ animation: none }} .f{last} {{ visibility: visible }}"
    styles.append(f"@media (prefers-reduced-motion: reduce) {{ {still} }}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f"<style>\n{chr(10).join(styles)}\n</style>\n"
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" '
        f'fill="{colors["back"]}" stroke="{colors["edge"]}"/>\n'
        + "\n".join(groups) + "\n</svg>\n"
    )


if __name__ == "__main__":
    from rich.console import Console

    CONSOLE = Console(width=COLUMNS)
    print(picture(frames(Path(sys.argv[1]), sys.argv[3]), sys.argv[2]), end="")
