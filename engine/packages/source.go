package packages

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

const scheme = "oci://"

// IsSource reports whether the source of a required plugin or a module names a repository of packages.
func IsSource(source string) bool { return strings.HasPrefix(source, scheme) }

// IsArchive reports whether a source is an archive, which is fetched by its URL.
func IsArchive(source string) bool { return strings.HasPrefix(source, "https://") }

// IsPackage reports whether a source is fetched and locked.
func IsPackage(source string) bool { return IsSource(source) || IsArchive(source) }

// address is a source as prefixes of mirrors and policies name it: without its scheme.
func address(source string) string {
	_, rest, _ := strings.Cut(source, "://")
	return rest
}

// place is where an address leads, in one way of writing it: policies hold however a recipe writes a registry's name.
func place(address string) string {
	u, err := url.Parse("//" + address)
	if err != nil {
		return address
	}
	host := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), ":443"), ".")
	if host == "index.docker.io" { // go-containerregistry reads one as the other
		host = "docker.io"
	}
	return host + strings.TrimSuffix(path.Clean("/"+u.Path), "/")
}

// Source is a repository of packages: oci://HOST/PATH.
type Source struct{ repository string }

// String returns the source as a recipe names it.
func (s Source) String() string { return scheme + s.repository }

// ParseSource reads a source without a version, as in required_plugins.
func ParseSource(text string) (Source, error) {
	source, version, err := ParseReference(text)
	if err == nil && version != "" {
		err = fmt.Errorf("source %q contains a version; write source = %q, version = %q", text, source.String(), version)
	}
	return source, err
}

// ParseReference reads oci://HOST/PATH or oci://HOST/PATH:VERSION.
func ParseReference(text string) (s Source, version string, err error) {
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok {
		return s, "", fmt.Errorf("%q is no address of a package: expected oci://HOST/PATH", text)
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return s, "", fmt.Errorf("the address of a package contains a user or password: credentials belong to the docker " +
			"configuration (docker login, or a credential helper)")
	}
	if strings.Contains(rest, "@") {
		return s, "", fmt.Errorf("%q contains a digest; the lock file records it: write oci://HOST/PATH", text)
	}
	if i := strings.LastIndex(rest, ":"); i > strings.LastIndex(rest, "/") {
		rest, version = rest[:i], rest[i+1:]
	}
	host, inside, ok := strings.Cut(rest, "/")
	if !ok || path.Clean("/"+inside) != "/"+inside || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return s, "", fmt.Errorf("%q is no address of a package: expected oci://HOST/PATH, HOST with its domain", text)
	}
	if _, err := name.NewRepository(rest, name.StrictValidation); err != nil {
		return s, "", fmt.Errorf("%q is no address of a package: %w", text, err)
	}
	return Source{repository: rest}, version, nil
}

// Mirror is a place from which packages are fetched instead of from their source: a repository's address or its
// beginning is replaced, or a layout holds copies.
type Mirror struct {
	Prefix   string // HOST or HOST/PATH without oci://; empty: of all sources
	Location string // oci://HOST/PATH, or the path of an OCI layout (a folder, or a .tar of one)
}

// CheckMirror reports a mirror that could never be used.
func CheckMirror(m Mirror) error {
	if strings.Contains(m.Prefix, "://") || strings.HasSuffix(m.Prefix, "/") {
		return fmt.Errorf("mirror %q: expected HOST or HOST/PATH, without oci:// and without a slash at its end", m.Prefix)
	}
	if IsSource(m.Location) {
		_, err := ParseSource(strings.TrimSuffix(m.Location, "/") + "/x") // a host alone is enough for a mirror
		return err
	}
	if !filepath.IsAbs(m.Location) {
		return fmt.Errorf("mirror %q: location %q: expected oci://HOST/PATH or the path of an OCI layout", m.Prefix,
			m.Location)
	}
	return nil
}

// below says whether a repository is at a prefix, HOST or HOST/PATH, or below it. Everything is below an empty one.
func below(repository, prefix string) bool {
	rest, ok := strings.CutPrefix(repository, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

// mirrored is where a source is fetched from: by the mirror with the longest matching prefix, else the source itself.
func mirrored(s Source, mirrors []Mirror) (location string, inside bool) {
	best := -1
	location = s.String()
	for _, m := range mirrors {
		if !below(s.repository, m.Prefix) || len(m.Prefix) <= best {
			continue
		}
		best = len(m.Prefix)
		rest := strings.TrimPrefix(s.repository, m.Prefix)
		if inside = !IsSource(m.Location); inside {
			location = m.Location
		} else {
			location = strings.TrimSuffix(m.Location, "/") + "/" + strings.TrimPrefix(rest, "/")
			location = strings.TrimSuffix(location, "/")
		}
	}
	return location, inside
}
