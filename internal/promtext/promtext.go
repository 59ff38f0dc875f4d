// Package promtext writes metrics in the text format of Prometheus. Prometheus's own client reads the whole process
// and compiles regular expressions when a program starts, which every command of recipe would pay for.
package promtext

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Page is the answer to one scrape.
type Page struct {
	prefix string
	text   strings.Builder
}

// NewPage starts a page. prefix is put before the name of every metric.
func NewPage(prefix string) *Page { return &Page{prefix: prefix} }

// Family says of what kind ("counter", "gauge", "summary") the samples of this name are that follow.
func (p *Page) Family(name, kind, help string) {
	fmt.Fprintf(&p.text, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", p.prefix+name, help, kind)
}

// Sample writes one value. labels are pairs of name and value.
func (p *Page) Sample(name string, value float64, labels ...string) {
	p.text.WriteString(p.prefix + name)
	for i := 0; i+1 < len(labels); i += 2 {
		p.text.WriteByte("{,"[min(i/2, 1)])
		p.text.WriteString(labels[i] + "=" + quote(labels[i+1]))
	}
	if len(labels) > 0 {
		p.text.WriteByte('}')
	}
	p.text.WriteString(" " + number(value) + "\n")
}

// Single writes a family of one value.
func (p *Page) Single(name, kind, help string, value float64) {
	p.Family(name, kind, help)
	p.Sample(name, value)
}

// Histogram writes a histogram.
func (p *Page) Histogram(name, help string, h *Histogram) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.Family(name, "histogram", help)
	for _, value := range slices.Sorted(maps.Keys(h.series)) {
		s := h.series[value]
		var labels []string
		if h.label != "" {
			labels = []string{h.label, value}
		}
		below := uint64(0)
		for i, bound := range h.bounds {
			below += s.buckets[i]
			p.Sample(name+"_bucket", float64(below), append(labels, "le", number(bound))...)
		}
		p.Sample(name+"_bucket", float64(s.count), append(labels, "le", "+Inf")...)
		p.Sample(name+"_sum", s.sum, labels...)
		p.Sample(name+"_count", float64(s.count), labels...)
	}
}

// Answer sends the page.
func (p *Page) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, p.text.String())
}

// Histogram counts observations in buckets, apart for each value of one label.
type Histogram struct {
	label  string
	bounds []float64

	mu     sync.Mutex
	series map[string]*series
}

type series struct {
	buckets []uint64
	sum     float64
	count   uint64
}

// NewHistogram makes a histogram. bounds are the upper ends of its buckets, in order. Without a label it has one
// series from the start, which is observed with the value "".
func NewHistogram(label string, bounds []float64) *Histogram {
	h := &Histogram{label: label, bounds: bounds, series: map[string]*series{}}
	if label == "" {
		h.of("")
	}
	return h
}

// Observe counts one observation of x, with this value of the label.
func (h *Histogram) Observe(value string, x float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.of(value)
	i, _ := slices.BinarySearch(h.bounds, x)
	s.buckets[i]++
	s.sum += x
	s.count++
}

func (h *Histogram) of(value string) *series {
	s := h.series[value]
	if s == nil {
		s = &series{buckets: make([]uint64, len(h.bounds)+1)}
		h.series[value] = s
	}
	return s
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func quote(s string) string { return `"` + escaper.Replace(strings.ToValidUTF8(s, "?")) + `"` }
