package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/recipe-rl/recipe/sdk"
)

// Stall is how long a registry may send nothing before a transfer is given up.
const Stall = 30 * time.Second

// Registries is how registries are reached. The zero value uses the docker configuration of this user for credentials.
type Registries struct {
	Transport http.RoundTripper // nil: remote.DefaultTransport
	Keychain  authn.Keychain    // nil: authn.DefaultKeychain
	Stall     time.Duration     // 0: Stall
	Retry     time.Duration     // wait before the first of two retries; 0: one second
}

// transport is that of all requests: it ends those that stall, and sends no credentials in the clear.
func (g Registries) transport() http.RoundTripper {
	t := &stallTransport{base: g.Transport, stall: g.Stall}
	if t.base == nil {
		t.base = remote.DefaultTransport
	}
	if t.stall == 0 {
		t.stall = Stall
	}
	return sealedTransport{t}
}

// sealedTransport refuses requests with credentials by http, but to a registry on this machine or its own network.
// After a redirect from https to http, go-containerregistry would send all that follows there, with the credentials.
type sealedTransport struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t sealedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && req.Header.Get("Authorization") != "" {
		if r, err := name.NewRegistry(req.URL.Host); err != nil || r.Scheme() != "http" {
			return nil, &sdk.Error{Summary: "the credentials would be sent to " + req.URL.Host + " by http, which everybody " +
				"on the way can read", Detail: "http://" + req.URL.Host + req.URL.Path,
				Remedy: "the registry redirects there: ask who runs it to let it redirect to https"}
		}
	}
	return t.base.RoundTrip(req)
}

func (g Registries) options(ctx context.Context) []remote.Option {
	keychain := g.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	retry := g.Retry
	if retry == 0 {
		retry = time.Second
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(keychain),
		remote.WithTransport(bounded(g.transport(), true)), remote.WithUserAgent("recipe"),
		remote.WithRetryBackoff(remote.Backoff{Duration: retry, Factor: 3, Jitter: 0.1, Steps: 3})}
}

// listing are the options of requests for lists and manifests.
func (g Registries) listing(ctx context.Context) []remote.Option {
	return append(g.options(ctx), remote.WithTransport(bounded(g.transport(), false)))
}

// registryRepository is a repository of a registry.
type registryRepository struct {
	name       name.Repository
	registries Registries
	publishes  bool // Push and Sign; the others fetch
}

func openRemote(location string, registries Registries) (*registryRepository, error) {
	s, err := ParseSource(location)
	if err != nil {
		return nil, err
	}
	n, err := name.NewRepository(s.repository, name.StrictValidation)
	return &registryRepository{name: n, registries: registries}, err
}

func (r *registryRepository) String() string { return scheme + r.name.Name() }

const listVersions = "list the versions"

func (r *registryRepository) tags(ctx context.Context) ([]string, error) {
	tags, err := remote.List(r.name, r.registries.listing(ctx)...)
	return tags, r.explain(ctx, listVersions, err)
}

func (r *registryRepository) index(ctx context.Context, version string) ([]byte, error) {
	d, err := remote.Get(r.name.Tag(tagOf(version)), r.registries.listing(ctx)...)
	if err != nil {
		return nil, r.explain(ctx, "read version "+version, err)
	}
	return d.Manifest, nil
}

func (r *registryRepository) manifest(ctx context.Context, digest v1.Hash) ([]byte, error) {
	d, err := remote.Get(r.name.Digest(digest.String()), r.registries.listing(ctx)...)
	if err != nil {
		return nil, r.explain(ctx, "read manifest "+digest.String(), err)
	}
	return d.Manifest, nil
}

func (r *registryRepository) blob(ctx context.Context, digest v1.Hash) (io.ReadCloser, error) {
	l, err := remote.Layer(r.name.Digest(digest.String()), r.registries.options(ctx)...)
	if err != nil {
		return nil, r.explain(ctx, "fetch "+digest.String(), err)
	}
	body, err := l.Compressed()
	return body, r.explain(ctx, "fetch "+digest.String(), err)
}

func (r *registryRepository) image(ctx context.Context, digest v1.Hash) (v1.ImageIndex, error) {
	i, err := remote.Index(r.name.Digest(digest.String()), r.registries.options(ctx)...)
	return i, r.explain(ctx, "fetch "+digest.String(), err)
}

func (r *registryRepository) referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	// The registry without the referrers API has them under a tag, which package remote reads then.
	idx, err := remote.Referrers(r.name.Digest(digest.String()), r.registries.listing(ctx)...)
	if err != nil {
		return nil, r.explain(ctx, "list the signatures", err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	return m.Manifests, nil
}

// explain adds the remedy for what registries answer.
func (r *registryRepository) explain(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s of %s: %w", doing, r, cause)
	}
	var refused *sdk.Error
	if errors.As(err, &refused) {
		return fmt.Errorf("could not %s of %s: %w", doing, r, refused)
	}
	var answered *transport.Error
	if !errors.As(err, &answered) {
		return &sdk.Error{Summary: fmt.Sprintf("could not %s of %s", doing, r), Err: err, Remedy: r.unreachable()}
	}
	switch answered.StatusCode {
	case http.StatusNotFound:
		remedy := "check the address: HOST, then the path of the repository"
		if doing != listVersions {
			remedy += ", and the version; recipe plugin list " + r.String() + " shows those that are there"
		}
		return &notFoundError{what: "such package or version (could not " + doing + ")", where: r.String(), remedy: remedy}
	case http.StatusUnauthorized, http.StatusForbidden:
		return &sdk.Error{Summary: fmt.Sprintf("could not %s of %s: the registry refused access (%d)", doing, r,
			answered.StatusCode), Err: err,
			Remedy: "log in with docker login " + r.name.RegistryStr() + ", or another program that writes the docker " +
				"configuration or is a credential helper; check that the account may use this repository"}
	}
	return &sdk.Error{Summary: fmt.Sprintf("could not %s of %s: the registry answered %d", doing, r, answered.StatusCode),
		Err: err, Remedy: "try again later; " + r.keeps()}
}

func (r *registryRepository) unreachable() string {
	remedy := "check that the registry can be reached, then try again: " + r.keeps()
	if r.publishes {
		return remedy
	}
	return remedy + "; a mirror in the settings, or --from with a vendored layout, needs no registry"
}

// keeps describes what another try need not do again.
func (r *registryRepository) keeps() string {
	if r.publishes {
		return "what the registry has already is not sent again"
	}
	return "what has been fetched is kept"
}
