package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
)

// besides are files of the repository that each archive has.
var besides = []string{"LICENSE", "README.md", "SECURITY.md"}

// archive is the program with its license, as a tarball.
func archive(v version, p program) (artifact, error) {
	entries := []artifact{{name, p.content}}
	for _, path := range besides {
		content, err := os.ReadFile(path)
		if err != nil {
			return artifact{}, fmt.Errorf("%w (run it in the root of the repository)", err)
		}
		entries = append(entries, artifact{path, content})
	}
	content, err := gzipped(entries)
	return artifact{archiveName(v, p), content}, err
}

func archiveName(v version, p program) string {
	return fmt.Sprintf("%s_%s_%s.tar.gz", name, v.plain(), p.platform())
}

// gzipped packs files. The first is the program, which can be run.
func gzipped(files []artifact) ([]byte, error) {
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	for i, f := range files {
		mode := int64(0o644)
		if i == 0 {
			mode = 0o755
		}
		header := &tar.Header{Name: f.name, Mode: mode, Size: int64(len(f.content)), ModTime: epoch, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil { // it writes what is left
		return nil, err
	}
	return b.Bytes(), nil
}
