// Package remote is the engine's side of executors: it submits jobs, accepts the connections of their agents, starts
// plugin processes through them, and lets blocks on different machines connect to each other.
package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// authorityFile holds the run's authority, in the run directory: each engine of the run has the same.
const authorityFile = "authority.json"

// certificateLife is that of the run's certificates: longer than any job. An agent whose job is over is not accepted,
// whatever its certificate says.
const certificateLife = 10 * 365 * 24 * time.Hour

// ForgetAuthority removes the authority of a run: the next engine makes another.
func ForgetAuthority(run string) error {
	if err := os.Remove(filepath.Join(run, authorityFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the authority of the run: %w", err)
	}
	return nil
}

// authority makes the certificates of a run's members.
type authority struct {
	pair        protocol.KeyPair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// openAuthority reads the authority of a run, or makes it.
func openAuthority(run string) (*authority, error) {
	path := filepath.Join(run, authorityFile)
	var a authority
	data, err := private.ReadFile(path, 1<<20)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if a.pair, err = protocol.NewKeyPair(); err == nil {
			err = agent.WriteJSON(path, a.pair)
		}
	case err == nil:
		err = json.Unmarshal(data, &a.pair)
	}
	if err != nil {
		return nil, fmt.Errorf("the authority of the run: %w", err)
	}
	if err := a.parse(); err != nil {
		return nil, fmt.Errorf("the authority of the run in %s is damaged: %w; end the run with recipe destroy", path, err)
	}
	return &a, nil
}

func (a *authority) parse() (err error) {
	block, _ := pem.Decode(a.pair.Key)
	if block == nil {
		return errors.New("it holds no key")
	}
	if a.key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return err
	}
	a.certificate, err = x509.ParseCertificate(a.pair.DER())
	return err
}

// issue makes a key and a certificate for a member of the run.
func (a *authority) issue(name string) (agent.Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return agent.Credentials{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return agent.Credentials{}, fmt.Errorf("make a certificate: %w", err)
	}
	now := time.Now().Add(-time.Hour) // for clocks that differ
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		NotBefore: now, NotAfter: now.Add(certificateLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return agent.Credentials{}, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return agent.Credentials{}, fmt.Errorf("make a key: %w", err)
	}
	return agent.Credentials{Authority: a.pair.Certificate, Own: protocol.KeyPair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}}, nil
}
