package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, plain, python string }{
		{"v1.2.0", "1.2.0", "1.2.0"},
		{"1.2.0-dirty", "1.2.0", "1.2.0"},
		{"v1.2.0-3-gabc1234", "1.2.0+3.gabc1234", "1.2.0.post3+gabc1234"},
		{"v1.2.0-rc.1", "1.2.0-rc.1", "1.2.0rc1"},
		{"v1.2.0-beta2-3-gabc1234-dirty", "1.2.0-beta2+3.gabc1234", "1.2.0b2.post3+gabc1234"},
		{"abc1234", "0.0.0+1.gabc1234", "0.0.0.post1+gabc1234"},
		{"latest", "", ""},
		{"", "", ""},
	} {
		v, err := parseVersion(test.given)
		if test.plain == "" {
			if err == nil {
				t.Errorf("%q is version %+v; expected an error", test.given, v)
			}
			continue
		}
		if err != nil || v.plain() != test.plain || v.python() != test.python {
			t.Errorf("%q: %s and %s, %v; want %s and %s", test.given, v.plain(), v.python(), err, test.plain, test.python)
		}
	}
}

// distribution makes all files, with this test's own program for each platform.
func distribution(t *testing.T) map[string][]byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	var programs []string
	for platform := range tags {
		programs = append(programs, strings.Replace(platform, "_", "/", 1)+"="+self)
	}
	if err := run("v1.2.0", out, nil, programs); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, path := range globbed(t, filepath.Join(out, "*")) {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestMain runs as the program that the tests distribute, when its name is that.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		fmt.Println("recipe 1.2.0")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestDistribution(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	files := distribution(t)
	here := runtime.GOOS + "_" + runtime.GOARCH
	if again := distribution(t); !maps.EqualFunc(files, again, bytes.Equal) {
		t.Error("equal programs give other files")
	}
	archiveOf, wheelOf := "recipe_1.2.0_"+here+".tar.gz", "recipe_rl-1.2.0-py3-none-"+tags[here]+".whl"
	for _, want := range []string{archiveOf, wheelOf, "recipe_1.2.0_" + here + ".cdx.json", "recipe_1.2.0_image.tar",
		"SHA256SUMS", "recipe.rb", "install.sh"} {
		if files[want] == nil {
			t.Fatalf("no file %s; there are %s", want, slices.Sorted(maps.Keys(files)))
		}
	}
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if !strings.HasSuffix(file, ".tar.gz") {
			continue
		}
		if !strings.Contains(string(files["recipe.rb"]), sum) {
			t.Errorf("the formula lacks the checksum of %s", file)
		}
	}

	t.Run("archive", func(t *testing.T) {
		unzipped, err := gzip.NewReader(bytes.NewReader(files[archiveOf]))
		if err != nil {
			t.Fatal(err)
		}
		names := untar(t, unzipped, t.TempDir())
		if want := []string{"recipe", "LICENSE", "README.md", "SECURITY.md"}; !slices.Equal(names, want) {
			t.Errorf("it has %s, want %s", names, want)
		}
	})
	t.Run("bill of materials", func(t *testing.T) {
		var bill struct {
			Components []component `json:"components"`
		}
		if err := json.Unmarshal(files["recipe_1.2.0_"+here+".cdx.json"], &bill); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(bill.Components, func(c component) bool {
			return strings.HasPrefix(c.Purl, "pkg:golang/github.com/google/go-containerregistry@v")
		}) {
			t.Errorf("it lacks a module that this program imports: %v", bill.Components)
		}
	})
	t.Run("image", func(t *testing.T) {
		folder := t.TempDir()
		untar(t, bytes.NewReader(files["recipe_1.2.0_image.tar"]), folder)
		index, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
	})
	t.Run("wheel", func(t *testing.T) {
		checkRecord(t, files[wheelOf])
		python, err := exec.LookPath("python3")
		if err != nil {
			t.Skip("no python3")
		}
		folder := t.TempDir()
		path := filepath.Join(folder, wheelOf)
		if err := os.WriteFile(path, files[wheelOf], 0o600); err != nil {
			t.Fatal(err)
		}
		command(t, nil, python, "-m", "venv", filepath.Join(folder, "venv"))
		pip := filepath.Join(folder, "venv", "bin", "pip")
		command(t, nil, pip, "install", "--no-index", "--disable-pip-version-check", path)
		if got := command(t, nil, filepath.Join(folder, "venv", "bin", "recipe")); got != "recipe 1.2.0\n" {
			t.Errorf("the installed program prints %q", got)
		}
		command(t, nil, pip, "uninstall", "--yes", packageName)
	})
	t.Run("install.sh", func(t *testing.T) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("no curl")
		}
		folder := t.TempDir()
		release := filepath.Join(folder, "releases", "latest", "download")
		if err := os.MkdirAll(release, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, content := range files {
			if err := os.WriteFile(filepath.Join(release, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		bin := filepath.Join(folder, "bin")
		environ := []string{"RECIPE_RELEASES=file://" + filepath.Join(folder, "releases"), "RECIPE_BIN=" + bin,
			"PATH=" + os.Getenv("PATH"), "HOME=" + folder}
		script := filepath.Join(release, "install.sh")
		if got := command(t, environ, "sh", script); !strings.HasPrefix(got, "recipe 1.2.0\nadd "+bin+" to PATH") {
			t.Errorf("it prints %q", got)
		}
		if err := os.Remove(filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
		damaged := append([]byte{}, files[archiveOf]...)
		damaged[len(damaged)/2] ^= 1
		if err := os.WriteFile(filepath.Join(release, archiveOf), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", script)
		cmd.Env = environ
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "has the checksum") {
			t.Errorf("a damaged archive: %v\n%s", err, text)
		}
		if left := globbed(t, filepath.Join(bin, "*")); len(left) > 0 {
			t.Errorf("a damaged archive leaves %s", left)
		}
		outside := strings.ReplaceAll(string(files["SHA256SUMS"]), "  recipe_", "  ../recipe_")
		if err := os.WriteFile(filepath.Join(release, "SHA256SUMS"), []byte(outside), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd = exec.CommandContext(t.Context(), "sh", script)
		cmd.Env = environ
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "unexpected name") {
			t.Errorf("an archive that lies outside of the folder: %v\n%s", err, text)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(release, "SHA256SUMS"), files["SHA256SUMS"], 0o600),
			os.WriteFile(filepath.Join(release, archiveOf), files[archiveOf], 0o600)); err != nil {
			t.Fatal(err)
		}
		clear := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(folder, "releases"))))
		defer clear.Close()
		cmd = exec.CommandContext(t.Context(), "sh", script)
		cmd.Env = append(environ, "RECIPE_RELEASES="+clear.URL)
		if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "cannot download") {
			t.Errorf("a release in the clear: %v\n%s", err, text)
		}
		if left := globbed(t, filepath.Join(bin, "*")); len(left) > 0 {
			t.Errorf("a release in the clear leaves %s", left)
		}
	})
}

// checkRecord compares the files of a wheel with the hashes in its RECORD, which pip does not do.
func checkRecord(t *testing.T, wheel []byte) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		t.Fatal(err)
	}
	want, record := "", ""
	for _, f := range r.File {
		content, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, "/RECORD") {
			record, want = string(content), want+f.Name+",,\n"
			continue
		}
		sum := sha256.Sum256(content)
		want += f.Name + ",sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]) + fmt.Sprintf(",%d\n", len(content))
	}
	if record != want {
		t.Errorf("RECORD is\n%s\nwant\n%s", record, want)
	}
}

func command(t *testing.T, environ []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// untar unpacks into a folder and returns the names in their order.
func untar(t *testing.T, r io.Reader, folder string) (names []string) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, h.FileInfo().Mode().Perm()); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
