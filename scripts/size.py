#!/usr/bin/env python3
"""What the program's size is made of: python3 scripts/size.py bin/recipe, a build with its symbols. Prints a table.

The machine code of each package comes from `go tool nm`. Most of the rest of a stripped program are tables with rows
for each function."""

import collections
import re
import subprocess
import sys

PARTS = [  # of the first that matches, by the path of a package
    ("recipe itself", r"^github\.com/recipe-rl/recipe|^main$"),
    ("Parquet and Arrow: exports of samples", r"parquet-go|apache/arrow|goccy|andybalholm|pierrec|google/flatbuffers"),
    ("editor: LSP", r"go\.lsp\.dev|segmentio/encoding|sourcegraph/jsonrpc"),
    ("signatures of packages: sigstore", r"sigstore|go-openapi|transparency|theupdateframework|in-toto|asaskevich"),
    ("S3", r"minio|tinylib/msgp|klauspost/(cpuid|crc32|md5)|rs/xid|go-ini"),
    ("plugins: gRPC, protobuf, go-plugin", r"google\.golang\.org|hashicorp/(go-plugin|go-hclog|yamux)|oklog"),
    ("language: HCL and cty", r"hashicorp/hcl|zclconf|apparentlymart|agext|vmihailenco|bmatcuk"),
    ("gonum: matrices of the tiny model, order of blocks", r"gonum"),
    ("registries", r"go-containerregistry|docker/|containerd|opencontainers"),
    ("terminal", r"charm\.land|charmbracelet|mattn|rivo|muesli|clipperhouse|spf13|alecthomas|yuin"),
    ("MCP and JSON Schema", r"modelcontextprotocol|google/jsonschema|yosida95"),
    ("metrics and traces", r"prometheus|opentelemetry|munnerz|beorn7"),
    ("Go's library and runtime", r"^(?!.*\.[a-z]+/)"),
    ("other modules", r""),
]
SYMBOL = re.compile(r"\s*[0-9a-f]+\s+(\d+)\s+[tT]\s+(?:type:\.(?:eq|hash)\.)?((?:[\w.~-]+/)*[\w~-]+)?")


def main() -> None:
    program = sys.argv[1]
    code: collections.Counter[str] = collections.Counter()
    symbols = subprocess.run(["go", "tool", "nm", "-size", program], check=True, capture_output=True, text=True).stdout
    for line in symbols.splitlines():
        if found := SYMBOL.match(line):
            package = found[2] or ""
            code[next(name for name, pattern in PARTS if re.search(pattern, package))] += int(found[1])
    total = sum(code.values())
    print("| part | code, MB | share |\n|---|---|---|")
    for name, size in code.most_common():
        print(f"| {name} | {size / 1e6:.1f} | {100 * size / total:.0f} % |")
    print(f"| all | {total / 1e6:.1f} | |")


main()
