package packages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk"
)

// maxRedirects is how often a server may answer that an archive is under another path.
const maxRedirects = 5

// fromArchive fetches an archive by its URL, checks it, and returns its entry for the lock. locked: the lock has what
// the recipe requires, in before.
func (r Resolver) fromArchive(ctx context.Context, q parse.Requirement, before Entry, locked bool) (Entry, error) {
	if err := unsignable(q, r.Store.policies(q)); err != nil {
		return Entry{}, err
	}
	checksum, err := v1.NewHash(q.Checksum)
	if err != nil {
		return Entry{}, err
	}
	if err := r.fetchArchive(ctx, q.Source, checksum); err != nil {
		return Entry{}, err
	}
	var e Entry
	if q.Module {
		e, err = r.archivedModule(ctx, q, checksum)
	} else {
		e, err = r.archivedPlugin(ctx, q, checksum)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("%s: %w", q.Source, err)
	}
	if locked {
		if err := sameContents(q, "the archive", e, before); err != nil {
			return Entry{}, err
		}
		if len(e.Signatures) == 0 { // nobody demands them here
			e.Signatures = before.Signatures
		}
	}
	return e, nil
}

// fetchArchive stores an archive: from an OCI layout that the settings or --from name for it, else from its URL.
func (r Resolver) fetchArchive(ctx context.Context, source string, checksum v1.Hash) error {
	if r.Store.whole(v1.Descriptor{Digest: checksum}) {
		return nil
	}
	r.noteFetched()
	location, inside := r.archived(source)
	if !inside {
		return r.download(ctx, source, checksum)
	}
	l, err := openLayout(location, Source{repository: address(source)})
	if err != nil {
		return err
	}
	defer func() { _ = l.close() }()
	blob, err := l.blob(ctx, checksum)
	if err != nil {
		return err
	}
	return errors.Join(r.Store.put(checksum, -1, blob), blob.Close())
}

// archived is the layout that has the archive of a source; inside: there is one.
func (r Resolver) archived(source string) (layout string, inside bool) {
	layouts := slices.DeleteFunc(slices.Clone(r.Mirrors), func(m Mirror) bool { return IsSource(m.Location) })
	return mirrored(Source{repository: address(source)}, layouts)
}

func (r Resolver) download(ctx context.Context, source string, checksum v1.Hash) error {
	at, err := url.Parse(source)
	if err != nil {
		return err
	}
	if at.User != nil {
		return errors.New("the address of an archive contains a user or password, which would be in the recipe and its " +
			"lock")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: r.Registries.transport(), CheckRedirect: sameHost}
	resp, err := client.Do(req)
	var away *redirectError
	switch {
	case errors.As(err, &away):
		return &sdk.Error{Summary: source + " redirects to elsewhere", Detail: "to: " + away.to, Err: err,
			Remedy: "if that is right and stays, write it as source; a registry (oci://…) has no such addresses"}
	case err != nil:
		return unreachable(source, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return unreachable(source, fmt.Errorf("the server answered %d", resp.StatusCode)) // its text has any length
	}
	err = r.Store.put(checksum, -1, resp.Body)
	var other *DigestError
	if errors.As(err, &other) {
		return &sdk.Error{Summary: source + " is not the archive that its checksum promises",
			Detail: "expected: " + other.Want + "\ngot:      " + other.Have, Err: err,
			Remedy: "ask its author whether it was changed, and why. If the new content is right, write it as checksum in " +
				"the recipe, and run recipe init"}
	}
	if err != nil {
		return unreachable(source, err)
	}
	return nil
}

func unreachable(source string, err error) error {
	return &sdk.Error{Summary: "could not fetch " + source, Detail: err.Error(), Err: err,
		Remedy: "check the address and that it can be reached, then try again; --from with a vendored layout needs no server"}
}

// redirectError reports that a server sends its clients to another host, or away from https.
type redirectError struct{ to string }

func (e *redirectError) Error() string { return "redirected to " + e.to }

// sameHost refuses redirects to other hosts: the recipe says where an archive comes from.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Host != via[0].URL.Host || req.URL.Scheme != "https" {
		return &redirectError{to: req.URL.Scheme + "://" + req.URL.Host + req.URL.Path} // its query may contain a token
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return nil
}

// archivedPlugin locks the plugin in an archive: the only version in an OCI layout.
func (r Resolver) archivedPlugin(ctx context.Context, q parse.Requirement, checksum v1.Hash) (Entry, error) {
	l, err := openArchive(r.Store.blobFile(checksum), q.Source)
	if err != nil {
		return Entry{}, err
	}
	defer func() { _ = l.close() }()
	version, raw, err := l.only(ctx)
	if err != nil {
		return Entry{}, err
	}
	if !allows(q.Version, version) && q.Version != "" {
		return Entry{}, &sdk.Error{Summary: fmt.Sprintf("it has version %s, which %q does not allow", version, q.Version),
			Remedy: "change version in required_plugins, or remove it: the checksum identifies the archive"}
	}
	r.fetched = nil // the archive is stored, from wherever it came
	return r.lock(ctx, l, q, version, raw)
}

// only is the version in a layout that has one.
func (l *layoutRepository) only(ctx context.Context) (version string, raw []byte, err error) {
	tags, err := l.tags(ctx)
	if err != nil {
		return "", nil, &sdk.Error{Summary: "it is no package of a plugin", Detail: err.Error(), Err: err,
			Remedy: "publish a .tar or .tar.gz that recipe plugin build --out wrote"}
	}
	if len(tags) != 1 {
		return "", nil, fmt.Errorf("it has %d versions of the plugin, expected one", len(tags))
	}
	version = versionOf(tags[0])
	raw, err = l.index(ctx, version)
	return version, raw, err
}

// vendorArchive copies an archive into a layout folder, where fetchArchive finds it by its checksum.
func (r Resolver) vendorArchive(ctx context.Context, e Entry, dir string) error {
	checksum, err := v1.NewHash(e.Checksum)
	if err != nil {
		return err
	}
	if err := r.fetchArchive(ctx, e.Source, checksum); err != nil {
		return err
	}
	content, err := os.ReadFile(r.Store.blobFile(checksum))
	if err != nil {
		return err
	}
	img, err := newArtifact(typeArchive, document([]byte("{}"), emptyType), nil, document(content, typeBytes))
	if err != nil {
		return err
	}
	return addTagged(ctx, dir, e.Source, img)
}
