package packages

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// errContradicts is what is wrong with a lock whose digests are not those of one package.
var errContradicts = errors.New("the lock contradicts itself")

// difference is a part of a package that is not what the lock says. Empty: there is none.
type difference struct{ part, is, locked string }

func different(part, is, locked string) []difference {
	if is == locked {
		return nil
	}
	return []difference{{part, is, locked}}
}

// contradiction says how an entry of the lock differs from what it names: its index, or its archive. Nil: nowhere.
func contradiction(q parse.Requirement, what string, found []difference) error {
	if len(found) == 0 {
		return nil
	}
	var lines []string
	for _, d := range found {
		lines = append(lines, d.part, "  by "+what+": "+orNone(d.is), "  in the lock: "+orNone(d.locked))
	}
	return &sdk.Error{Summary: "what the lock has of " + q.String() + " is not of one package", Err: errContradicts,
		Detail: strings.Join(lines, "\n"), Remedy: "find out who changed the lock, and restore it from version control. To " +
			"lock what the source has now, remove " + q.String() + " from the lock and run recipe init"}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// sameContents reports whether an entry of the lock has the digests of a package, as what says.
func sameContents(q parse.Requirement, what string, is, locked Entry) error {
	found := slices.Concat(different("version", is.Version, locked.Version), different("index", is.Index, locked.Index),
		different("schema", is.Schema, locked.Schema), different("files", is.Files, locked.Files))
	all := map[string]Platform{}
	maps.Copy(all, is.Platforms)
	maps.Copy(all, locked.Platforms)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := is.Platforms[name], locked.Platforms[name]
		found = append(found, different(fmt.Sprintf("platform %q, manifest", name), a.Manifest, b.Manifest)...)
		found = append(found, different(fmt.Sprintf("platform %q, files", name), a.Files, b.Files)...)
	}
	return contradiction(q, what, found)
}

// checkContents reports where an entry of the lock contradicts the version that it names. A signature covers the index
// alone, so digests must lead from the index to every other part. An archive is checked against its checksum in the
// recipe. checkContents reads the store only.
func (s *Store) checkContents(q parse.Requirement, e Entry) error {
	is := e
	if IsArchive(q.Source) {
		inside, err := s.inArchive(q)
		switch {
		case err != nil:
			return err
		case q.Module:
			is.Files, is.Version = inside, ""
		default:
			is.Index = inside
		}
		if err := sameContents(q, "its archive, "+q.Checksum, is, e); err != nil || q.Module {
			return err
		}
	}
	targets, err := s.lockedTargets(q, e)
	if err != nil {
		return err
	}
	what := "its index, " + e.Index
	if q.Module {
		if is.Files, is.Version, err = s.moduleContents(q, targets); err != nil {
			return err
		}
		return sameContents(q, what, is, e)
	}
	is.Platforms = map[string]Platform{}
	for name, d := range targets {
		is.Platforms[name] = Platform{Manifest: d.Digest.String(), Files: e.Platforms[name].Files}
	}
	if err := sameContents(q, what, is, e); err != nil { // those of the lock may be stored, and those of the index not
		return err
	}
	return s.checkPlugin(q, what, is, e)
}

// lockedTargets reads the manifests that the index of an entry lists.
func (s *Store) lockedTargets(q parse.Requirement, e Entry) (map[string]v1.Descriptor, error) {
	digest, err := v1.NewHash(e.Index)
	if err != nil {
		return nil, err
	}
	raw, err := s.document(digest, maxManifest)
	if errors.Is(err, fs.ErrNotExist) { // an earlier version of this program did not keep it
		return nil, &sdk.Error{Summary: "the index of " + q.String() + ", which says what belongs to the package, is not " +
			"stored on this machine", Detail: e.Index,
			Remedy: "run recipe init, which fetches it; --from takes it from a vendored layout"}
	}
	if err != nil {
		return nil, damaged(q.String(), err)
	}
	index, err := parseIndex(raw, formatOf(q.Module))
	if err != nil {
		return nil, contradiction(q, "what is stored under this digest", []difference{{"index", err.Error(), e.Index}})
	}
	return index.targets()
}

// checkPlugin compares what the manifests of a plugin name with the lock; is has these manifests.
func (s *Store) checkPlugin(q parse.Requirement, what string, is, e Entry) error {
	for _, name := range slices.Sorted(maps.Keys(is.Platforms)) {
		p := is.Platforms[name]
		t, err := s.target(q.String(), p.Manifest, pluginFormat)
		if err != nil {
			return err
		}
		p.Files, is.Schema = t.files.Digest.String(), t.schema.Digest.String()
		is.Platforms[name] = p
		if err := sameContents(q, what, is, e); err != nil {
			return err
		}
	}
	digest, err := v1.NewHash(e.Schema)
	if err != nil {
		return err
	}
	document, err := s.document(digest, maxDocument)
	if err != nil {
		return damaged(q.String(), err)
	}
	d, err := readDescribed(document)
	if err != nil {
		return err
	}
	return contradiction(q, what, append(different("version", d.Version, e.Version), different("name", d.Name, q.Name)...))
}

// moduleContents is what the index of a module says of it.
func (s *Store) moduleContents(q parse.Requirement,
	targets map[string]v1.Descriptor) (files, version string, err error) {
	here, ok := onPlatform(targets, ThisPlatform())
	if !ok {
		return "", "", noPlatform(q.Name, q.Version, slices.Sorted(maps.Keys(targets)))
	}
	t, err := s.target(q.String(), here.Digest.String(), moduleFormat)
	if err != nil {
		return "", "", err
	}
	config, err := s.document(t.config.Digest, maxManifest)
	if err != nil {
		return "", "", damaged(q.String(), err)
	}
	var m moduleManifest
	if err := json.Unmarshal(config, &m); err != nil {
		return "", "", fmt.Errorf("read its configuration: %w", err)
	}
	return t.files.Digest.String(), m.Version, nil
}

// target reads a manifest of a package that is stored.
func (s *Store) target(of, digest string, f format) (target, error) {
	h, err := v1.NewHash(digest)
	if err != nil {
		return target{}, err
	}
	raw, err := s.document(h, maxManifest)
	if err != nil {
		return target{}, damaged(of, err)
	}
	return parseTarget(raw, f)
}

// inArchive is the digest of what the stored archive of a requirement has: the index of a plugin, or the files of a
// module. It follows from the checksum, so it is found once.
func (s *Store) inArchive(q parse.Requirement) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(q.Module, q.Checksum)
	if known := s.archived[key]; known != "" {
		return known, nil
	}
	checksum, err := v1.NewHash(q.Checksum)
	if err != nil {
		return "", err
	}
	content, err := os.Open(s.blobFile(checksum))
	if err != nil {
		return "", damaged(q.String(), err)
	}
	defer func() { _ = content.Close() }()
	if err := hashes(content, checksum); err != nil {
		return "", damaged(q.String(), err)
	}
	var inside []byte
	if q.Module {
		inside, err = repacked(content)
	} else {
		_, inside, err = archivedIndex(context.Background(), s.blobFile(checksum), q.Source)
	}
	if err != nil {
		return "", err
	}
	if s.archived == nil {
		s.archived = map[string]string{}
	}
	s.archived[key] = digestOf(inside).String()
	return s.archived[key], nil
}

// repacked is the archive that the store has of the files in an archive that somebody else made.
func repacked(content *os.File) ([]byte, error) {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	files, err := readArchive(content, moduleLimits)
	if err != nil {
		return nil, err
	}
	return archive(withoutTop(files), zip.Store) // no later compressor can change its digest, which is locked
}

// archivedIndex is the only version in the archive of a plugin, an OCI layout at a path. The caller has checked it.
func archivedIndex(ctx context.Context, path, source string) (version string, raw []byte, err error) {
	l, err := openArchive(path, source)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = l.close() }()
	return l.only(ctx)
}
