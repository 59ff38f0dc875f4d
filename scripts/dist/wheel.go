package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
)

// tags are the platforms of wheels: https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/
// The program is static, so it runs with any C library; Go's oldest macOS is 12.
var tags = map[string]string{
	"linux_amd64":  "manylinux_2_17_x86_64.musllinux_1_1_x86_64",
	"linux_arm64":  "manylinux_2_17_aarch64.musllinux_1_1_aarch64",
	"darwin_amd64": "macosx_12_0_x86_64",
	"darwin_arm64": "macosx_12_0_arm64",
}

// wheel is the program as a Python package, which pip and uv put on the PATH. It has no Python code.
func wheel(v version, p program) (artifact, error) {
	tag, ok := tags[p.platform()]
	if !ok {
		return artifact{}, fmt.Errorf("no wheel is made for %s", p.platform())
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		return artifact{}, err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return artifact{}, err
	}
	prefix := strings.ReplaceAll(packageName, "-", "_") + "-" + v.python()
	info := prefix + ".dist-info/"
	files := []artifact{
		{prefix + ".data/scripts/" + name, p.content},
		{info + "METADATA", []byte(metadata(v) + string(readme))},
		{info + "WHEEL", []byte(wheelFile(tag))},
		{info + "licenses/LICENSE", license},
	}
	var record strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files = append(files, artifact{info + "RECORD", []byte(record.String())})
	content, err := zipped(files)
	return artifact{fmt.Sprintf("%s-py3-none-%s.whl", prefix, tag), content}, err
}

// metadata is the head of METADATA: https://packaging.python.org/en/latest/specifications/core-metadata/
func metadata(v version) string {
	return strings.Join([]string{
		"Metadata-Version: 2.4", "Name: " + packageName, "Version: " + v.python(), "Summary: " + description,
		"Home-page: " + homepage, "License-Expression: " + license, "License-File: LICENSE", "Requires-Python: >=3.10",
		"Keywords: reinforcement-learning,llm,grpo,vllm,rlhf", "Description-Content-Type: text/markdown", "", "",
	}, "\n")
}

// wheelFile is the file WHEEL. Its tags are one a line, though the name of the wheel has them in one word.
func wheelFile(tag string) string {
	lines := []string{"Wheel-Version: 1.0", "Generator: recipe-dist", "Root-Is-Purelib: false"}
	for one := range strings.SplitSeq(tag, ".") {
		lines = append(lines, "Tag: py3-none-"+one)
	}
	return strings.Join(lines, "\n") + "\n"
}

// zipped packs files. The first is the program, which can be run.
func zipped(files []artifact) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	for i, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: epoch}
		header.SetMode(0o644)
		if i == 0 {
			header.SetMode(0o755)
		}
		out, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := out.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
