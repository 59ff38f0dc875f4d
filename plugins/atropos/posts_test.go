package atropos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// chatEnvironment has the form of most multi-turn environments of Atropos: conversations through chat_completion,
// lengths by len(apply_chat_template(…)), masks by tokenize_for_trainer. BODY converts the finished group to the return
// value.
const chatEnvironment = `
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer


class Chat(BaseEnv):
    name = "chat"

    @classmethod
    def config_init(cls):
        return BaseEnvConfig(), [APIServerConfig(model_name="x", base_url="http://localhost:1/v1", api_key="x")]

    async def setup(self):
        self.count = 0

    async def get_next_item(self):
        self.count += 1
        return (self.count,)

    async def evaluate(self, *args, **kwargs):
        pass

    async def collect_trajectories(self, item):
        group = ScoredDataGroup(tokens=[], masks=[], scores=[])
        for i in range(self.config.group_size):
            chat = [{"role": "user", "content": "a question"}]
            for turn in range(2):
                assert 5 < len(self.tokenizer.apply_chat_template(chat, add_generation_prompt=True)) < 400
                async with self.server.dedicated_server() as server:
                    answer = await server.chat_completion(messages=chat, n=1, max_tokens=8)
                chat.append({"role": "assistant", "content": answer.choices[0].message.content})
                if turn == 0:
                    chat.append({"role": "user", "content": "go on"})
            made = tokenize_for_trainer(self.tokenizer, chat, train_on_all_assistant_turns=i % 2 == 0)
            group["tokens"].append(made["tokens"])
            group["masks"].append(made["masks"])
            group["scores"].append(float(i))
        return BODY, []


if __name__ == "__main__":
    Chat.cli()
`

// template writes a conversation with characters that testdata/tokenizer knows.
const template = `{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// templateTokenizer is testdata/tokenizer with a chat template.
func templateTokenizer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", "tokenizer", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "tokenizer_config.json" {
			var config map[string]any
			if err := json.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
			config["chat_template"] = template
			data, _ = json.Marshal(config)
		}
		write(t, filepath.Join(dir, name), string(data))
	}
	return dir
}

// chatting is a block that runs chatEnvironment.
func chatting(t *testing.T, body string) func(*Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chat.py")
	write(t, path, strings.ReplaceAll(chatEnvironment, "BODY", body))
	tokenizer := templateTokenizer(t)
	return func(c *Config) { c.Script, c.Tokenizer, c.GroupSize = path, tokenizer, 4 }
}

// With transformers 5 apply_chat_template returns a dictionary by default; every group of such an environment was lost.
func TestGroupsOfChatTemplatesArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply = func(string, int) string { return "yes" }
	const all = "·yes</s>·yes</s>"
	for _, g := range rolled(t, w, 2, chatting(t, "group"))[:2] {
		if v, ok := g["policy_version"].([]any); !ok || len(v) != 2 || v[0] != 3.0 || v[1] != 4.0 {
			t.Errorf("policy_version %v, want [3 4], the versions that the answers are stamped with", g["policy_version"])
		}
		for i, row := range g["masks"].([]any) {
			text, tokens := "", g["tokens"].([]any)[i].([]any)
			for k, m := range row.([]any) {
				switch id := int(m.(float64)); {
				case id == -100 && !strings.HasSuffix(text, "·"):
					text += "·"
				case id != -100 && m != tokens[k]:
					t.Fatalf("sequence %d: mask %v on token %v", i, m, tokens[k])
				case id != -100:
					text += characters()[id]
				}
			}
			want := "·yes</s>"
			if i%2 == 0 {
				want = all
			}
			if text != want || len(tokens) != len(row.([]any)) {
				t.Errorf("sequence %d of %d tokens trains %q, want %q", i, len(tokens), text, want)
			}
		}
	}
}

// An environment whose groups do not arrive is degraded and reports why, until they arrive again, or ten in a row were
// refused. Groups that are lost now and then end nothing.
func TestFailedPostsDegradeTheBlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		refuse int
		// After so many refused posts, groups arrive; 0: never, -1: every second one does.
		refusals int
		want     []string
	}{
		"not JSON": {`dict(group, tokens=[self.tokenizer.apply_chat_template([{"role": "user", "content": "x"}], ` +
			"return_dict=True)] * 4)", 0, 0, []string{"post of scored groups failed and none has arrived", "TypeError",
			"not JSON serializable"}},
		"too few":  {`dict(group, tokens=group["tokens"][:3])`, 0, 0, []string{"the group has 3 sequences and group_size is 4"}},
		"refused":  {"group", 422, 0, []string{"the trajectory API refused it", "HTTP 422", "the world refuses this group"}},
		"at first": {"group", 422, 4, []string{"the trajectory API refused it", "HTTP 422"}},
		"by turns": {"group", 422, -1, []string{"posts of scored groups failed", "HTTP 422"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, h := newWorld(t), newHost()
			w.refuse, w.refusals = c.refuse, c.refusals
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			req := request(t, w, chatting(t, c.body))
			go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
			says := func(text string) bool {
				return strings.HasPrefix(text, "degraded: ") && !slices.ContainsFunc(c.want,
					func(part string) bool { return !strings.Contains(text, part) })
			}
			h.await(t, fmt.Sprintf("a degraded phase with %q", c.want),
				func() bool { return slices.ContainsFunc(h.phases, says) })
			h.await(t, "an event of the first failed post", func() bool {
				return slices.ContainsFunc(h.logs, func(line string) bool {
					return strings.HasPrefix(line, "error: a post of 1 scored group failed (failure 1 so far)")
				})
			})
			switch {
			case c.refusals == 0: // all are refused
				err := <-ended
				var e *sdk.Error
				if !errors.As(err, &e) || !e.Final || !strings.Contains(err.Error(), c.want[len(c.want)-1]) ||
					!strings.Contains(err.Error(), "10 posts of scored groups in a row failed: ") {
					t.Errorf("the block ended with %v", err)
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if i := slices.IndexFunc(h.phases, says); slices.ContainsFunc(h.phases[i:],
					func(text string) bool { return strings.HasPrefix(text, "ready") }) {
					t.Errorf("ready although no group arrives: %q", h.phases[i:])
				}
				return
			case c.refusals < 0: // every second one is
				h.await(t, "metrics of groups that arrived and that did not",
					func() bool { return h.metrics["env/groups_sent"] > 0 && h.metrics["env/groups_failed"] > 0 })
			default:
				h.await(t, "a ready phase after groups arrive",
					func() bool { return strings.HasPrefix(h.phases[len(h.phases)-1], "ready: registered") })
			}
			cancel()
			<-ended
		})
	}
}

// An environment all of whose rollouts fail is degraded, too, whether it raises, or catches the exception and logs it,
// and ends when none has ever brought a group.
func TestFailedRolloutsDegradeTheBlock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, want, end string }{
		"raised": {"        raise ValueError('the judge is away')", "rollouts all failed, the last one in sampling with " +
			"ValueError: the judge is away",
			"none of 64 rollouts brought a group: the last one failed in sampling with ValueError"},
		"scored": {"        return {'tokens': 1}, []\n\n    async def postprocess_histories(self, group):\n        raise " +
			"ValueError('no score')", "rollouts all failed, the last one in scoring with ValueError: no score",
			"the last one failed in scoring with ValueError: no score"},
		"caught": {`        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            await managed.completion(prompt=prompt(item), n=2, max_tokens=1, temperature=1.0)
        import logging
        try:
            raise ValueError('the judge is away')
        except ValueError:
            logging.getLogger(__name__).exception('while scoring')
        return None, []`, "The last error that the environment logged: while scoring: ValueError: the judge is away",
			"the environment brings no group: 500 rollouts in a row"},
	} {
		t.Run(name, func(t *testing.T) {
			w, h := newWorld(t), newHost()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			req := request(t, w, func(c2 *Config) { c2.Script = derived(t, c.body) })
			go func() { ended <- (&Environment{}).Run(ctx, req, h) }()
			h.await(t, "a degraded phase with "+c.want, func() bool {
				return slices.ContainsFunc(h.phases, func(text string) bool {
					return strings.HasPrefix(text, "degraded: ") && strings.Contains(text, c.want)
				})
			})
			err := <-ended
			var e *sdk.Error
			if !errors.As(err, &e) || !e.Final || !strings.Contains(err.Error(), c.end) {
				t.Errorf("the block ended with %v, expected %q", err, c.end)
			}
		})
	}
}

// path is searched for imports with script, too; modules beside the script come first.
func TestPathIsImportedFrom(t *testing.T) {
	t.Parallel()
	checkout := t.TempDir()
	for name, text := range map[string]string{"a_package/__init__.py": "", "a_package/module.py": "where = 'path'\n",
		"both.py": "where = 'path'\n", "scripts/both.py": "where = 'script'\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(checkout, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(checkout, name), text)
	}
	text, err := os.ReadFile(filepath.Join(repository(t), "recipes", "environments", "addition.py"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(checkout, "scripts", "addition.py"), "import both\nfrom a_package import module\n\nassert "+
		"(module.where, both.where) == ('path', 'script')\n"+string(text))
	w := newWorld(t)
	rolled(t, w, 1, func(c *Config) { c.Path, c.Script = checkout, "scripts/addition.py" })
}
