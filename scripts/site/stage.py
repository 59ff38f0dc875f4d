"""stage.py FOLDER: write the pages of the site into FOLDER/pages, and FOLDER/mkdocs.yml with their navigation.

The site is docs and what its pages link to outside of it: README.md as the first page, SECURITY.md, recipes. The
navigation is that of docs/README.md. GitHub's Markdown is fitted to Python-Markdown's.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTENTS = "docs/README.md"
# Pages outside of docs, by their place in the site.
OUTSIDE = {
    "README.md": "index.md",
    CONTENTS: "contents.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "AGENTS.md": "coding-agents.md",
}
LANGUAGES = {".hcl": "hcl", ".py": "python", ".json": "json", ".yml": "yaml", ".sh": "sh", ".toml": "toml"}
# The first page has no navigation beside it: the tabs are enough.
HOME = "---\nhide:\n  - navigation\n  - toc\n---\n"
# What is copied from docs as it is; any other file becomes a page that shows its text.
ASSETS = (".md", ".png", ".svg", ".xz")
# A generated folder: its pages follow this one in the navigation.
FOLDERS = {"docs/cli/recipe.md": "docs/cli", "docs/blocks/README.md": "docs/blocks"}

LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
CODE = re.compile(r"(?ms)^( *)(```+)[^\n]*\n.*?^\1\2 *$|`[^`\n]*`")
PICTURE = re.compile(r'(?s)<picture>.*?srcset="([^"]+)".*?<img [^>]*src="([^"]+)"[^>]*alt="([^"]*)"[^>]*>\s*</picture>')
IMAGE = re.compile(r'(<img [^>]*src=")([^":]+)(")')


class Tree:
    """The files of the repository and where each is in the site."""

    def __init__(self, root: Path):
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, capture_output=True, text=True, timeout=60,
        )
        self.files = {name for name in listed.stdout.split("\0") if name and (root / name).is_file()}
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        self.added: dict[str, str] = {}  # place in the site: path in the repository

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def place(self, path: str) -> str | None:
        """The place of a file or folder among the pages. None: the repository has no such file.

        What is not a page becomes one: a file shows its text, a folder its files.
        """
        if path in OUTSIDE:
            return OUTSIDE[path]
        if path in self.folders:
            if f"{path}/README.md" in self.files:
                return self.place(f"{path}/README.md")
            self.added.setdefault(f"source/{path}/index.md", path)
            return f"source/{path}/index.md"
        if path not in self.files:
            return None
        if path.startswith("docs/") and path.endswith(ASSETS):
            return path.removeprefix("docs/")
        suffix = "" if path.endswith(".md") else ".md"
        self.added.setdefault(f"source/{path}{suffix}", path)
        return f"source/{path}{suffix}"

    def page(self, path: str) -> str:
        """The Markdown of an added page."""
        if path in self.folders:
            inside = sorted(name for name in self.files if name.startswith(f"{path}/"))
            prefix = len(path) + 1
            return f"# {path}\n\n" + "".join(f"- [{n[prefix:]}]({n[prefix:]})\n" for n in inside)
        language = LANGUAGES.get(Path(path).suffix, "text")
        return f"# {path}\n\n````{language}\n{self.read(path).rstrip()}\n````\n"

    def linked(self, text: str, path: str, site: str) -> str:
        """Points the links of a page to places in the site."""
        folder = path if path in self.folders else posixpath.dirname(path)

        def target(link: str) -> str:
            if not link or "://" in link or link.startswith("mailto:"):
                return link
            wanted = posixpath.normpath(posixpath.join(folder, link))
            place = self.place(wanted)
            if place is None:
                return link  # the generator names it
            return posixpath.relpath(place, posixpath.dirname(site) or ".")

        def picture(m: re.Match[str]) -> str:  # the site has its own switch of colors
            dark, light, alt = (m[1], m[2], m[3])
            return f"![{alt}]({target(light)}#only-light)\n![{alt}]({target(dark)}#only-dark)"

        def rewrite(prose: str) -> str:
            prose = PICTURE.sub(picture, prose)
            prose = IMAGE.sub(lambda m: m[1] + target(m[2]) + m[3], prose)
            return LINK.sub(lambda m: m[1] + target(m[2]) + (m[3] or "") + m[4], prose)

        return outside_of_code(text, rewrite)


def outside_of_code(text: str, change) -> str:
    out, last = [], 0
    for m in CODE.finditer(text):
        out += [change(text[last:m.start()]), m[0]]
        last = m.end()
    return "".join([*out, change(text[last:])])


def fitted(text: str) -> str:
    """Lists as Python-Markdown reads them: after a blank line, and what belongs to an item indented by four."""
    out: list[str] = []
    fence, width = "", 0  # width: where the text of the current item begins
    for line in text.split("\n"):
        mark = re.match(r"( *)(```+)", line)
        if mark and (not fence or mark[2] == fence):
            fence = "" if fence else mark[2]
        item = None if fence else re.match(r"([-*+]|\d+\.) +", line)
        indent = len(line) - len(line.lstrip(" "))
        if item:
            if out and out[-1].strip() and not width and not out[-1].startswith("#"):
                out.append("")
            width = len(item[0])
        elif width and line.strip() and indent >= min(width, 2):
            line = " " * (4 * (indent // width or 1)) + line[min(indent, width):].lstrip() if not fence and not mark \
                else " " * 4 + line[min(indent, width):]
        elif line.strip() and not indent:
            blank = bool(out) and not out[-1].strip()
            width = 0 if blank or line.startswith(("#", "|", "```")) else width
        out.append(line)
    return "\n".join(out)


def heading(page: str) -> str:
    m = re.search(r"(?m)^# (.+)$", page)
    return m[1].replace("`", "") if m else "?"


def navigation(contents: str, tree: Tree) -> list:
    """The navigation of the site: headings of docs/README.md, and the first link of each of their items."""
    nav: list = [{"Home": "index.md"}]
    part: list = []
    group: list = []
    for line in contents.split("\n"):
        if m := re.match(r"## (.+)", line):
            part = group = []
            nav.append({m[1]: part})
        elif m := re.match(r"### (.+)", line):
            group = []
            part.append({m[1]: group})
        elif m := re.match(r"- \[([^\]]+)\]\(([^)#]+)", line):
            path = posixpath.normpath(posixpath.join("docs", m[2]))
            place = tree.place(path)
            if place is None:
                raise ValueError(f"{CONTENTS} links to {m[2]}, which does not exist")
            group.append({m[1].replace("`", ""): place})
            if folder := FOLDERS.get(path):
                group += [{heading(tree.read(name)): tree.place(name)} for name in sorted(tree.files)
                          if posixpath.dirname(name) == folder and name.endswith(".md") and name != path]
    nav.append({"All pages": "contents.md"})
    return nav


def stage(folder: Path) -> None:
    tree = Tree(ROOT)
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    waiting = {tree.place(name): name for name in sorted(tree.files)
               if name in OUTSIDE or name.startswith("docs/") and name.endswith(ASSETS)}
    nav = navigation(tree.read(CONTENTS), tree)
    done: set[str] = set()
    while waiting:  # pages link to files, which become pages
        for place, path in waiting.items():
            target = pages / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if place.endswith(".md"):
                text = tree.read(path) if path.endswith(".md") and path in tree.files else tree.page(path)
                head = HOME if place == "index.md" else ""
                target.write_text(head + fitted(tree.linked(text, path, place)), encoding="utf-8")
            else:
                shutil.copyfile(tree.root / path, target)
        done |= waiting.keys()
        waiting = {place: path for place, path in tree.added.items() if place not in done}
    shutil.copyfile(ROOT / "scripts/site/site.css", pages / "site.css")
    config = ROOT / "scripts/site/mkdocs.yml"
    (folder / "mkdocs.yml").write_text(
        f"INHERIT: {posixpath.relpath(config, folder.resolve())}\nnav: {json.dumps(nav)}\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        stage(Path(sys.argv[1]))
    except ValueError as problem:
        sys.exit(f"stage.py: {problem}")
