package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// maxScrape bounds what one block may answer.
const maxScrape = 8 << 20

// endpoint is where a block serves its metrics.
type endpoint struct{ address, url, token string }

// endpoints are those of a run's gateways and trajectory APIs, on this machine. A run directory is a file that anyone
// may have written, so no token goes anywhere else.
func endpoints(dir state.Dir, rec *state.Run) (out []endpoint) {
	for a, b := range rec.Blocks {
		if b.External || a.Kind != kind.Inference && a.Kind != kind.Trajectories {
			continue
		}
		var text string
		for _, name := range []string{"base_url", "url"} {
			if json.Unmarshal(b.Outputs[name], &text) == nil && text != "" {
				break
			}
		}
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
			continue
		}
		token, err := dir.Token("data", a, b.Renewals)
		if err != nil {
			continue
		}
		u.Path = strings.TrimSuffix(u.Path, "/v1") + "/metrics"
		out = append(out, endpoint{a.String(), u.String(), token})
	}
	return out
}

// scrape asks one block.
func (s *Server) scrape(ctx context.Context, e endpoint) (families, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+e.token)
	reply, err := s.blocks.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics of %s is answered with %s", e.address, reply.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(io.LimitReader(reply.Body, maxScrape))
}
