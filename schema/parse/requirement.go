package parse

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Requirement is a plugin of recipe.required_plugins, or a module from a package.
type Requirement struct {
	Module          bool   // a module; else a plugin
	Name            string // of the plugin; of a module its path without keys, such as eval.inner
	Source, Version string
	Checksum        string // of an archive, "sha256:…"
	Verify          Verify
	Range           hcl.Range
}

// String names it for messages.
func (q Requirement) String() string {
	if q.Module {
		return "module " + q.Name
	}
	return "plugin " + q.Name
}

// Verify says whose signature the package of a plugin must have. Paths are relative to the file that has it. The zero
// value demands none.
type Verify struct {
	Key                           string // path of a public key
	Identity, Issuer, TrustedRoot string // of a certificate; path of sigstore's trusted_root.json
}

// IsPath reports whether a source is a path of a folder or file.
func IsPath(source string) bool {
	return filepath.IsAbs(source) || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

// IsPackage reports whether a source is fetched by `recipe init`: from a registry, or as an archive.
func IsPackage(source string) bool { return strings.HasPrefix(source, "oci://") || isArchive(source) }

func isArchive(source string) bool { return strings.HasPrefix(source, "https://") }

// set reads one attribute of a required plugin, or of a module from a package.
func (q *Requirement) set(name string, value cty.Value, at hcl.Range) hcl.Diagnostics {
	fields := map[string]*string{"source": &q.Source, "version": &q.Version, "checksum": &q.Checksum}
	field, known := fields[name]
	switch {
	case name == "verify":
		return q.Verify.read(value, at)
	case !known:
		names := []string{"source", "version", "checksum", "verify"}
		return hcl.Diagnostics{diagnostic.Problem(at, "Unknown attribute",
			fmt.Sprintf("A required plugin has source, version, checksum and verify, got %q.%s", name,
				diagnostic.DidYouMean(name, names)))}
	case value.Type() != cty.String || value.IsNull():
		return hcl.Diagnostics{diagnostic.Problem(at, "Wrong type", fmt.Sprintf("%s is a string, got %s.", name,
			value.Type().FriendlyName()))}
	}
	switch *field = value.AsString(); {
	case *field == "":
		return hcl.Diagnostics{diagnostic.Problem(at, "Empty text", fmt.Sprintf("%s is empty: write it, or remove it.",
			name))}
	case name == "version":
		return checkConstraint(q.Version, at)
	}
	return nil
}

// check reports attributes that do not fit the source.
func (q *Requirement) check(at hcl.Range) hcl.Diagnostics {
	const example = `checksum = "sha256:…", which sha256sum prints`
	detail := ""
	switch {
	case strings.HasPrefix(q.Source, "http://"):
		detail = "An archive is fetched by https: write https:// or oci://."
	case isArchive(q.Source) && q.Checksum == "":
		detail = "An archive from the network needs its checksum: write " + example + "."
	case isArchive(q.Source) && !checksum.MatchString(q.Checksum):
		detail = fmt.Sprintf("Expected %s, got %q.", example, q.Checksum)
	case isArchive(q.Source) && q.Module && q.Version != "":
		detail = "A module in an archive has no version: its checksum says which one it is. Remove version."
	case !isArchive(q.Source) && q.Checksum != "":
		detail = "Only an archive (https://…) takes a checksum; the lock has the digests of packages (oci://…). Remove it."
	default:
		return nil
	}
	return hcl.Diagnostics{diagnostic.Problem(at, "Invalid source", detail)}
}

// read reads verify = { key = "…" } or { identity = "…", issuer = "…", trusted_root = "…" }.
func (v *Verify) read(value cty.Value, at hcl.Range) hcl.Diagnostics {
	const expected = `verify is { key = "author.pub" }, or { identity = "…", issuer = "…", trusted_root = "…" }`
	if !value.Type().IsObjectType() || value.IsNull() {
		return hcl.Diagnostics{diagnostic.Problem(at, "Wrong type", fmt.Sprintf("Got %s; %s.", value.Type().FriendlyName(),
			expected))}
	}
	fields := map[string]*string{"key": &v.Key, "identity": &v.Identity, "issuer": &v.Issuer,
		"trusted_root": &v.TrustedRoot}
	given := value.AsValueMap()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		one := given[name]
		field, known := fields[name]
		if !known || one.Type() != cty.String || one.IsNull() {
			return hcl.Diagnostics{diagnostic.Problem(at, "Invalid verify", fmt.Sprintf("%q is not expected, or no string; %s.",
				name,
				expected))}
		}
		*field = one.AsString()
	}
	byKey, byIdentity := v.Key != "", v.Identity != "" && v.Issuer != "" && v.TrustedRoot != ""
	if byKey == byIdentity || byKey && v.Identity+v.Issuer+v.TrustedRoot != "" {
		return hcl.Diagnostics{diagnostic.Problem(at, "Invalid verify", diagnostic.UpperFirst(expected)+".")}
	}
	return nil
}

func checkConstraint(text string, at hcl.Range) hcl.Diagnostics {
	if text == "" || constraints.MatchString(text) {
		return nil
	}
	return hcl.Diagnostics{diagnostic.Problem(at, "Invalid version constraint",
		fmt.Sprintf(`Expected something like ">= 0.1" or "~> 1.2, != 1.2.3", got %q.`, text))}
}
