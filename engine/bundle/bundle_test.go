package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/recipe-rl/recipe/engine/state"
)

// The secrets below are put together here, so that no scanner of repositories takes them for real ones.
func TestSecretsByTheirForm(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("aB3", 12)
	r := NewRedactor([]string{"from-the-recipe", "short"}, []string{"MY_TOKEN=from-the-environment", "HOME=/root",
		"CA_KEY=/etc/key.pem", "PLAIN=visible-value"})
	for text, want := range map[string]string{
		"a from-the-recipe b":                      "a (secret) b",
		"from-the-environment":                     "(secret)",
		"short, /etc/key.pem, visible-value":       "short, /etc/key.pem, visible-value",
		"hf_" + long:                               "(secret)",
		"sk-" + long:                               "(secret)",
		"ghp_" + long:                              "(secret)",
		"AKIA" + strings.Repeat("A", 16):           "(secret)",
		"eyJ" + long + "." + long + "." + long:     "(secret)",
		"wandb: key " + strings.Repeat("0f", 20):   "wandb: key (secret)",
		"commit " + strings.Repeat("0f", 20):       "commit " + strings.Repeat("0f", 20),
		`{"api_key": "abcdef123"}`:                 `{"api_key": "(secret)"}`,
		"password=hunter22 user=me":                "password=(secret) user=me",
		"tokens_per_second: 123456.789, version 3": "tokens_per_second: 123456.789, version 3",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	key := "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
	if got := r.Text("x " + key + " y"); got != "x (secret) y" {
		t.Errorf("a key becomes %q", got)
	}
}

// FuzzRedactor: a known secret is in no text, and what is redacted stays so.
func FuzzRedactor(f *testing.F) {
	f.Add("a from-the-recipe b")
	f.Add("password: from-the-recipehf_")
	r := NewRedactor([]string{"from-the-recipe"}, nil)
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Text(text)
		if strings.Contains(once, "from-the-recipe") {
			t.Errorf("%q becomes %q", text, once)
		}
	})
}

// Samples lose their texts, links are not followed, and the end of a long log begins with a whole line.
func TestWhatOfARunIsInABundle(t *testing.T) {
	t.Parallel()
	dir := state.DirOf(t.TempDir(), "r")
	write := func(name, text string) {
		path := filepath.Join(string(dir), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("events/00000001.jsonl", `{"v":1,"seq":1,"type":"sample","prompt":"planted question","completion":"planted"}`+
		"\n{torn\n"+`{"v":1,"seq":2,"type":"notice","message":"kept"}`+"\n")
	write("key", "planted")
	write("blocks/b/stdout", "an old line\nthe newest line\n")
	link := filepath.Join(string(dir), "blocks", "b", "stderr")
	if err := os.Symlink(filepath.Join(string(dir), "key"), link); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, Contents{Run: dir}, NewRedactor(nil, nil)); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, &out)
	for name, text := range files {
		if strings.Contains(text, "planted") {
			t.Errorf("%s: %.200s", name, text)
		}
	}
	events, printed := files["recipe-bundle/run/events/00000001.jsonl"], files["recipe-bundle/run/blocks/b/stdout"]
	if !strings.Contains(events, "(16 bytes)") || !strings.Contains(events, "kept") || strings.Contains(events, "torn") {
		t.Errorf("the events: %s", events)
	}
	if printed != "an old line\nthe newest line\n" {
		t.Errorf("printed: %q", printed)
	}
	end, err := tail(in(dir, filepath.Join(string(dir), "blocks", "b", "stdout")), 20)
	if err != nil || string(end) != "the newest line\n" {
		t.Errorf("its last 20 bytes: %q, %v", end, err)
	}
}

func unpacked(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// FuzzEvents: whatever a log holds, no prompt or completion of it is in a bundle.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"v":1,"seq":1,"type":"sample","prompt":"planted question","completion":"planted"}` + "\n{torn\n"))
	f.Add([]byte(`{"v":1,"seq":1,"type":"span","attributes":{"prompt":"x"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for line := range bytes.Lines(withoutSamples(text)) {
			var e struct{ Type, Prompt, Completion string }
			if json.Unmarshal(line, &e) == nil && e.Type == "sample" &&
				(!strings.HasSuffix(e.Prompt, " bytes)") || !strings.HasSuffix(e.Completion, " bytes)")) {
				t.Errorf("%q", line)
			}
		}
	})
}

// A secret is found however it was encoded, and whatever stands before and behind it in what was encoded.
func TestSecretsThatAreEncoded(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"from-the-recipe", "p\u00e4ss/w<ord&\"+ ?~\n1", "\xfb\xff\xbf\xfe\xff\xef\xff",
		"sechs6"} {
		r := NewRedactor([]string{secret}, nil)
		texts := map[string]string{
			"query": url.QueryEscape(secret), "path": url.PathEscape(secret), "hex": hex.EncodeToString([]byte(secret)),
			"lower case escapes": lowerEscapes(url.QueryEscape(secret)),
		}
		for before := range 7 {
			for behind := range 4 {
				whole := []byte(strings.Repeat("u", before) + secret + strings.Repeat("v", behind))
				name := fmt.Sprintf("base64 behind %d and before %d", before, behind)
				texts[name] = base64.StdEncoding.EncodeToString(whole)
				texts[name+", for URLs"] = base64.URLEncoding.EncodeToString(whole)
			}
		}
		if utf8.ValidString(secret) {
			once, err := json.Marshal(map[string]string{"k": secret})
			if err != nil {
				t.Fatal(err)
			}
			twice, err := json.Marshal(string(once))
			if err != nil {
				t.Fatal(err)
			}
			texts["JSON"], texts["JSON in JSON"], texts["ASCII"] = string(once), string(twice), ascii(string(once))
		}
		for name, text := range texts {
			if got := r.Text("before " + text + " behind"); !strings.Contains(got, hidden) {
				t.Errorf("%q in %s stays: %s", secret, name, got)
			}
		}
	}
	text := "the quick brown fox " + base64.StdEncoding.EncodeToString([]byte("another text that is no secret"))
	if got := NewRedactor([]string{"from-the-recipe"}, nil).Text(text); got != text {
		t.Errorf("%q becomes %q", text, got)
	}
}
