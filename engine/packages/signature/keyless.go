package signature

import (
	"context"
	"errors"
	"fmt"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/sign"
	"google.golang.org/protobuf/encoding/protojson"
)

// wait is how long one request to a service of the signing configuration may take.
const wait = 30 * time.Second

// Keyless signs as an identity: with a key that is made for one signature and thrown away, for which a certificate
// authority confirms the identity, and whose use is in a transparency log.
type Keyless struct {
	Token  string // OIDC identity token (a JWT), whose audience is that of the certificate authority
	Config string // path of sigstore's signing_config.json: the URLs of its services
}

// Sign implements Signer.
func (k Keyless) Sign(ctx context.Context, message []byte) ([]byte, error) {
	options, err := k.services(ctx)
	if err != nil {
		return nil, err
	}
	key, err := sign.NewEphemeralKeypair(nil)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	b, err := makeBundle(message, key, options)
	if err != nil {
		return nil, fmt.Errorf("sign with the services of %s: %w", k.Config, err)
	}
	return protojson.Marshal(b)
}

// makeBundle is sign.Bundle, which panics where the answer of a log lacks a field (sigstore-go 1.3).
func makeBundle(message []byte, key sign.Keypair, o sign.BundleOptions) (b *protobundle.Bundle, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the answer of the transparency log is incomplete: %v", p)
		}
	}()
	return sign.Bundle(&sign.PlainData{Data: message}, key, o)
}

// services are those that the signing configuration names for now.
func (k Keyless) services(ctx context.Context) (o sign.BundleOptions, err error) {
	config, err := root.NewSigningConfigFromPath(k.Config)
	if err != nil {
		return o, fmt.Errorf("read the signing configuration %s: %w", k.Config, err)
	}
	now := time.Now()
	authority, err := root.SelectService(config.FulcioCertificateAuthorityURLs(), sign.FulcioAPIVersions, now)
	if err != nil {
		return o, fmt.Errorf("%s names no certificate authority (caUrls): %w", k.Config, err)
	}
	logs, err := root.SelectServices(config.RekorLogURLs(), config.RekorLogURLsConfig(), sign.RekorAPIVersions, now)
	if err != nil {
		return o, fmt.Errorf("%s names no transparency log (rekorTlogUrls): %w", k.Config, err)
	}
	o = sign.BundleOptions{Context: ctx, CertificateProvider: sign.NewFulcio(&sign.FulcioOptions{
		BaseURL: authority.URL, Timeout: wait, Retries: 1}),
		CertificateProviderOptions: &sign.CertificateProviderOptions{IDToken: k.Token}}
	for _, l := range logs {
		o.TransparencyLogs = append(o.TransparencyLogs, sign.NewRekor(&sign.RekorOptions{BaseURL: l.URL, Timeout: wait,
			Retries: 1, Version: l.MajorAPIVersion}))
	}
	if len(config.TimestampAuthorityURLs()) == 0 {
		return o, nil
	}
	stamps, err := root.SelectServices(config.TimestampAuthorityURLs(), config.TimestampAuthorityURLsConfig(),
		sign.TimestampAuthorityAPIVersions, now)
	if err != nil {
		return o, errors.Join(fmt.Errorf("%s names no time stamp authority (tsaUrls) of now", k.Config), err)
	}
	for _, s := range stamps {
		o.TimestampAuthorities = append(o.TimestampAuthorities, sign.NewTimestampAuthority(
			&sign.TimestampAuthorityOptions{URL: s.URL, Timeout: wait, Retries: 1}))
	}
	return o, nil
}
