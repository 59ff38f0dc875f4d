package trajectories

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/listener"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trace"
	"github.com/recipe-rl/recipe/sdk/trajectories"
)

// Block is the configuration of a `trajectories "builtin"` block.
type Block struct {
	Inference          []spec.Ref    `recipe:"inference" reference:"inference" doc:"inference blocks whose gateways are asked for log-probabilities and policy versions that posted groups lack; left out: those that environments refer to" change:"restart"`
	Store              string        `recipe:"store" doc:"where groups are kept: disk or memory" default:"disk" enum:"disk,memory" change:"restart"`
	Sync               string        `recipe:"sync" doc:"always: a post is answered when the disk has it; never: when the kernel has it, which survives the death of any process but no power cut" default:"always" enum:"always,never" change:"restart"`
	Host               string        `recipe:"host" doc:"address to listen on; beyond loopback the block's token is required of every request" default:"127.0.0.1" change:"restart"`
	Advertise          string        `recipe:"advertise" doc:"name or address that environments and trainers are given instead of host. Left out with host 0.0.0.0 or ::, it is the name that the certificate is for, else an address of this machine" change:"restart"`
	Port               int           `recipe:"port" doc:"port to listen on; 0 takes a free one and keeps it over restarts" default:"0" min:"0" max:"65535" change:"restart"`
	TLSCertificate     string        `recipe:"tls_certificate" doc:"PEM file of the certificate to serve with and its chain; needed beyond loopback. Clients trust the system's authorities, or those in the file that SSL_CERT_FILE names" change:"restart"`
	TLSKey             string        `recipe:"tls_key" doc:"PEM file of its key" change:"restart"`
	Insecure           bool          `recipe:"insecure" doc:"serve beyond loopback without TLS: anyone on the network path can read tokens and trajectories" default:"false" change:"restart"`
	AllowedOrigins     []string      `recipe:"allowed_origins" doc:"web pages that may use the API from a browser, such as https://viewer.example; none by default" change:"restart"`
	AllowedHosts       []string      `recipe:"allowed_hosts" doc:"names under which clients may address the API when it asks for no token, beside addresses, localhost and the machine's own name" change:"restart"`
	MaxQueueGroups     int           `recipe:"max_queue_groups" doc:"groups that may wait or be leased; a post beyond it is held" unit:"groups" default:"100000" min:"1" change:"restart"`
	MaxQueueBytes      int64         `recipe:"max_queue_bytes" doc:"the same in bytes" unit:"bytes" default:"68719476736" min:"1" change:"restart"`
	HoldTimeout        time.Duration `recipe:"hold_timeout" doc:"how long a post is held while the queue is full before it gets a 503" default:"240s" min:"1s" change:"restart"`
	MaxBody            int64         `recipe:"max_body" doc:"largest request body after decompression" unit:"bytes" default:"268435456" min:"1" change:"restart"`
	MaxInflightBytes   int64         `recipe:"max_inflight_bytes" doc:"memory that the bodies of all requests under way may take together" unit:"bytes" default:"536870912" min:"1" change:"restart"`
	MaxConnections     int           `recipe:"max_connections" doc:"connections at a time; others wait to be accepted" default:"4096" min:"1" change:"restart"`
	SamplesBytes       int64         `recipe:"samples_bytes" doc:"size on disk of the record of samples, which views of the run show; the oldest are deleted beyond it. 0: no samples are recorded" unit:"bytes" default:"2147483648" min:"0" change:"restart"`
	SamplesAge         time.Duration `recipe:"samples_age" doc:"age beyond which recorded samples are deleted; left out: none are for their age" default:"0s" min:"0s" change:"restart"`
	SamplesStore       string        `recipe:"samples_store" environment:"AWS_*" doc:"where the record of samples is copied while it is written, an S3 bucket: s3://BUCKET/FOLDER, with ?endpoint=https://HOST for another store than AWS; nothing is deleted there. Keys: AWS_ACCESS_KEY_ID and the like, ~/.aws/credentials, or the machine's role" change:"restart"`
	MaxStaleness       *int64        `recipe:"max_staleness" doc:"drop a group when the policy is more than this many versions ahead of the one that sampled it; left out: keep all" unit:"policy versions" min:"0" change:"restart"`
	EnvironmentTimeout time.Duration `recipe:"environment_timeout" doc:"time without a request after which an environment no longer counts, until its next request" default:"5m" min:"1s" change:"restart"`
	Batching           string        `recipe:"batching" doc:"fair: the weights of environments shape the mix of batches; compatible: strictly in order of arrival, as run-api does" default:"fair" enum:"fair,compatible" change:"restart"`
}

// Plugin is the built-in trajectories plugin.
func Plugin() *sdk.Definition {
	return trajectories.New("builtin", "The Atropos-compatible trajectory API: durable, bounded, versioned",
		func() sdk.Service[Block] { return service{} }, sdk.WithOutputs(given{}))
}

// given is what the block gives to others.
type given struct {
	outputs.Trajectories
	outputs.TrajectoryLimits
}

type service struct{}

var (
	_ sdk.Service[Block] = service{}
	_ sdk.Planner[Block] = service{}
)

// Plan implements sdk.Planner.
func (service) Plan(b Block, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	var problems []spec.Problem
	if ip := net.ParseIP(b.Host); ip != nil && !ip.IsLoopback() && !b.Insecure &&
		(b.TLSCertificate == "" || b.TLSKey == "") {
		problems = append(
			problems,
			spec.Problem{Path: cty.GetAttrPath("host"), Summary: "the address is reachable from other " +
				"machines and TLS is not set",
				Detail: fmt.Sprintf(
					"On %s tokens and trajectories would travel unencrypted. Set tls_certificate "+
						"and tls_key, leave host out, or set insecure = true where the network is trusted.",
					b.Host,
				)},
		)
	}
	if (b.TLSCertificate == "") != (b.TLSKey == "") {
		have, lack := "tls_certificate", "tls_key"
		if b.TLSCertificate == "" {
			have, lack = lack, have
		}
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath(have), Summary: have + " goes with " + lack,
			Detail: "TLS needs both the certificate and its key. Add " + lack + ", or leave " + have + " out."})
	}
	problems = append(problems, spec.Idle("samples_bytes is 0: no samples are recorded.",
		map[string]bool{"samples_age": b.SamplesAge > 0 && b.SamplesBytes == 0})...)
	problems = append(problems, spec.Idle(`store = "memory": nothing is written to the disk.`,
		map[string]bool{"sync": b.Store == "memory" && b.Sync == "never"})...)
	problems = append(problems, objectstore.Problems(b.SamplesStore, cty.GetAttrPath("samples_store"))...)
	if b.SamplesStore != "" && b.SamplesBytes == 0 {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("samples_store"), Summary: "No samples are recorded",
			Detail: "The record of samples is copied there, and samples_bytes = 0 turns it off. " +
				"Leave one of them out."})
	}
	e := sdk.Estimate{}
	if b.MaxStaleness != nil {
		e.Facts = map[string]string{"max_staleness": strconv.FormatInt(*b.MaxStaleness, 10)}
	}
	if b.Port != 0 {
		e.Amounts = []sdk.Amount{{Resource: "port", Part: "api", Value: float64(b.Port), How: "port"}}
	}
	return e, problems
}

// Run implements sdk.Service: it serves until ctx ends. Groups are kept in the run directory and outlive the process.
func (service) Run(ctx context.Context, req sdk.Request[Block], host sdk.Host) error {
	closed, err := copied(ctx, req, host)
	if err != nil {
		return err
	}
	return closed(serve(ctx, req, host))
}

func serve(ctx context.Context, req sdk.Request[Block], host sdk.Host) error {
	b := req.Config
	ln, err := listen(ctx, b, req.Listen)
	if err != nil {
		return err
	}
	certificates, err := loadTLS(inFolder(req.RecipeDir, b.TLSCertificate), inFolder(req.RecipeDir, b.TLSKey))
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	lookup, stop, err := gateways(b.Inference)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer stop()
	c := Config{
		Store: b.Store, Sync: b.Sync, MaxQueueGroups: b.MaxQueueGroups, MaxQueueBytes: b.MaxQueueBytes,
		HoldTimeout: b.HoldTimeout, MaxBody: b.MaxBody, MaxInflightBytes: b.MaxInflightBytes,
		MaxConnections: b.MaxConnections, EnvironmentTimeout: b.EnvironmentTimeout, Batching: b.Batching,
		AllowedOrigins: b.AllowedOrigins, AllowedHosts: append(b.AllowedHosts, b.Host, b.Advertise),
		TLS: certificates, Insecure: b.Insecure, Token: req.Token, AdminToken: req.ControlToken, Completions: lookup,
		Log:         slog.New(slog.DiscardHandler),
		Trace:       trace.NewRecorder(req.Environment, host.Span),
		SamplesLost: func(err error) { host.Log("warn", err.Error()+"; samples are missing from the views of the run") },
		Room: func(waiting string) {
			if waiting == "" {
				host.Phase(sdk.Ready, "")
				return
			}
			host.Phase(sdk.Degraded, "it "+waiting+"; posts wait until there is room")
		},
	}
	if b.Store == "disk" {
		c.Dir = filepath.Join(req.RunDir, "trajectories", filepath.Base(req.Dir))
	}
	if b.SamplesBytes > 0 {
		c.Samples = samplesDir(req)
		c.SamplesLimits = samples.Limits{Bytes: b.SamplesBytes, Age: b.SamplesAge}
	}
	if b.MaxStaleness != nil {
		c.LimitStaleness, c.MaxStaleness = true, *b.MaxStaleness
	}
	server, err := Open(ctx, c)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	server.cfg.limitMemory()
	if req.Policy.Version > 0 {
		if err := server.SetPolicyVersion(ctx, req.Policy.Version); err != nil {
			return errors.Join(err, ln.Close(), server.Close(context.WithoutCancel(ctx)))
		}
	}
	host.Listening(ln.Addr().String())
	host.Activities(server.Activities)
	if err := c.checkAddress(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close(), server.Close(context.WithoutCancel(ctx)))
	}
	scheme := "http"
	if certificates != nil {
		scheme = "https"
	}
	url := urlOf(scheme, advertised(ln.Addr(), b.Advertise, certificates), "")
	host.Ready(given{outputs.Trajectories{URL: url, Token: req.Token},
		outputs.TrajectoryLimits{MaxStaleness: b.MaxStaleness}})
	err = server.Serve(ctx, ln)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), host.Grace())
	defer cancel()
	return errors.Join(err, server.Close(closing))
}

// listen takes the port that the recipe names, or the one of an earlier process, or a free one.
func listen(ctx context.Context, b Block, earlier string) (net.Listener, error) {
	address := net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	ln, err := listener.Open(ctx, earlier, b.mayListenAgain, address)
	if err != nil {
		return nil, &sdk.Error{
			Summary: fmt.Sprintf("the trajectory API cannot listen on %s", address), Err: err,
			Remedy: "End what uses that address, or leave port out: a free one is taken then.",
			Path:   cty.GetAttrPath("port"),
		}
	}
	return ln, nil
}

// mayListenAgain says whether an earlier address may be taken. It comes from the run's record, which another program
// may have written: a block that is to listen on loopback does so, whatever the record says.
func (b Block) mayListenAgain(at netip.AddrPort) bool {
	ip, err := netip.ParseAddr(b.Host)
	loopback := b.Host == "localhost" || err == nil && ip.IsLoopback()
	return (b.Port == 0 || b.Port == int(at.Port())) && (at.Addr().IsLoopback() || !loopback)
}

// inFolder is a path of the recipe, relative to its folder.
func inFolder(folder, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// gateways asks the gateways of inference blocks for the record of a completion.
func gateways(refs []spec.Ref) (Lookup, func(), error) {
	var clients []*gateway.Client
	stop := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	for _, r := range refs {
		var out outputs.Inference
		if err := r.Decode(&out); err != nil {
			stop()
			return nil, nil, fmt.Errorf("reading the outputs of %s: %w", r.Address, err)
		}
		if out.ControlURL != "" {
			clients = append(clients, gateway.NewClient(out.ControlURL, out.ControlToken))
		}
	}
	if len(clients) == 0 {
		return nil, stop, nil
	}
	return func(ctx context.Context, tokens []int64, _ int) ([]Completion, error) {
		ids := make([]int, len(tokens))
		for i, t := range tokens {
			ids[i] = int(t)
		}
		var found []Completion
		for _, c := range clients {
			r, err := c.Lookup(ctx, ids)
			if err != nil {
				return nil, fmt.Errorf("asking a gateway for the record of a completion: %w", err)
			}
			if !r.Found {
				continue
			}
			logprobs := make([]float64, len(r.Record.Logprobs))
			for i, l := range r.Record.Logprobs {
				logprobs[i] = float64(l)
			}
			found = append(
				found,
				Completion{Logprobs: logprobs, MinVersion: int64(r.Record.Version), MaxVersion: int64(r.Record.VersionMax)},
			)
		}
		return found, nil
	}, stop, nil
}
