package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/ui"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
)

// uiFlags are where the dashboard is served.
type uiFlags struct {
	host             string
	port             int
	certificate, key string
	insecure         bool
	tokenFile        string
	noToken          bool
	noBrowser        bool
}

func newUI(a *app) *cobra.Command {
	var (
		file string
		f    uiFlags
	)
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a dashboard of the runs here: curves, samples, timeline, logs",
		Long: `Serve a dashboard of the runs here: curves, samples with their tokens, timeline, logs and configuration, in a
browser, until Ctrl-C. It only reads run directories, so it works during a run and long after it.

It listens on this machine only. The address that it prints contains a token, as every user of the machine can connect;
on a desktop the address is opened in a browser. With --host it is reached from other machines: then it needs a
certificate, too (or --insecure).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serveUI(cmd.Context(), file, &f)
		},
	}
	addRun(cmd, &file)
	cmd.Flags().StringVar(&f.host, "host", "127.0.0.1", "`ADDRESS` to listen on")
	cmd.Flags().IntVar(&f.port, "port", 0, "port to listen on; 0 takes a free one")
	cmd.Flags().StringVar(&f.certificate, "tls-certificate", "", "PEM `FILE` of the certificate to serve with")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "PEM `FILE` of its key")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false,
		"serve beyond this machine without TLS: anyone on the network path can read the token and all samples")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "",
		"`FILE` with the token, so that addresses stay valid; a missing one is written")
	cmd.Flags().BoolVar(&f.noToken, "no-token", false,
		"ask for no token: every user of this machine can read the samples, logs and configuration of the runs")
	cmd.Flags().BoolVar(&f.noBrowser, "no-browser", false, "open no browser")
	cmd.MarkFlagsMutuallyExclusive("no-token", "token-file")
	return cmd
}

func (a *app) serveUI(ctx context.Context, file string, f *uiFlags) error {
	if file != "" && !exists(file) { // else the runs beside it would be shown in its place
		if _, _, err := locateRun(file); err != nil {
			return err
		}
	}
	options := ui.Options{Hosts: []string{f.host}, Runs: func() (map[string]state.Dir, error) { return namedRuns(file) }}
	if runs, err := options.Runs(); err != nil {
		return err
	} else if len(runs) == 0 {
		return fmt.Errorf("%w here: recipe apply FILE starts one", errNoRun)
	}
	query, err := f.secure(&options)
	if err != nil {
		return err
	}
	d, err := listenUI(ctx, a.out, options, f, query)
	if err != nil {
		return err
	}
	if f.noToken {
		fmt.Fprintln(a.err, "Without a token, every user of this machine can read the samples, logs and configuration of "+
			"these runs.")
	}
	if _, ok := view.TerminalOf(a.out); ok && !f.noBrowser {
		// Where there is no desktop, the printed address is enough.
		if forget, err := openBrowser(d.address); err == nil {
			defer forget()
		}
	}
	return d.serve(ctx)
}

// dashboard listens, and serves once serve is called.
type dashboard struct {
	server   *ui.Server
	listener net.Listener
	address  string
}

// listenUI begins to listen and writes the address to out.
func listenUI(ctx context.Context, out io.Writer, options ui.Options, f *uiFlags, query string) (*dashboard, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(f.host, strconv.Itoa(f.port)))
	if err != nil {
		return nil, &sdk.Error{Summary: fmt.Sprintf("the dashboard cannot listen on port %d of %s", f.port, f.host), Err: err,
			Remedy: "leave --port out: a free one is taken then"}
	}
	server, err := ui.New(options)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	scheme := "http"
	if options.TLS != nil {
		scheme = "https"
	}
	d := &dashboard{server, ln, fmt.Sprintf("%s://%s/%s", scheme, ln.Addr(), query)}
	if _, err = fmt.Fprintf(out, "The dashboard is at %s (Ctrl-C ends it)\n", d.address); err != nil {
		server.Close()
		return nil, errors.Join(err, ln.Close())
	}
	return d, nil
}

// serve answers until ctx ends.
func (d *dashboard) serve(ctx context.Context) error {
	defer d.server.Close()
	return d.server.Serve(ctx, d.listener)
}

// token is a random token, or the token in --token-file, which is written if it is missing.
func (f *uiFlags) token() (string, error) {
	if f.tokenFile == "" {
		return rand.Text(), nil
	}
	data, err := private.ReadFile(f.tokenFile, maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		token := rand.Text()
		return token, newFile(f.tokenFile, []byte(token+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if !tokenPattern.MatchString(token) {
		return "", &sdk.Error{Summary: "--token-file " + f.tokenFile +
			" holds no token: expected 20 or more letters, digits, " +
			"- and _ on one line", Remedy: "remove the file: a token is written into a new one"}
	}
	return token, nil
}

const maxTokenFile = 4096

// tokenPattern holds for tokens that are hard to guess and need no escapes in a URL.
var tokenPattern = lazyregexp.New(`^[A-Za-z0-9_-]{20,}$`)

// secure sets a token, and TLS where other machines can reach the server, and returns the query that contains the
// token.
func (f *uiFlags) secure(o *ui.Options) (query string, err error) {
	if f.certificate != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.certificate, f.key)
		if err != nil {
			return "", fmt.Errorf("--tls-certificate %s and --tls-key %s: expected PEM files that belong together: %w",
				f.certificate, f.key, err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	ip, err := netip.ParseAddr(f.host)
	if f.host == "localhost" || err == nil && ip.IsLoopback() {
		if f.noToken {
			return "", nil
		}
		o.Token, err = f.token()
		return "?token=" + o.Token, err
	}
	if f.noToken {
		return "", &sdk.Error{Summary: fmt.Sprintf("--no-token does not go with --host %s, which other machines reach",
			f.host), Remedy: "leave --no-token out"}
	}
	if o.TLS == nil && !f.insecure {
		return "", &sdk.Error{Summary: fmt.Sprintf("--host %s is reachable from other machines and TLS is not set", f.host),
			Remedy: "set --tls-certificate and --tls-key, or --insecure where the network is trusted; or leave --host out and " +
				"forward the port: ssh -L 8080:127.0.0.1:PORT"}
	}
	if o.Token, err = f.token(); err != nil {
		return "", err
	}
	if name, err := os.Hostname(); err == nil {
		o.Hosts = append(o.Hosts, name)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			o.Hosts = append(o.Hosts, prefix.Addr().String())
		}
	}
	return "?token=" + o.Token, nil
}

// namedRuns are the runs that a command may mean, by the names of their folders; where two have one name, by their
// paths.
func namedRuns(file string) (map[string]state.Dir, error) {
	dirs, err := runDirs(file)
	if err != nil {
		return nil, err
	}
	out := map[string]state.Dir{}
	for _, d := range dirs {
		dir, err := filepath.Abs(d)
		if err != nil {
			return nil, fmt.Errorf("find the runs: %w", err)
		}
		if !state.Dir(dir).Exists() {
			continue
		}
		name := filepath.Base(dir)
		if _, taken := out[name]; taken {
			name = filepath.Base(filepath.Dir(filepath.Dir(dir))) + "/" + name
		}
		out[name] = state.Dir(dir)
	}
	return out, nil
}

// uiBeside serves the dashboard of one run until stop is called, and writes its address to the errors.
func (a *app) uiBeside(ctx context.Context, dir state.Dir) (address string, stop func(), err error) {
	path, err := filepath.Abs(string(dir))
	if err != nil {
		return "", nil, fmt.Errorf("find the run: %w", err)
	}
	runs := map[string]state.Dir{filepath.Base(path): state.Dir(path)}
	options := ui.Options{Runs: func() (map[string]state.Dir, error) { return runs, nil }}
	f := &uiFlags{host: "127.0.0.1"}
	query, err := f.secure(&options)
	if err != nil {
		return "", nil, err
	}
	d, err := listenUI(ctx, a.err, options, f, query)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.serve(ctx) }()
	return d.address, func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintf(a.err, "recipe: the dashboard ended: %v\n", err)
		}
	}, nil
}
