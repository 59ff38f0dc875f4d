package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/recipe-rl/recipe/engine/alert"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// examplesOf are the pages that have HCL, and their pieces of it.
func examplesOf(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(repository, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pages {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := filepath.Rel(repository, path)
			for _, m := range regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllSubmatch(text, -1) {
				out[filepath.ToSlash(name)] = append(out[filepath.ToSlash(name)], string(m[1]))
			}
		}
	}
	return out
}

// catalogOfDocs has the plugins that the examples use.
func catalogOfDocs(t *testing.T) *host.Catalog {
	t.Helper()
	catalog, err := newApp(nil, io.Discard, io.Discard,
		[]string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl"), "RECIPE_TRUST=all"}).catalog()
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// notRecipes begin pieces of other files: settings, policies, locks, tests of recipes.
var notRecipes = regexp.MustCompile(`(?m)^(policies|deny|lock_version|verify|mirror|dev_overrides|variables)\b`)

// elsewhere are complaints about what a piece leaves out: other blocks, and files of the reader.
var elsewhere = []string{"Undeclared block", "Missing attribute", "File not found", "File not readable",
	"Module not usable", "Plugin not usable", "Missing plugin", "script or module, exactly one of them"}

// TestExamplesOfDocsAreValid: what a page shows has no attribute, block or metric that does not exist. The pieces of
// the pages on the language and on alerts are recipes by themselves, and formatted.
func TestExamplesOfDocsAreValid(t *testing.T) {
	t.Parallel()
	catalog := catalogOfDocs(t)
	seen := 0
	for page, pieces := range examplesOf(t) {
		whole := slices.Contains([]string{"docs/language.md", "docs/alerts.md", "README.md"}, page)
		for i, src := range pieces {
			if notRecipes.MatchString(src) {
				continue
			}
			seen++
			t.Run(fmt.Sprintf("%s %d", page, i), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				writeExampleFiles(t, dir)
				load := src
				if page == "docs/alerts.md" {
					load += "trainer \"grpo\" \"policy\" { model = \"m\" }\n"
				}
				_, diags := schema.LoadSource(filepath.Join(dir, "page.hcl"), []byte(load), schema.Options{Plugins: catalog,
					Environ: []string{"ALERT_URL=http://127.0.0.1:1", "HOME=" + dir}})
				for _, d := range diags {
					// What a block that is not in the piece would give is reported as unknown.
					left := slices.Contains(elsewhere, d.Summary) || strings.Contains(d.Detail, "the value is not known yet")
					if d.Summary == "File not found" || !whole && left {
						continue
					}
					t.Errorf("%s: %s", d.Summary, d.Detail)
				}
				if formatted := parse.Format([]byte(src)); page == "docs/language.md" && string(formatted) != src {
					t.Errorf("not formatted:\n%s", formatted)
				}
			})
		}
	}
	if seen < 40 {
		t.Errorf("only %d pieces found", seen)
	}
}

// writeExampleFiles makes what pieces read while they are loaded.
func writeExampleFiles(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"train.yaml": "micro_batch_size: 1\n",
		"modules/eval/eval.hcl": "variable \"model\" { type = string }\ninference \"vllm\" \"policy\" { " +
			"model = var.model }\noutput \"url\" { value = inference.vllm.policy.base_url }\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAlertsOfDocsFire: each alert of the docs fires when what it waits for happens in the log of a run, under the
// names that each trainer reports; before, it does not.
//
//docs:alerts.md the example is delivered
func TestAlertsOfDocsFire(t *testing.T) {
	t.Parallel()
	catalog := catalogOfDocs(t)
	found := 0
	for page, pieces := range examplesOf(t) {
		for i, src := range pieces {
			if !strings.Contains(src, "\nalert \"") && !strings.HasPrefix(src, "alert \"") {
				continue
			}
			for _, d := range builtins() {
				if d.Kind != "trainer" {
					continue
				}
				found++
				t.Run(fmt.Sprintf("%s %d %s", page, i, d.Name), func(t *testing.T) {
					t.Parallel()
					name := "reward" // as this trainer reports it
					if m, _ := d.Schema.Reports("reward"); m != nil {
						name = m.Name
					}
					alertsFire(t, catalog, src, "trainer."+d.Name+".policy", name)
				})
			}
		}
	}
	if found == 0 {
		t.Error("the docs have no alert")
	}
}

// alertsFire loads alerts, with what they deliver to on this machine, and lets a run go wrong.
func alertsFire(t *testing.T, plugins schema.Plugins, src, trainer, reward string) {
	t.Helper()
	dir := t.TempDir()
	var posted atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if _, err := body.ReadFrom(r.Body); err == nil && strings.Contains(body.String(), `"alert":"reward_fell"`) {
			posted.Add(1)
		}
	}))
	defer receiver.Close()
	mail := filepath.Join(dir, "mail")
	if err := os.WriteFile(mail, []byte("#!/bin/sh\ncat >\""+dir+"/sent\"\n"), 0o700); err != nil { //nolint:gosec // run
		t.Fatal(err)
	}
	src = strings.NewReplacer("trainer.grpo.policy", trainer, `"mail"`, fmt.Sprintf("%q", mail)).Replace(src)
	src += fmt.Sprintf("trainer %q \"policy\" {}\n", strings.Split(trainer, ".")[1])
	r, diags := schema.LoadSource(filepath.Join(dir, "page.hcl"), []byte(src),
		schema.Options{Plugins: plugins, Environ: []string{"ALERT_URL=" + receiver.URL}})
	for _, d := range diags {
		if strings.Contains(d.Detail, "alert") {
			t.Error(d.Detail)
		}
	}
	if len(r.Alerts) == 0 {
		t.Fatal("no alerts")
	}
	log, err := event.Open(filepath.Join(dir, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	fired := map[string]bool{}
	watch, err := alert.Start(t.Context(), alert.Options{Alerts: r.Alerts, Events: filepath.Join(dir, "events"), Run: "r",
		Free: func() (uint64, error) { return 1 << 50, nil }, Secrets: func(...string) {},
		Record: func(e event.Event) {
			if e.Type == event.Alert {
				fired[e.Name] = true
			} else {
				t.Errorf("recorded: %+v", e)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(e event.Event) {
		if _, err := log.Append(e); err != nil {
			t.Error(err)
		}
	}
	put(event.Event{Type: event.RunStarted})
	for step := range int64(20) { // from 0.9 down to 0.5
		value := 0.9
		if step >= 10 {
			value = 0.5
		}
		put(event.Event{Type: event.Metrics, Address: trainer, Step: step + 1, Metrics: map[string]float64{reward: value}})
	}
	put(event.Event{Type: event.Stalled, Address: trainer, Seconds: 660, Message: "it waits"})
	watch.Stop()
	for _, a := range r.Alerts {
		if !fired[a.Name] {
			t.Errorf("alert %s has not fired", a.Name)
		}
	}
	if sent, err := os.ReadFile(filepath.Join(dir, "sent")); posted.Load() != 1 || err != nil ||
		!strings.Contains(string(sent), `"alert":"stalled"`) {
		t.Errorf("%d posted, the command got %q, %v", posted.Load(), sent, err)
	}
}
