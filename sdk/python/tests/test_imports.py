"""Modules import one way, also inside functions: one of a circle can neither be read nor replaced by itself."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "recipe_sdk"


def imported(module: str, text: str, modules: set[str]) -> set[str]:
    """The modules of the package that another imports, but for those that only annotations name."""
    found: set[str] = set()

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.update(name.name for name in node.names)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            parts = module.split(".")
            base = [*parts[: len(parts) - node.level], *filter(None, [node.module])] if node.level else [node.module]
            origin = ".".join(base)
            for name in node.names:
                inner = f"{origin}.{name.name}"
                found.add(inner if inner in modules else origin)

    Visitor().visit(ast.parse(text))
    return found & modules


def test_modules_import_one_way() -> None:
    sources = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text()
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    graph = {module: imported(module, text, set(sources)) for module, text in sources.items()}
    assert graph["recipe_sdk.receive.puller"] >= {"recipe_sdk.receive.handles"}
    TopologicalSorter(graph).prepare()  # it names a circle
