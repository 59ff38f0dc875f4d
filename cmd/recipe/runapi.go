package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/schema/parse"
)

func newRunAPI(a *app) *cobra.Command {
	var (
		o            trajectories.RunOptions
		maxStaleness int64
		tokenFile    string
	)
	cmd := &cobra.Command{
		Use:   "run-api",
		Short: "Serve the trajectory API alone, in place of Atropos's run-api",
		Long: `Serve the trajectory API without a recipe: the same routes as Atropos's run-api, for the same
environments and trainers. Groups are stored in a folder and survive a restart. Beyond this machine a token and TLS
are required; environments that can be given nothing but a URL use http://HOST:PORT/t/TOKEN.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Store == "memory" {
				o.Dir = ""
			}
			if o.Token == "" {
				o.Token = environment(a.environ, "RECIPE_RUN_API_TOKEN")
			}
			if tokenFile != "" {
				text, err := parse.ReadFile(tokenFile)
				if err != nil {
					return fmt.Errorf("read the token: %w", err)
				}
				o.Token = strings.TrimSpace(string(text))
			}
			if cmd.Flags().Changed("max-staleness") {
				o.LimitStaleness, o.MaxStaleness = true, maxStaleness
			}
			o.Log = slog.New(slog.NewTextHandler(a.err, nil))
			return trajectories.Run(cmd.Context(), o, a.out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Host, "host", "127.0.0.1", "`ADDRESS` to listen on")
	f.StringVar(&o.Advertise, "advertise", "",
		"`NAME` or address for clients, if different from the one to listen on")
	f.IntVar(&o.Port, "port", 8000, "port to listen on; 0: a free one")
	f.StringVar(&o.Dir, "dir", ".recipe/run-api", "`FOLDER` of the disk store")
	f.StringVar(&o.Store, "store", "disk", "where groups are kept: disk or memory")
	f.StringVar(&o.Sync, "sync", "always",
		"always: a post is answered after fsync; never: after write")
	f.StringVar(&o.Token, "token", "",
		"required token; prefer RECIPE_RUN_API_TOKEN or --token-file, which other users cannot see")
	f.StringVar(&tokenFile, "token-file", "", "read the token from a `FILE`")
	f.StringVar(&o.AdminToken, "admin-token", "", "token that /reset_data requires instead")
	f.StringVar(&o.Certificate, "tls-certificate", "",
		"PEM `FILE` of the TLS certificate; required beyond this machine")
	f.StringVar(&o.Key, "tls-key", "", "PEM `FILE` of its key")
	f.BoolVar(&o.Insecure, "insecure", false, "listen beyond this machine without a token or without TLS")
	f.StringSliceVar(&o.AllowedOrigins, "allow-origin", nil,
		"`ORIGIN` of a web page that may call the server, such as https://viewer.example (default: none)")
	f.StringSliceVar(&o.AllowedHosts, "allow-host", nil,
		"host `NAME` that clients without a token may use, besides addresses, localhost and this machine's "+
			"name")
	f.IntVar(&o.MaxQueueGroups, "max-queue-groups", 0,
		"maximum number of queued and leased groups; further posts are held (default 100000)")
	f.Int64Var(&o.MaxQueueBytes, "max-queue-bytes", 0, "the same in bytes (default 64 GiB)")
	f.Int64Var(&o.MaxBody, "max-body", 0, "largest request body after decompression, in bytes (default 256 MiB)")
	f.Int64Var(&o.MaxInflightBytes, "max-inflight-bytes", 0,
		"maximum memory for the bodies of all requests in flight (default 512 MiB)")
	f.IntVar(&o.MaxConnections, "max-connections", 0,
		"maximum number of connections; others wait to be accepted (default 4096)")
	f.Int64Var(&maxStaleness, "max-staleness", 0,
		"drop groups that are older than this many policy versions (default: keep all)")
	f.DurationVar(&o.EnvironmentTimeout, "environment-timeout", 0,
		"silence after which an environment counts as gone (default 5m; negative: never)")
	f.StringVar(&o.Batching, "batching", "fair",
		"fair: batches follow the weights of environments; compatible: order of arrival")
	f.StringVar(&o.Compression, "compression", "auto",
		"compression of batches, for clients that accept it: auto (not on this machine), always or never")
	return cmd
}

// environment reads a variable of the environment that the app was given.
func environment(environ []string, name string) string {
	for _, e := range environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
