package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// listed reads an SPDX document, and returns a line for each package: name, version, purl, checksum.
func listed(t *testing.T, document []byte) []string {
	t.Helper()
	var d struct {
		Version  string `json:"spdxVersion"`
		Packages []struct {
			Name, VersionInfo string
			Checksums         []struct{ ChecksumValue string }
			ExternalRefs      []struct{ ReferenceLocator string }
		}
		Relationships []struct{ RelationshipType string }
	}
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || len(d.Relationships) != len(d.Packages) {
		t.Errorf("version %s, %d relationships of %d packages", d.Version, len(d.Relationships), len(d.Packages))
	}
	var lines []string
	for _, p := range d.Packages {
		fields := []string{p.Name, p.VersionInfo}
		for _, e := range p.ExternalRefs {
			fields = append(fields, e.ReferenceLocator)
		}
		for _, c := range p.Checksums {
			fields = append(fields, c.ChecksumValue)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return lines
}

func TestTheSBOMOfAPythonLock(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0a", 32)
	lock := "version = 1\r\n\r\n[[package]]\r\nname = \"numpy\"\r\nversion = \"2.1.0\"\r\n" +
		"sdist = { url = \"https://example.com/numpy.tar.gz\", hash = \"sha256:" + sum + "\" }\r\n" +
		"dependencies = [\r\n    { name = \"other\" },\r\n]\r\n\r\n[[package]]\r\nname = \"words\"\r\n"
	document, err := PythonSBOM("words", "1.0.0", []byte(lock))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"words 1.0.0", "numpy 2.1.0 pkg:pypi/numpy@2.1.0 " + sum, "words "}
	if got := listed(t, document); !slices.Equal(got, want) {
		t.Errorf("it lists %q, want %q", got, want)
	}
	again, err := PythonSBOM("words", "1.0.0", []byte(lock))
	if err != nil || string(again) != string(document) {
		t.Errorf("the same lock gives another document (%v)", err)
	}
}

// The program is one of this module: that of a test has no list of its modules.
func TestTheSBOMOfAProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "../../sdk/environment/example")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as recipe is built, whose packages are compiled already
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document, platform, err := ProgramSBOM("sums", "1.0.0", program, []string{"torch==2.6.0 ; extra == 'x'"})
	if err != nil {
		t.Fatal(err)
	}
	if want := runtime.GOOS + "/" + runtime.GOARCH; platform != want {
		t.Errorf("platform %s, want %s", platform, want)
	}
	got := listed(t, document)
	for _, want := range []string{"sums 1.0.0", "stdlib " + runtime.Version() + " pkg:golang/stdlib@" + runtime.Version(),
		"torch 2.6.0 pkg:pypi/torch@2.6.0"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	if !slices.ContainsFunc(got, func(s string) bool {
		return strings.Contains(s, "pkg:golang/google.golang.org/grpc@v")
	}) {
		t.Errorf("a linked module is missing in %q", got)
	}
	if _, _, err := ProgramSBOM("sums", "1.0.0", []byte("#!/bin/sh"), nil); err == nil {
		t.Error("a shell script has an SBOM")
	}
}
