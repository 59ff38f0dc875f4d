package trajectories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/internal/redact"
)

// RunOptions are the flags of `recipe run-api`.
type RunOptions struct {
	Config
	Host string // the address to listen on; empty means 127.0.0.1
	Port int    // 0 takes a free one
	// Advertise is the name or address that clients are given, when it is not Host.
	Advertise string

	Certificate, Key string // PEM files to serve TLS with; empty: plain HTTP
}

// Run serves the trajectory API until ctx ends, and writes one line to out when it is ready for requests.
func Run(ctx context.Context, o RunOptions, out io.Writer) (err error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	address := net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf(
			"listening on %s for the trajectory API: %w; choose another address with --host and --port",
			address,
			err,
		)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	scheme := "http"
	if o.Certificate != "" || o.Key != "" {
		if o.TLS, err = loadTLS(o.Certificate, o.Key); err != nil {
			return errors.Join(err, ln.Close())
		}
		scheme = "https"
	}
	if err := o.checkAddress(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	o.AllowedHosts = append(o.AllowedHosts, o.Host, o.Advertise)
	began := time.Now()
	s, err := Open(ctx, o.Config)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	s.cfg.limitMemory()
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, s.Close(stop))
	}()
	token := ""
	if o.Token != "" {
		token = "<token>"
	}
	if _, err := fmt.Fprintf(out, "trajectory API ready on %s (store: %s, %d groups waiting, %s)\n",
		urlOf(scheme, advertised(ln.Addr(), o.Advertise, o.TLS), token), redact.Text(s.cfg.Store), s.state.held.Groups,
		time.Since(began).Round(time.Millisecond)); err != nil {
		return errors.Join(err, ln.Close())
	}
	return s.Serve(ctx, ln)
}
