"""check.py FOLDER: look through a built site for links that lead nowhere and for requests to other hosts.

A reader's browser asks only the site: no script, style, font, picture or frame comes from elsewhere. Links to other
sites are for the reader to follow, and allowed.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes whose address a browser asks by itself.
LOADED = {"src", "srcset", "data", "poster", "background"}
LOADING = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
STYLE = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


class Page(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag = tag
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and LOADING & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        for name in LOADED & values.keys():
            parts = values[name].split(",") if name == "srcset" else [values[name]]
            self.loaded += [part.split()[0] for part in parts if part.strip()]
        self.loaded += styles(values.get("style", ""))
        if "mermaid" in values.get("class", "").split():  # the theme asks unpkg.com for it
            self.loaded.append("https://unpkg.com/mermaid")

    def handle_data(self, data: str) -> None:
        if self.tag == "style":
            self.loaded += styles(data)


def styles(text: str) -> list[str]:
    return [a or b for a, b in STYLE.findall(text)]


def foreign(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def problems(folder: Path) -> list[str]:
    """Everything that is wrong with a site, a line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = [] if pages else [f"{folder} has no page"]
    if not (folder / "search" / "search_index.json").is_file():
        found.append("there is no index for the search")
    for sheet in sorted(folder.rglob("*.css")):
        found += [f"{sheet.relative_to(folder)} loads {a} from another host"
                  for a in styles(sheet.read_text(encoding="utf-8")) if foreign(a)]
    for path, page in pages.items():
        name = path.relative_to(folder)
        found += [f"{name} loads {a} from another host" for a in page.loaded if foreign(a)]
        if name.name == "404.html":
            continue  # its links begin at the host
        for link in [*page.links, *(a for a in page.loaded if not foreign(a))]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(f"{name} links to {link}, which is not there")
            elif parts.fragment and target.suffix == ".html" and not anchored(pages, folder, target, parts.fragment):
                found.append(f"{name} links to {link}, an anchor that is not there")
    return found


def anchored(pages: dict[Path, Page], folder: Path, target: Path, fragment: str) -> bool:
    page = pages.get(folder / target.relative_to(folder.resolve()))
    return page is not None and unquote(fragment) in page.anchors


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(f"check.py: {line}" for line in wrong), file=sys.stderr, end="\n" if wrong else "")
    sys.exit(bool(wrong))
