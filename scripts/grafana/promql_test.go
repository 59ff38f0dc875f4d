// Package grafana checks docs/grafana/recipe.json with Prometheus's own parser. It is a module of its own: recipe does
// not need Prometheus.
package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestEveryQueryParses parses the queries of all panels as PromQL, with Grafana's own interval filled in.
func TestEveryQueryParses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana", "recipe.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := 0
	promql := parser.NewParser(parser.Options{})
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries++
			query := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			if _, err := promql.ParseExpr(query); err != nil {
				t.Errorf("panel %q: %v in %s", panel.Title, err, target.Expr)
			}
		}
	}
	if queries < len(board.Panels) || queries == 0 {
		t.Errorf("%d queries in %d panels", queries, len(board.Panels))
	}
}
