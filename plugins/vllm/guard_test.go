package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// answer is a server's answer to one request.
type answer struct {
	Method, Path, Key string
	Status            int
}

const testKey = "0123456789abcdef0123456789abcdef"

// guardLaunch is a server as the plugin starts it.
func guardLaunch(t *testing.T) launch {
	t.Helper()
	folder := t.TempDir()
	if err := engine.WriteExtension(folder, extension); err != nil {
		t.Fatal(err)
	}
	return launch{Config: Config{Model: "org/m", Dtype: "float32", EnableSleepMode: true}, Model: "org/m", Port: 1,
		Extension: folder, APIKey: testKey}
}

// realRoutes asks every route of vLLM's own application, for each list of arguments.
func realRoutes(t *testing.T, l launch, servers map[string][]string) map[string][]answer {
	t.Helper()
	python, err := filepath.Abs("../../.cache/venv-vllm/bin/python")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		t.Skip("no .cache/venv-vllm with the real vLLM; scripts/venv.sh vllm makes it")
	}
	given, err := json.Marshal(servers)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/routes.py", testKey, strings.Join(fakeRoutes(t), ","),
		string(given))
	cmd.Env = append(l.environ(os.Environ()), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		t.Fatalf("ask the real application: %v\n%s", err, diag.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var tables map[string][][4]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &tables); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	answers := map[string][]answer{}
	for name, rows := range tables {
		for _, r := range rows {
			answers[name] = append(answers[name], answer{r[0].(string), r[1].(string), r[2].(string), int(r[3].(float64))})
		}
	}
	return answers
}

// serveArguments are the arguments after `serve`, with the model as an option, in the form of vLLM's own parser.
func serveArguments(t *testing.T, l launch) []string {
	t.Helper()
	args, err := l.arguments()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--model"}, args[slices.Index(args, "serve")+1:]...)
	return append(args, "--enable-scale-out") // as extension/recipe_serve.py does, where vLLM has the flag
}

func without(args []string, name string) []string {
	i := slices.Index(args, name)
	return slices.Concat(args[:i], args[i+2:])
}

// fakeRoutes are the paths that the fake has.
func fakeRoutes(t *testing.T) []string {
	t.Helper()
	r := httptest.NewRecorder()
	(&fakeServer{names: map[string]string{}}).routes().ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/openapi.json",
		nil))
	var api struct {
		Paths map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(r.Body.Bytes(), &api); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(api.Paths))
}

func askFake(f http.Handler, a answer) int {
	req := httptest.NewRequest(a.Method, a.Path, strings.NewReader("{}"))
	switch a.Key {
	case "wrong":
		req.Header.Set("Authorization", "Bearer "+testKey[:31]+"~")
	case "basic":
		req.Header.Set("Authorization", "Basic "+testKey)
	case "empty":
		req.Header.Set("Authorization", "Bearer ")
	case "right":
		req.Header.Set("Authorization", "Bearer "+testKey)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, req)
	return w.Code
}

const with, bare = "with the middleware", "without it"

// Every route of vLLM, also those that the plugin does not use, demands the key. The fake of the other tests demands it
// exactly where the real server does, with the middleware and without, so they fail if it is left out.
//
//docs:troubleshooting.md vLLM's development routes (/collective_rpc, /sleep) answer any client
func TestTheRealServerAndTheFakeDemandTheKey(t *testing.T) {
	l := guardLaunch(t)
	t.Setenv(keyVariable, testKey)
	t.Setenv("VLLM_API_KEY", "")
	t.Setenv("PYTHONPATH", l.Extension)
	guarded := serveArguments(t, l)
	servers := map[string][]string{with: guarded, bare: without(guarded, "--middleware")}
	answers := realRoutes(t, l, servers)
	routes := map[string]bool{}
	for _, a := range answers[with] {
		routes[a.Method+" "+a.Path] = true
		if refused := a.Status == http.StatusUnauthorized; refused != (a.Key != "right") {
			t.Errorf("%s %s with key %q answers %d", a.Method, a.Path, a.Key, a.Status)
		}
	}
	for _, want := range []string{"POST /collective_rpc", "POST /sleep", "POST /pause", "GET /health",
		"OPTIONS /collective_rpc", "GET /metrics", "GET /nothing"} {
		if !routes[want] {
			t.Errorf("%s was not asked; vLLM has %d routes", want, len(routes))
		}
	}
	has := fakeRoutes(t)
	for name, list := range answers {
		compared := 0
		for _, a := range list {
			// Paths that neither has must agree, too.
			if !slices.Contains(has, a.Path) && !strings.HasSuffix(a.Path, "/nothing") && a.Path != "/" {
				continue
			}
			compared++
			fake := &fakeServer{args: servers[name], names: map[string]string{}} // a new one: /sleep changes it
			got := askFake(fake.routes(), a)
			if (got == http.StatusUnauthorized) != (a.Status == http.StatusUnauthorized) {
				t.Errorf("%s: %s %s with key %q: the fake answers %d, vLLM %d", name, a.Method, a.Path, a.Key, got, a.Status)
			}
		}
		if compared < 50 {
			t.Errorf("%s: compared %d answers; the fake's routes are not vLLM's", name, compared)
		}
	}
}

// The guard alone, in any Python interpreter, without vLLM.
func TestGuard(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	script := `
import asyncio, json
from recipe_guard import Guard

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})
    else:
        await send({"type": "through"})

async def ask(kind, headers):
    sent = []
    async def send(m): sent.append(m)
    async def receive(): return {"type": kind + ".connect"}
    await Guard(app)({"type": kind, "method": "GET", "path": "/", "headers": headers}, receive, send)
    return [m.get("status") or m.get("code") or m["type"] for m in sent][:1]

key = b"` + testKey + `"
good = (b"authorization", b"Bearer " + key)
print(json.dumps([asyncio.run(ask(k, h)) for k, h in [
    ("http", []), ("http", [good]), ("http", [(b"authorization", b"bearer " + key)]),
    ("http", [good, good]), ("http", [(b"authorization", key)]),
    ("http", [(b"authorization", b"Bearer " + key + b" ")]),
    ("http", [(b"authorization", b"Bearer \xff\xfe")]), ("http", [(b"authorization", b"Bearer")]),
    ("websocket", []), ("websocket", [good]), ("lifespan", []), ("other", []),
]]))
`
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	const path = "PYTHONPATH=extension:../../sdk/python/src"
	cmd.Env = append(os.Environ(), path, keyVariable+"="+testKey, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stderr = t.Output() // apart: where python3 is a script, its shell may warn of the locale
	out, err := cmd.Output()
	if want :=
		`[[401], [200], [200], [401], [401], [401], [401], [401], [1008], ["through"], ["through"], []]`; err != nil ||
		strings.TrimSpace(string(out)) != want {
		t.Errorf("got %s (%v), want %s", out, err, want)
	}
	cmd = exec.CommandContext(t.Context(), python, "-c", "from recipe_guard import Guard; Guard(None)")
	cmd.Env = []string{path, "PATH=" + os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"}
	var exit *exec.ExitError
	if out, err := cmd.CombinedOutput(); !errors.As(err, &exit) || !strings.Contains(string(out), "open to everyone") {
		t.Errorf("without a key: %s, %v; want it not to start", out, err)
	}
}

// Arguments are visible to every user of the machine.
func TestTheKeyIsInNoArgument(t *testing.T) {
	t.Parallel()
	l := guardLaunch(t)
	args, err := l.arguments()
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(args, " "); strings.Contains(text, testKey) ||
		!strings.Contains(text, "--middleware "+guardClass) {
		t.Error(text)
	}
	if env := l.environ(nil); !slices.Contains(env, keyVariable+"="+testKey) {
		t.Errorf("%s is not in the environment", fmt.Sprint(env))
	}
}
