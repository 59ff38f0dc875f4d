"""The site's own programs, on small trees: what they refuse must not pass `make site`."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


def program(name):
    spec = importlib.util.spec_from_file_location(f"site_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check, stage = program("check"), program("stage")


def site(folder, body, **others):
    (folder / "search").mkdir()
    (folder / "search" / "search_index.json").write_text("{}")
    (folder / "index.html").write_text(f"<html><body>{body}</body></html>")
    for name, text in others.items():
        (folder / name.replace("_", ".")).write_text(text)
    return check.problems(folder)


@pytest.mark.parametrize(
    "body",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<script src="//cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="https://img.example/a.png">',
        '<source srcset="a.png 1x, https://img.example/a.png 2x">',
        "<style>@font-face { src: url(https://fonts.example/a.woff2) }</style>",
        '<p style="background: url(https://img.example/a.png)">x</p>',
        '<pre class="mermaid">graph</pre>',
    ],
)
def test_other_hosts_are_not_asked(tmp_path, body):
    assert any("from another host" in line for line in site(tmp_path, body))


def test_a_style_asks_no_other_host(tmp_path):
    assert site(tmp_path, "", a_css='@import "https://fonts.example/a.css";')


@pytest.mark.parametrize("link", ["gone.html", "index.html#gone", "#gone", "folder/"])
def test_links_lead_somewhere(tmp_path, link):
    assert site(tmp_path, f'<a href="{link}">x</a>')


def test_a_whole_site_has_no_problems(tmp_path):
    body = '<h1 id="here">x</h1><a href="#here">x</a><a href="b.html#there">x</a><a href="https://other.example/">x</a>'
    style = "a { background: url(data:image/png;base64,AA) }"
    assert site(tmp_path, body, b_html='<p id="there">x</p>', c_css=style) == []


def test_a_site_needs_pages_and_search(tmp_path):
    assert len(check.problems(tmp_path)) == 2


@pytest.fixture
def tree(tmp_path):
    """A repository with a page in docs, one outside, a folder and a recipe."""
    for name, text in {
        "README.md": "# recipe\n",
        "docs/README.md": "# Documentation\n## How-to\n### Begin\n- [One](one.md): first\n",
        "docs/one.md": "# One\n",
        "docs/ui/a.svg": "<svg/>",
        "recipes/a.hcl": 'trainer "tiny" "a" {}\n',
        "SECURITY.md": "# Security\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=60)
    return stage.Tree(tmp_path)


@pytest.mark.parametrize(
    "link, expected",
    [
        ("[a](../SECURITY.md#x)", "[a](security.md#x)"),
        ("[a](../recipes/a.hcl)", "[a](source/recipes/a.hcl.md)"),
        ("[a](../recipes)", "[a](source/recipes/index.md)"),
        ("[a](../README.md)", "[a](index.md)"),
        ("[a](one.md)", "[a](one.md)"),
        ("[a](gone.md)", "[a](gone.md)"),
        ("[a](https://a.example/b)", "[a](https://a.example/b)"),
        ("`[a](../SECURITY.md)`", "`[a](../SECURITY.md)`"),
        ("```\n[a](../SECURITY.md)\n```", "```\n[a](../SECURITY.md)\n```"),
        ('<img src="ui/a.svg" alt="a">', '<img src="ui/a.svg" alt="a">'),
    ],
)
def test_links_point_into_the_site(tree, link, expected):
    assert tree.linked(link, "docs/one.md", "one.md") == expected


def test_pictures_follow_the_colors(tree):
    picture = (
        '<picture>\n<source media="(prefers-color-scheme: dark)" srcset="docs/ui/b.svg">\n'
        '<img src="docs/ui/a.svg" alt="a run">\n</picture>'
    )
    (tree.root / "docs/ui/b.svg").write_text("<svg/>")
    tree.files.add("docs/ui/b.svg")
    assert tree.linked(picture, "README.md", "index.md") == (
        "![a run](ui/a.svg#only-light)\n![a run](ui/b.svg#only-dark)"
    )


def test_the_index_is_the_navigation(tree):
    nav = stage.navigation(tree.read("docs/README.md"), tree)
    assert nav == [{"Home": "index.md"}, {"How-to": [{"Begin": [{"One": "one.md"}]}]}, {"All pages": "contents.md"}]
    with pytest.raises(ValueError, match="gone.md"):
        stage.navigation("## A\n- [Gone](gone.md)\n", tree)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("So:\n- a\n- b", "So:\n\n- a\n- b"),
        ("- a\n  and b\n- c", "- a\n    and b\n- c"),
        ("1. a\n   ```sh\n   b\n     c\n   ```\n2. d", "1. a\n    ```sh\n    b\n      c\n    ```\n2. d"),
        ("```\na:\n- b\n  c\n```", "```\na:\n- b\n  c\n```"),
        ("- a\n\n  b\n\nc\n  d", "- a\n\n    b\n\nc\n  d"),
    ],
)
def test_lists_are_read_as_on_github(text, expected):
    assert stage.fitted(text) == expected


def test_pictures_show_the_figures_of_the_page():
    bars = program("bars")
    for name, svg in bars.pictures().items():
        path = bars.ROOT / "docs" / "pictures" / name
        assert path.read_text() == svg, f"{name} is not what the page has: run scripts/site/bars.py"
