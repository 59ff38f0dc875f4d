package agent

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// An agent whose machine has no file system in common with the engine's gets no bootstrap file. It is given a Join on
// its standard input: where the engine listens, the authority by whose certificate it knows the engine, and a token
// that is good for one agent on each of the job's machines. For the token it gets its bootstrap.

// JoinProtocol is the application protocol (ALPN) of a connection without a certificate of the run.
const JoinProtocol = "recipe-join"

// Join is what such an agent is started with.
type Join struct {
	Format    int           `json:"format"`
	Job       executor.Key  `json:"job"`
	Token     string        `json:"token"`
	Addresses []string      `json:"addresses"` // of the engine
	Authority []byte        `json:"authority"` // its certificate, PEM
	Patience  time.Duration `json:"patience"`  // how long it looks for the engine
}

// JoinRequest is the first line of a connection with JoinProtocol; a JoinResponse answers it.
type JoinRequest struct {
	Job      executor.Key `json:"job"`
	Node     int          `json:"node"`
	Instance string       `json:"instance"` // random: the same agent may ask again, another may not
	Token    string       `json:"token"`
}

// JoinResponse is the bootstrap of an agent, or why it gets none.
type JoinResponse struct {
	Error     string     `json:"error,omitempty"`
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
}

// RunJoined is Run for the agent on one of the job's machines that gets its bootstrap from the engine.
func RunJoined(ctx context.Context, from io.Reader, node int, scratch string, log io.Writer) error {
	var j Join
	err := json.NewDecoder(io.LimitReader(from, maxFile)).Decode(&j)
	if err == nil && j.Format != BootstrapFormat {
		err = fmt.Errorf("it has format %d, expected %d; the engine and its agents must be the same version of recipe",
			j.Format, BootstrapFormat)
	}
	if err != nil {
		return fmt.Errorf("read from the standard input how to join a run: %w", err)
	}
	instance := rand.Text()
	b, err := j.ask(ctx, node, instance)
	if err != nil {
		return fmt.Errorf("join the run: %w", err)
	}
	s, err := openStaging(scratch, b, log)
	if err != nil {
		return fmt.Errorf("make a folder for the job: %w", err)
	}
	return errors.Join(run(ctx, b, instance, s, s.log), s.close())
}

// errRefused reports that the engine has answered, and asking again would not help.
var errRefused = errors.New("the engine refuses this agent")

// ask asks the engine for the bootstrap until it answers.
func (j Join) ask(ctx context.Context, node int, instance string) (Bootstrap, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(j.Authority) {
		return Bootstrap{}, errors.New("the certificate of the run's authority cannot be read; expected PEM")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: EngineName,
		NextProtos: []string{JoinProtocol}}
	ctx, cancel := context.WithTimeout(ctx, j.Patience)
	defer cancel()
	for {
		b, err := j.askOnce(ctx, config, JoinRequest{Job: j.Job, Node: node, Instance: instance, Token: j.Token})
		if err == nil || errors.Is(err, errRefused) {
			return b, err
		}
		select {
		case <-ctx.Done():
			return b, fmt.Errorf("no answer within %s: %w", j.Patience, err)
		case <-time.After(redialEvery):
		}
	}
}

func (j Join) askOnce(ctx context.Context, config *tls.Config, r JoinRequest) (Bootstrap, error) {
	c, err := dialFirst(ctx, j.Addresses, config)
	if err != nil {
		return Bootstrap{}, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * dialTimeout))
	var out JoinResponse
	if err = writeLine(c, r); err == nil {
		err = readLine(bufio.NewReader(c), &out)
	}
	switch {
	case err != nil:
		return Bootstrap{}, fmt.Errorf("ask the engine at %s: %w", c.RemoteAddr(), err)
	case out.Error != "" || out.Bootstrap == nil:
		return Bootstrap{}, fmt.Errorf("%w: %s", errRefused, out.Error)
	}
	return *out.Bootstrap, nil
}

// ReadJoin reads the request of an agent that joins.
func ReadJoin(c io.Reader) (JoinRequest, error) {
	var r JoinRequest
	err := readLine(bufio.NewReader(io.LimitReader(c, maxFile)), &r)
	return r, err
}

// AnswerJoin answers it.
func AnswerJoin(c io.Writer, r JoinResponse) error { return writeLine(c, r) }
