// Package agent is the program that an executor starts on another machine, `recipe agent`. It connects to the engine
// of the run, by mutual TLS with certificates of the run's authority, starts one block's plugin process when the engine
// asks for it, and carries connections: of the engine to the plugin, and of blocks to blocks on other machines. It ends
// everything that it has started when it is told to, when it gets SIGTERM, or when it has had no engine for too long.
package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/protocol"
)

// BootstrapFormat is the version of a bootstrap file and of the messages between an engine and its agents.
const BootstrapFormat = 1

// Bootstrap is the content of the file that an agent is started with. It holds a key, hence mode 0600; it never stands
// in an argument or in the environment, which others can see.
type Bootstrap struct {
	Format int          `json:"format"`
	Job    executor.Key `json:"job"`
	Node   int          `json:"node"`   // the machine among those of the job; ReadBootstrap sets it
	Engine string       `json:"engine"` // path of the file with the engine's addresses, which a later engine replaces
	// Addresses are the engine's where there is no such file: a later engine connects to the agent, or has the same ones.
	Addresses []string `json:"addresses,omitempty"`
	// Folder is that of the block in the run's directory, where files are staged.
	Folder      string        `json:"folder,omitempty"`
	Credentials Credentials   `json:"credentials"`
	Others      []Credentials `json:"others,omitempty"` // of the agents on the job's further machines, from number 1
	Listen      string        `json:"listen,omitempty"` // address for other agents and engines; empty: all of the machine's
	Patience    time.Duration `json:"patience"`         // how long it looks for an engine at first
	// Grace is how long the block may take to end in order when the job is asked to; 0: stopGrace.
	Grace time.Duration `json:"grace,omitempty"`
}

// Addresses is the content of the file of the engine's addresses: HOST:PORT, all of which lead to it from somewhere.
type Addresses struct {
	Format    int      `json:"format"`
	Addresses []string `json:"addresses"`
}

const maxFile = 1 << 20 // of these files

func readJSON(path string, into any) error {
	data, err := private.ReadFile(path, maxFile)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// WriteJSON replaces a file that only this user can read.
func WriteJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		err = private.WriteFile(path, data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ReadBootstrap reads a bootstrap file, for the agent on one of the job's machines. It may be a Secret in a pod: behind
// links, and of root with the pod's group.
func ReadBootstrap(path string, node int) (Bootstrap, error) {
	var b Bootstrap
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile || info.Mode().Perm()&0o007 != 0) {
		err = fmt.Errorf("it has mode %s and %d bytes; expected a file of at most %d that others cannot open", info.Mode(),
			info.Size(), maxFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		return b, fmt.Errorf("read %s: %w", path, err)
	}
	if b.Format != BootstrapFormat {
		return b, fmt.Errorf("read %s: it has format %d, expected %d; the engine and its agents must be the same version "+
			"of recipe", path, b.Format, BootstrapFormat)
	}
	if node < 0 || node > len(b.Others) {
		return b, fmt.Errorf("read %s: it is for a job of %d machines, and this is number %d, counted from 0", path,
			len(b.Others)+1, node)
	}
	if b.Node = node; node > 0 {
		b.Credentials = b.Others[node-1]
	}
	b.Others = nil
	return b, nil
}

// Credentials are a certificate of the run's authority with its key, PEM.
type Credentials struct {
	Authority []byte           `json:"authority"` // its certificate
	Own       protocol.KeyPair `json:"own"`
}

// EngineName is the name in the engine's certificate.
const EngineName = "engine"

// Config is TLS among the members of the run: either side accepts only certificates of its authority. Name is that of
// the server, for the side that connects.
func (c Credentials) Config(name string) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.Own.Certificate, c.Own.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of this member of the run: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.Authority) {
		return nil, errors.New("the certificate of the run's authority cannot be read; expected PEM")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: name,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}, nil
}

// PeerName is the name in the certificate of the other side.
func PeerName(c *tls.Conn) string {
	if certs := c.ConnectionState().PeerCertificates; len(certs) > 0 && len(certs[0].DNSNames) == 1 {
		return certs[0].DNSNames[0]
	}
	return ""
}
