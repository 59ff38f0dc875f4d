// Command bench puts two trajectory APIs through the same load in one run and writes a table that compares them.
//
//	bench --ours "runapi --dir DIR" \
//	  --theirs "python -m atroposlib.cli.run_api --host 127.0.0.1" > docs/benchmarks/trajectories.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/columns"
)

func main() {
	ours := flag.String("ours", "", "command that starts recipe's server")
	theirs := flag.String("theirs", "", "command that starts run-api")
	repeat := flag.Int("repeat", 3, "repetitions; the table shows the median")
	only := flag.String("only", "", "comma-separated phases: status,post,drain,mixed,deep (default all)")
	match := flag.String("match", "", "only rows whose name contains this")
	scale := flag.Float64("scale", 1, "factor on the amount of work")
	equal := flag.Bool("equal", false, "post as much to theirs as to ours, for two servers of one kind")
	note := flag.String("note", "", "a sentence for the head of the table")
	flag.Parse()
	if err := run(*ours, *theirs, *only, *note, pair{repeat: *repeat, scale: *scale, match: *match,
		equal: *equal}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// pair holds the two servers; theirs is nil when only ours is measured.
type pair struct {
	ours, theirs *server
	repeat       int
	scale        float64
	match        string
	equal        bool // theirs gets as much work as ours, where the phase is of posts
}

func run(ours, theirs, only, note string, p pair) error {
	ctx := context.Background()
	var err error
	if p.ours, err = start(ctx, "recipe", strings.Fields(ours)); err != nil {
		return err
	}
	defer p.ours.stop()
	if theirs != "" {
		if p.theirs, err = start(ctx, "run-api", strings.Fields(theirs)); err != nil {
			return err
		}
		defer p.theirs.stop()
	}
	fmt.Print(header(note))
	for _, phase := range []struct {
		name string
		run  func() error
	}{{"status", p.runStatus}, {"post", p.runPosts}, {"drain", p.runDrains}, {"mixed", p.runMixed}, {"deep", p.runDeep}} {
		if only != "" && !slices.Contains(strings.Split(only, ","), phase.name) {
			continue
		}
		if err := phase.run(); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	return nil
}

// times scales an amount of work, but not below 1.
func (p pair) times(n int) int { return max(1, int(float64(n)*p.scale)) }

// row measures both servers alternately, so that other load on the machine affects both, and prints the medians, the
// extremes, and the median of the ratios.
func (p pair) row(name string, ours, theirs func() (result, error)) error {
	if !strings.Contains(name, p.match) {
		return nil
	}
	var o, t []result
	var ratios []float64
	for range p.repeat {
		r, err := ours()
		if err != nil {
			return err
		}
		o = append(o, r)
		if p.theirs == nil {
			continue
		}
		if r, err = theirs(); err != nil {
			return err
		}
		t = append(t, r)
		ratios = append(ratios, o[len(o)-1].perCPU()/r.perCPU())
	}
	r, extremes := median(o)
	line := fmt.Sprintf("| %s | **%.0f** (%s) | %.0f | %s / %s |", name, r.perCPU(), extremes, r.perWall(),
		ms(r.quantile(0.5)), ms(r.quantile(0.99)))
	if p.theirs == nil {
		fmt.Println(line + " – | – | – | – |")
		return nil
	}
	slices.Sort(ratios)
	r, extremes = median(t)
	fmt.Printf("%s %.0f (%s) | %.0f | %s / %s | **%.1f×** (%.1f–%.1f) |\n", line, r.perCPU(), extremes, r.perWall(),
		ms(r.quantile(0.5)), ms(r.quantile(0.99)),
		ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	return nil
}

// median is the run with the median figure, and the extremes.
func median(all []result) (r result, extremes string) {
	slices.SortFunc(all, func(a, b result) int { return int(1000 * (a.perCPU() - b.perCPU())) })
	return all[len(all)/2], fmt.Sprintf("%.0f–%.0f", all[0].perCPU(), all[len(all)-1].perCPU())
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

const heading = `
| %s | recipe, per server-CPU-s (range) | per wall s | ms p50 / p99 ` +
	`| run-api, per server-CPU-s (range) | per wall s | ms p50 / p99 | ratio (range) |
|---|---|---|---|---|---|---|---|
`

func (p pair) runStatus() error {
	fmt.Printf(heading, "requests")
	f := func(s *server, n int) func() (result, error) {
		return func() (result, error) {
			if err := s.prepare(256, 8, 1); err != nil {
				return result{}, err
			}
			return s.measure(func() (float64, []time.Duration, error) {
				latency, err := parallel(4, n, func(int) error { _, _, err := s.call("GET", "/status", nil); return err })
				return float64(n), latency, err
			})
		}
	}
	return p.row("GET /status", f(p.ours, p.times(20000)), f(p.theirs, p.times(2000)))
}

func (p pair) runPosts() error {
	fmt.Printf(heading, "posts")
	for _, c := range []struct {
		sh       shape
		zipped   bool
		n, other int
	}{{shape{8, 512}, false, 4000, 400}, {shape{8, 512}, true, 4000, 400}, {shape{8, 4096}, false, 600, 60},
		{shape{8, 4096}, true, 600, 60}} {
		name := fmt.Sprintf("POST %s plain", c.sh)
		if c.zipped {
			name = fmt.Sprintf("POST %s gzip", c.sh)
		}
		if p.equal {
			c.other = c.n
		}
		err := p.row(name,
			func() (result, error) { return p.ours.posts(c.sh, p.times(c.n), c.zipped) },
			func() (result, error) { return p.theirs.posts(c.sh, p.times(c.other), c.zipped) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (p pair) runDrains() error {
	fmt.Printf(heading, "sequences")
	for _, c := range []struct {
		sh             shape
		batch          int
		batches, other int
		accept         string
	}{{shape{8, 512}, 256, 64, 4, "identity"}, {shape{8, 512}, 256, 64, 4, "gzip, deflate"}, {shape{8, 4096}, 64, 32, 2,
		"identity"}, {shape{8, 4096}, 64, 32, 2, "gzip, deflate"}} {
		err := p.row(fmt.Sprintf("drain %s, batch %d, accept %s", c.sh, c.batch, c.accept),
			func() (result, error) {
				return p.ours.drain(c.sh, c.batch, p.times(c.batches), "Accept-Encoding", c.accept)
			},
			func() (result, error) {
				return p.theirs.drain(c.sh, c.batch, p.times(c.other), "Accept-Encoding", c.accept)
			})
		if err != nil {
			return err
		}
	}
	return p.runColumns()
}

// runColumns drains as our own trainer does. run-api has no such form: it answers in JSON.
func (p pair) runColumns() error {
	for _, c := range []struct {
		sh             shape
		batch          int
		batches, other int
		encoding       string
	}{{shape{8, 512}, 256, 64, 4, "identity"}, {shape{8, 4096}, 64, 32, 2, "identity"}} {
		headers := []string{"Accept", columns.ContentType, "Accept-Encoding", c.encoding}
		err := p.row(fmt.Sprintf("drain %s, batch %d, as an Arrow stream", c.sh, c.batch),
			func() (result, error) { return p.ours.drain(c.sh, c.batch, p.times(c.batches), headers...) },
			func() (result, error) { return p.theirs.drain(c.sh, c.batch, p.times(c.other), headers...) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (p pair) runMixed() error {
	fmt.Print("\n| mixed: environments and a trainer, 8 × 512, batch 256 | posts/s | posts per server-CPU-s | POST " +
		"ms p50 / p99 / max | /status-env ms p50 / p99 | /batch ms p50 / p99 | sequences out/s " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, c := range []struct {
		name         string
		environments int
		pause        time.Duration
	}{{"one post per 2 s each", 64, 2 * time.Second}, {"back to back", 64, 0},
		{"one post per 10 s each", 1000, 10 * time.Second}} {
		for _, s := range []*server{p.ours, p.theirs} {
			if s == nil {
				continue
			}
			m, err := s.mixed(shape{8, 512}, c.environments, 256, c.pause, time.Duration(20*p.scale*float64(time.Second)))
			if err != nil {
				return err
			}
			fmt.Printf("| %s, %d environments, %s | %.0f | %.0f | %s / %s / %s | %s / %s | %s / %s | %.0f |\n", s.name,
				c.environments, c.name, m.posts.perWall(), m.posts.perCPU(),
				ms(m.posts.quantile(0.5)), ms(m.posts.quantile(0.99)), ms(m.posts.quantile(1)), ms(m.status.quantile(0.5)),
				ms(m.status.quantile(0.99)),
				ms(m.batches.quantile(0.5)), ms(m.batches.quantile(0.99)), m.batches.count/m.posts.wall.Seconds())
		}
	}
	return nil
}

func (p pair) runDeep() error {
	fmt.Print("\n| queue depth | groups | resident MiB (without file pages) | /status-env ms | first /batch ms " +
		"|\n|---|---|---|---|---|\n")
	for _, c := range []struct {
		s      *server
		sh     shape
		depths []int
	}{
		{p.ours, shape{8, 512}, []int{1000, 10_000, 50_000}},
		{p.theirs, shape{8, 512}, []int{1000}},
		{p.ours, shape{8, 16}, []int{1000, 100_000, 1_000_000}},
		{p.theirs, shape{8, 16}, []int{1000, 10_000}},
	} {
		if c.s == nil || !strings.Contains(c.s.name+", "+c.sh.String(), p.match) {
			continue
		}
		for i := range c.depths {
			c.depths[i] = p.times(c.depths[i])
		}
		all, err := c.s.deep(c.sh, c.depths)
		for _, d := range all {
			fmt.Printf("| %s, %s | %d | %.0f (%.0f) | %s | %s |\n", c.s.name, c.sh, d.groups, d.resident, d.own,
				ms(d.status), ms(d.batch))
		}
		if err != nil {
			return err
		}
	}
	_, _, err := p.ours.call("GET", "/reset_data", nil)
	return err
}
