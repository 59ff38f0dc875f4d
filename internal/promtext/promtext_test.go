package promtext_test

import (
	"math"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/recipe-rl/recipe/internal/promtext"
)

// read answers what Prometheus's own parser makes of a page.
func read(t *testing.T, p *promtext.Page) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	p.Answer(w)
	if got := expfmt.ResponseFormat(w.Header()).FormatType(); got != expfmt.TypeTextPlain {
		t.Errorf("Content-Type %q is not the text format", w.Header().Get("Content-Type"))
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestPrometheusReadsAPage(t *testing.T) {
	t.Parallel()
	p := promtext.NewPage("x_")
	p.Single("depth", "gauge", "How deep.", 2.5)
	p.Family("posts_total", "counter", "Posts.")
	const odd = "a\\b\"c\nd\xff"
	p.Sample("posts_total", 3, "env", odd, "code", "200")
	p.Single("unknown", "gauge", "No value yet.", math.NaN())
	families := read(t, p)
	if got := families["x_depth"]; got.GetHelp() != "How deep." || got.GetType() != dto.MetricType_GAUGE ||
		got.Metric[0].GetGauge().GetValue() != 2.5 {
		t.Errorf("x_depth: %v", got)
	}
	posts := families["x_posts_total"]
	if posts.GetType() != dto.MetricType_COUNTER || posts.Metric[0].GetCounter().GetValue() != 3 {
		t.Errorf("x_posts_total: %v", posts)
	}
	labels := map[string]string{}
	for _, l := range posts.Metric[0].Label {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["env"] != "a\\b\"c\nd?" || labels["code"] != "200" {
		t.Errorf("labels %q", labels)
	}
	if !math.IsNaN(families["x_unknown"].Metric[0].GetGauge().GetValue()) {
		t.Error("NaN did not come through")
	}
}

func TestPrometheusReadsHistograms(t *testing.T) {
	t.Parallel()
	bounds := []float64{.1, 1}
	routes, waits := promtext.NewHistogram("route", bounds), promtext.NewHistogram("", bounds)
	for _, x := range []float64{.05, .1, .5, 7} { // a bound is the upper end of its own bucket
		routes.Observe("/a", x)
	}
	p := promtext.NewPage("x_")
	p.Histogram("seconds", "Time.", routes)
	p.Histogram("waits", "Waits.", waits)
	families := read(t, p)
	h := families["x_seconds"].Metric[0].GetHistogram()
	want := []struct {
		bound float64
		count uint64
	}{{.1, 2}, {1, 3}, {math.Inf(1), 4}}
	if len(h.Bucket) != len(want) {
		t.Fatalf("%d buckets: %v", len(h.Bucket), h)
	}
	for i, w := range want {
		if h.Bucket[i].GetUpperBound() != w.bound || h.Bucket[i].GetCumulativeCount() != w.count {
			t.Errorf("bucket %d: %v, expected %v", i, h.Bucket[i], w)
		}
	}
	if h.GetSampleCount() != 4 || h.GetSampleSum() != 7.65 {
		t.Errorf("count and sum: %v", h)
	}
	if got := families["x_waits"]; len(got.Metric) != 1 || got.Metric[0].GetHistogram().GetSampleCount() != 0 ||
		len(got.Metric[0].Label) != 0 {
		t.Errorf("a histogram without observations and label: %v", got)
	}
}
