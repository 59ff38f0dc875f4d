package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// page is a section of docs/environments/agent.md.
func page(t *testing.T, section string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/environments/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, found, ok := strings.Cut(string(text), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("docs/environments/agent.md has no section %q", section)
	}
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

// The page lists the agents as the table has them.
//
//docs:environments/agent.md Known agents
func TestThePageListsTheAgents(t *testing.T) {
	t.Parallel()
	section := page(t, "Known agents")
	for _, k := range Agents() {
		by := "a loop"
		if k.Package == "" {
			by = ""
		}
		prompt := strconv.Itoa(k.Prompt)
		if len(prompt) > 3 {
			prompt = prompt[:len(prompt)-3] + "," + prompt[len(prompt)-3:]
		}
		begin := fmt.Sprintf("| %#q | %s | %s", k.Name, k.Dialect, by)
		end := fmt.Sprintf(" | %s | %s | %#q |\n", k.Tried, prompt, k.Install)
		_, row, found := strings.Cut(section, begin)
		if row, _, _ := strings.Cut(row, "\n"); !found || !strings.HasSuffix(row+"\n", end) {
			t.Errorf("%s: the page should have a row %s … %s", k.Name, begin, end)
		}
	}
}

// pythonOf are the pieces of Python in a section.
func pythonOf(t *testing.T, section string, n int) []string {
	t.Helper()
	var out []string
	for _, piece := range strings.Split(page(t, section), "```python\n")[1:] {
		text, _, _ := strings.Cut(piece, "```")
		out = append(out, text)
	}
	if len(out) != n {
		t.Fatalf("section %q has %d pieces of Python, want %d", section, len(out), n)
	}
	return out
}

const stepsSection = "Rewards for single steps"

//docs:environments/agent.md Rewards for single steps
func TestRewardsOfSteps(t *testing.T) {
	t.Parallel()
	dir, python, pieces := folder(t), scripttest.Python(t, "atropos"), pythonOf(t, stepsSection, 3)
	program := ask + "for turn in range(3):\n    ask([{'role': 'user', 'content': 'a'}])\n    " +
		strings.ReplaceAll(strings.TrimSpace(pieces[0]), "\n", "\n    ")
	for file, text := range map[string]string{"loop.py": program, "reward.py": pieces[1]} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, api := config(t)
	b := plugintest.Harness(t, Plugin())
	b.Start(config, in(dir), scripttest.With(python))
	g := api.Wait(1)[0]
	metrics, _ := g.Overrides[0][trajectory.OverrideMetrics].(map[string]any)
	if g.Scores[0] != 1.5 || metrics["steps"] != 3.0 {
		t.Errorf("score %v, metrics %v; want 1.5 of 3 steps", g.Scores[0], metrics)
	}
}

// Who opens a session posts its reward; the program, whose key is the session's, cannot.
//
//docs:environments/agent.md The program cannot set its reward at the gateway
func TestTheRewardOfASession(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	post := pythonOf(t, stepsSection, 3)[2]
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	var served outputs.Inference
	if err := server.Reference().Decode(&served); err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSuffix(served.BaseURL, "/v1")
	call := func(method, path, body string, into any) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), method, root+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+served.APIKey)
		q.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s: %s (%v)", method, path, r.Status, text, err)
		}
	}
	var opened struct{ ID, Key string }
	call(http.MethodPost, "/recipe/v1/sessions", `{"task": "a"}`, &opened)
	for _, c := range []struct {
		key     string
		refused bool
		reward  string
	}{{opened.Key, true, "<nil>"}, {served.APIKey, false, "1"}} {
		cmd := exec.CommandContext(t.Context(), python, "-c", post)
		cmd.Env = append(os.Environ(), "ROOT="+root, "ID="+opened.ID, "KEY="+c.key)
		out, err := cmd.CombinedOutput()
		var session struct {
			Reward  *float64
			Metrics map[string]float64
		}
		call(http.MethodGet, "/recipe/v1/sessions/"+opened.ID, "", &session)
		got := "<nil>"
		if session.Reward != nil {
			got = fmt.Sprint(*session.Reward)
		}
		if (err != nil) != c.refused || got != c.reward {
			t.Errorf("refused %v, reward %s, metrics %v: %s", err != nil, got, session.Metrics, out)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
