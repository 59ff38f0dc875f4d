package protocol

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// KeyPair is a key and its self-signed certificate, PEM. Engine and plugin make one each and know the other's
// certificate. The curve is P-256: go-plugin's own P-521 is not accepted by the TLS of gRPC for Python, and go-plugin's
// AutoMTLS keeps the key in memory only, so that an engine that was killed could not come back.
type KeyPair struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
}

// certificateLife is longer than any run.
const certificateLife = 10 * 365 * 24 * time.Hour

// NewKeyPair makes a key pair.
func NewKeyPair() (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a certificate: %w", err)
	}
	// An hour back, for clocks that are being corrected.
	now := time.Now().Add(-time.Hour)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
		NotBefore: now, NotAfter: now.Add(certificateLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("make a key: %w", err)
	}
	return KeyPair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}, nil
}

// DER is the certificate as bytes.
func (k KeyPair) DER() []byte {
	block, _ := pem.Decode(k.Certificate)
	if block == nil {
		return nil
	}
	return block.Bytes
}

// ServerConfig is TLS for the side that listens: it accepts only the holder of the client's certificate.
func (k KeyPair) ServerConfig(client []byte) (*tls.Config, error) {
	pair, pool, err := k.with(client)
	if err != nil {
		return nil, fmt.Errorf("TLS of the plugin: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS13,
	}, nil
}

// ClientConfig is TLS for the side that connects: it accepts only the holder of the server's certificate. A nil server
// leaves that to go-plugin, which takes the certificate from the handshake.
func (k KeyPair) ClientConfig(server []byte) (*tls.Config, error) {
	if server == nil {
		pair, err := tls.X509KeyPair(k.Certificate, k.Key)
		if err != nil {
			return nil, fmt.Errorf("TLS of the engine: %w", err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, ServerName: "localhost",
			MinVersion: tls.VersionTLS12}, nil
	}
	pair, pool, err := k.with(server)
	if err != nil {
		return nil, fmt.Errorf("TLS of the engine: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: "localhost",
		MinVersion: tls.VersionTLS12}, nil
}

func (k KeyPair) with(other []byte) (tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.X509KeyPair(k.Certificate, k.Key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(other) {
		return tls.Certificate{}, nil, errors.New("the other side's certificate cannot be read; expected PEM")
	}
	return pair, pool, nil
}
