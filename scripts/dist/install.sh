#!/bin/sh
# Installs the program `recipe` of a release into a folder, after its checksum was compared.
#
#   curl -fsSL https://github.com/recipe-rl/recipe/releases/latest/download/install.sh | sh
#
# RECIPE_VERSION   the version, for example 1.2.0; default: the latest
# RECIPE_BIN       the folder; default: ~/.local/bin
# RECIPE_RELEASES  where releases are, for a mirror (https://… or file://…)
set -eu

fail() { printf 'install.sh: %s\n' "$1" >&2; exit 1; }

main() {
	releases=${RECIPE_RELEASES:-https://github.com/recipe-rl/recipe/releases}
	folder=${RECIPE_BIN:-$HOME/.local/bin}
	case $(uname -s) in
	Linux) system=linux ;;
	Darwin) system=darwin ;;
	*) fail "no program is built for $(uname -s); build it from source (README.md)" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "no program is built for $(uname -m); build it from source (README.md)" ;;
	esac
	command -v curl >/dev/null || fail "curl is missing: install it, or download the archive by hand from $releases"
	if command -v sha256sum >/dev/null; then sum='sha256sum'; else sum='shasum -a 256'; fi

	if [ -n "${RECIPE_VERSION:-}" ]; then from=$releases/download/v$RECIPE_VERSION; else from=$releases/latest/download; fi
	temporary=$(mktemp -d)
	trap 'rm -rf "$temporary"' EXIT
	curl --proto =https,file -fsSL --retry 3 -o "$temporary/SHA256SUMS" "$from/SHA256SUMS" || fail "cannot download $from/SHA256SUMS"
	file=$(awk -v end="_${system}_${arch}.tar.gz" 'substr($2, length($2) - length(end) + 1) == end {print $2}' "$temporary/SHA256SUMS")
	case $file in
	'') fail "$from/SHA256SUMS lists no archive for $system/$arch" ;;
	*[!A-Za-z0-9._+-]*) fail "$from/SHA256SUMS lists an archive with an unexpected name: $file" ;;
	esac
	curl --proto =https,file -fsSL --retry 3 -o "$temporary/$file" "$from/$file" || fail "cannot download $from/$file"
	wanted=$(awk -v file="$file" '$2 == file {print $1}' "$temporary/SHA256SUMS")
	got=$($sum "$temporary/$file" | cut -d' ' -f1)
	[ "$wanted" = "$got" ] || fail "$file has the checksum $got; expected $wanted. Nothing was installed; download it again"
	tar -xzf "$temporary/$file" -C "$temporary" recipe
	mkdir -p "$folder"
	chmod 755 "$temporary/recipe"
	mv -f "$temporary/recipe" "$folder/recipe"
	"$folder/recipe" version
	case :$PATH: in
	*":$folder:"*) ;;
	*) printf 'add %s to PATH, for example: export PATH="%s:$PATH"\n' "$folder" "$folder" ;;
	esac
}

main
