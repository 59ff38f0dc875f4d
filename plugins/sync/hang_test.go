package sync_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// hanging stands in front of a gateway's control endpoint and never answers requests to load weights, as when a
// collective operation waits for a peer that is gone.
func hanging(t *testing.T, control string) string {
	t.Helper()
	target, err := url.Parse(control)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	pass.Transport = transport
	ended, end := context.WithCancel(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/weights") {
			select {
			case <-r.Context().Done():
			case <-ended.Done():
			}
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { end(); s.Close(); transport.CloseIdleConnections() })
	return s.URL
}

// An update that hangs ends at its deadline, names the block that hangs and its phase, and leaves the gateway open.
//
//docs:survival.md a weight update hangs silently
func TestAnUpdateThatHangsIsNamedWithinItsDeadline(t *testing.T) {
	t.Parallel()
	server := startInference(t, plugintest.FakeConfig{})
	train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
	b := plugintest.Harness(t, sync.Definition())
	c := config(train, server)
	c.Timeout = time.Second
	attributes := c.Inference[0].Values.AsValueMap()
	attributes["control_url"] = cty.StringVal(hanging(t, server.Output("control_url")))
	c.Inference[0].Values = cty.ObjectVal(attributes)
	b.Start(c)
	over := func(e *pluginpb.Event) bool { return e.GetPhase().GetPhase() == string(sdk.Failed) }
	said := b.Wait("failure", over).GetPhase()
	for _, want := range []string{"policy version 1", "inference.fake.test"} {
		if !strings.Contains(said.GetMessage(), want) {
			t.Errorf("the failure does not say %q: %s", want, said.GetMessage())
		}
	}
	if said.GetRemedy() == "" {
		t.Error("the failure says no remedy")
	}
	if m := train.Wait("failure", over).GetPhase().GetMessage(); !strings.Contains(m, syncAddress) {
		t.Errorf("the trainer waits without end, or does not say for whom: %q", m)
	}
	direct := client(server)
	defer direct.Close()
	for deadline := time.Now().Add(plugintest.Deadline); ; time.Sleep(5 * time.Millisecond) {
		s, err := direct.Status(t.Context())
		if err == nil && !s.Held {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway is still held: %+v %v", s, err)
		}
	}
}

// A stop in the middle of an update is no warning: what it breaks off has not failed.
func TestAStopInAnUpdateWarnsOfNothing(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	first := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/weights") || strings.HasSuffix(r.URL.Path, "/policy_version") {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the connection ends
				asked <- r.URL.Path
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	for path, change := range map[string]func(c *sync.Config, url string){
		"/weights": func(c *sync.Config, url string) {
			attributes := c.Inference[0].Values.AsValueMap()
			attributes["control_url"] = cty.StringVal(url)
			c.Inference[0].Values = cty.ObjectVal(attributes)
		},
		"/policy_version": func(c *sync.Config, url string) {
			book := plugintest.Ref("trajectories.x.y", kind.Trajectories, outputs.Trajectories{URL: url, Token: "secret"})
			c.Trajectories = &book
		},
	} {
		server := startInference(t, plugintest.FakeConfig{})
		target, err := url.Parse(server.Output("control_url"))
		if err != nil {
			t.Fatal(err)
		}
		pass, transport := httputil.NewSingleHostReverseProxy(target), &http.Transport{}
		pass.Transport = transport
		front := httptest.NewServer(first(pass))
		train := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 2})
		b := plugintest.Harness(t, sync.Definition())
		c := config(train, server)
		change(&c, front.URL)
		b.Start(c)
		select {
		case got := <-asked:
			if !strings.HasSuffix(got, path) {
				t.Fatalf("asked for %s, want %s", got, path)
			}
		case <-time.After(plugintest.Deadline):
			t.Fatalf("%s is never asked for", path)
		}
		if err := b.Stop(plugintest.Deadline); err != nil {
			t.Fatal(err)
		}
		b.WaitPhase(sdk.Stopped)
		for _, e := range b.Events() {
			if l := e.GetLog(); l.GetLevel() == "warn" {
				t.Errorf("%s: %s", path, l.GetMessage())
			}
		}
		front.Close()
		transport.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
}
