package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// imageArchive is an OCI image layout, as one tarball, of the programs for Linux. `skopeo copy oci-archive:FILE
// docker://…` and `podman load` take it. The image has the program alone: no shell, no certificates.
func imageArchive(v version, programs []program) (artifact, error) {
	var index v1.ImageIndex = empty.Index
	found := false
	for _, p := range programs {
		if p.os != "linux" {
			continue
		}
		found = true
		image, err := imageOf(v, p)
		if err != nil {
			return artifact{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	if !found {
		return artifact{}, nil
	}
	folder, err := os.MkdirTemp("", "recipe-image-")
	if err != nil {
		return artifact{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if _, err := layout.Write(folder, index); err != nil {
		return artifact{}, fmt.Errorf("write the image: %w", err)
	}
	content, err := packed(folder)
	return artifact{fmt.Sprintf("%s_%s_image.tar", name, v.plain()), content}, err
}

func imageOf(v version, p program) (v1.Image, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, h := range []*tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777, ModTime: epoch},
		{Name: "work/", Typeflag: tar.TypeDir, Mode: 0o777, ModTime: epoch},
		{Name: "usr/bin/" + name, Mode: 0o755, Size: int64(len(p.content)), ModTime: epoch},
	} {
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(p.content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{OS: p.os, Architecture: p.arch, Created: v1.Time{Time: epoch},
		RootFS: rootFS(image), Config: v1.Config{Entrypoint: []string{"/usr/bin/" + name}, WorkingDir: "/work",
			Env: []string{"PATH=/usr/bin", "HOME=/tmp"}, Labels: map[string]string{
				"org.opencontainers.image.source": homepage, "org.opencontainers.image.version": v.plain(),
				"org.opencontainers.image.licenses": license, "org.opencontainers.image.description": description}}})
}

func rootFS(image v1.Image) v1.RootFS {
	config, err := image.ConfigFile()
	if err != nil {
		return v1.RootFS{}
	}
	return config.RootFS
}

// packed is a folder as a tarball.
func packed(folder string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(content)), ModTime: epoch}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
