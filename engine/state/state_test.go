package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

var policy = addr.Block{Kind: kind.Inference, Plugin: "tiny", Name: "policy"}

func dir(t *testing.T) state.Dir {
	t.Helper()
	d := state.DirOf(t.TempDir(), "my run/1")
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestUpdateIsOnDiskAndPrivate(t *testing.T) {
	t.Parallel()
	d := dir(t)
	s, err := state.OpenStore(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.NoteBlock(policy, func(b *state.Block) { b.Intent, b.Attempt = state.IntentStart, 1 })
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	r, err := state.Read(d)
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Blocks[policy]; b == nil || b.Intent != state.IntentStart || b.Attempt != 1 || r.ID == "" {
		t.Fatalf("read back %+v", r)
	}
	err = filepath.Walk(string(d), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

//docs:survival.md run.json is damaged, and no engine works on the run
func TestDamagedRecordSaysTheWayOut(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty":     "",
		"truncated": `{"format_version": 1, "id": "x", "blocks": {`,
		"no id":     `{"format_version": 1}`,
		"foreign":   `hello`,
		"null":      `{"format_version": 1, "id": "x", "blocks": {"inference.tiny.policy": null}}`,
		"bad key":   `{"format_version": 1, "id": "x", "blocks": {"nonsense": {}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dir(t)
			if err := os.WriteFile(filepath.Join(string(d), "run.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := state.OpenStore(d, nil)
			if err == nil || !strings.Contains(err.Error(), "damaged") ||
				!strings.Contains(err.Error(), "move the folder") {
				t.Errorf("error = %v", err)
			}
			if after, _ := os.ReadFile(filepath.Join(string(d), "run.json")); string(after) != content {
				t.Errorf("the damaged file was changed to %q", after)
			}
		})
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	d := dir(t)
	if err := os.WriteFile(filepath.Join(string(d), "run.json"), []byte(`{"format_version": 99, "id": "x"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Read(d); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("error = %v", err)
	}
}

func TestSecondLockNamesTheFirst(t *testing.T) {
	t.Parallel()
	d := dir(t)
	l, err := state.TryLock(d, "recipe apply a.hcl")
	if err != nil {
		t.Fatal(err)
	}
	_, err = state.TryLock(d, "recipe apply b.hcl")
	var locked *state.LockedError
	if !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() ||
		!strings.Contains(err.Error(), "recipe apply a.hcl") {
		t.Fatalf("error = %v", err)
	}
	if o := state.Holder(d); o == nil || o.PID != os.Getpid() {
		t.Errorf("holder = %+v", o)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if o := state.Holder(d); o != nil {
		t.Errorf("holder after unlock = %+v", o)
	}
	l, err = state.TryLock(d, "again")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

// A lock with a second name, as in a backup of hard links, is replaced; the lock is held all the same.
func TestALockWithASecondNameIsReplaced(t *testing.T) {
	t.Parallel()
	d := dir(t)
	path, other := filepath.Join(string(d), "lock"), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, []byte("own"), 0o600), os.Link(other, path)); err != nil {
		t.Fatal(err)
	}
	l, err := state.TryLock(d, "recipe apply a.hcl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	if text, err := os.ReadFile(other); err != nil || string(text) != "own" {
		t.Errorf("the file of the other name: %q, %v", text, err)
	}
	_, err = state.TryLock(d, "recipe apply b.hcl")
	if locked := (*state.LockedError)(nil); !errors.As(err, &locked) || state.Holder(d) == nil {
		t.Errorf("the second lock: %v", err)
	}
}

func TestTokensAreStableAndDiffer(t *testing.T) {
	t.Parallel()
	d := dir(t)
	token := func(purpose string, a addr.Block) string {
		s, err := d.Token(purpose, a, 0)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	other := policy
	other.Name = "judge"
	a, b, c, again := token("data", policy), token("control", policy), token("data", other), token("data", policy)
	if a != again {
		t.Error("the same purpose and address gave two tokens")
	}
	if a == b || a == c || b == c {
		t.Error("different purposes or addresses share a token")
	}
	for n, seen := 1, map[string]bool{a: true, b: true, c: true}; n < 4; n++ {
		renewed, err := d.Token("data", policy, n)
		if err != nil || seen[renewed] {
			t.Errorf("renewal %d gives a known token, error %v", n, err)
		}
		seen[renewed] = true
	}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	if token("data", policy) != a {
		t.Error("making the directory again changed the key")
	}
	if len(a) < 40 {
		t.Errorf("token of %d characters", len(a))
	}
}

func TestRecordableHidesSecretsAndReducesReferences(t *testing.T) {
	t.Parallel()
	d := dir(t)
	schema := &spec.Schema{Attributes: []*spec.Attribute{
		{Name: "model", Type: cty.String}, {Name: "key", Type: cty.String},
		{Name: "secret", Type: cty.String, Sensitive: true},
		{Name: "inference", Type: cty.DynamicPseudoType}, {Name: "later", Type: cty.String},
		{Name: "absent", Type: cty.String},
	}}
	value := func(secret string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{
			"model":  cty.StringVal("m"),
			"key":    cty.StringVal(secret).Mark("sensitive"),
			"secret": cty.StringVal(secret),
			"inference": cty.ObjectVal(map[string]cty.Value{
				"address": cty.StringVal("inference.tiny.policy"), "kind": cty.StringVal("inference"),
				"base_url": cty.UnknownVal(cty.String), "api_key": cty.StringVal(secret).Mark("sensitive"),
			}),
			"later":  cty.UnknownVal(cty.String),
			"absent": cty.NullVal(cty.String),
		})
	}
	rec := func(secret string) map[string]string {
		m, err := state.Recordable(value(secret), schema, d)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for k, v := range m {
			out[k] = string(v)
			if strings.Contains(string(v), secret) {
				t.Errorf("the record of %s holds the secret: %s", k, v)
			}
		}
		return out
	}
	a, b := rec("canary-1234567890"), rec("canary-other")
	want := map[string]string{"model": `"m"`, "inference": `{"ref":"inference.tiny.policy"}`,
		"later": `{"unknown":true}`}
	for k, v := range want {
		if a[k] != v {
			t.Errorf("%s = %s, want %s", k, a[k], v)
		}
	}
	if _, ok := a["absent"]; ok {
		t.Error("a null is recorded")
	}
	if a["key"] == b["key"] || a["secret"] == b["secret"] {
		t.Error("a changed secret is not noticed")
	}
	if again := rec("canary-1234567890"); again["key"] != a["key"] {
		t.Error("the same secret has two fingerprints")
	}
}

// A copy of a killed engine may hold its lock for a moment; a live engine is not waited for.
func TestTheLockOfADeadEngineIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := dir(t)
	l, err := state.TryLock(d, "killed")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 1 << 22 // above every pid
	if err := os.WriteFile(filepath.Join(string(d), "lock"), fmt.Appendf(nil, `{"pid": %d, "host": %q}`, nobody, host),
		0o600); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = l.Unlock() })
	next, err := state.TryLock(d, "next")
	if err != nil {
		t.Fatal(err)
	}
	_ = next.Unlock()
}
