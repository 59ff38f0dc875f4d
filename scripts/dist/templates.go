package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed install.sh
var installScript string

// nfpmConfig is the configuration of nfpm for one program: https://nfpm.goreleaser.com/docs/configuration/
func nfpmConfig(v version, p program) string {
	return fmt.Sprintf(`name: %s
arch: %s
platform: linux
version: %q
version_schema: semver
maintainer: recipe maintainers <recipe-rl@users.noreply.github.com>
description: %s
homepage: %s
license: %s
mtime: 2020-01-01T00:00:00Z
contents:
  - src: %s
    dst: /usr/bin/%[1]s
    file_info: {mode: 0755}
  - src: LICENSE
    dst: /usr/share/doc/%[1]s/LICENSE
`, name, p.arch, v.plain(), description, homepage, license, p.path)
}

const formulaEnd = `
  def install
    bin.install "recipe"
  end

  test do
    system bin/"recipe", "version"
  end
end
`

// formula is the Homebrew formula, which takes the archives of a release.
func formula(v version, programs []program, sums map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "class Recipe < Formula\n  desc %q\n  homepage %q\n  version %q\n  license %q\n", description,
		homepage, v.plain(), license)
	blocks := map[string]string{"darwin": "on_macos", "linux": "on_linux"}
	cpus := map[string]string{"amd64": "on_intel", "arm64": "on_arm"}
	for _, p := range programs {
		file := archiveName(v, p)
		fmt.Fprintf(&b, "\n  %s do\n    %s do\n      url \"%s/releases/download/v%s/%s\"\n      sha256 %q\n    end\n  end\n",
			blocks[p.os], cpus[p.arch], homepage, v.tag, file, sums[file])
	}
	return b.String() + formulaEnd
}
