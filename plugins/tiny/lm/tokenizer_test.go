package lm

import (
	"strings"
	"testing"
)

func TestTokenizer(t *testing.T) {
	t.Parallel()
	tok, err := NewTokenizer(ASCII)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Size() != 99 {
		t.Errorf("ASCII makes %d tokens, want 99", tok.Size())
	}
	ids, err := tok.Encode("12+34=\n")
	if err != nil || len(ids) != 7 {
		t.Fatalf("encode: %v, %v", ids, err)
	}
	if got := tok.Decode(append([]int32{Beginning}, append(ids, End, Padding, -4, 1000)...)); got != "12+34=\n" {
		t.Errorf("decode gives %q", got)
	}
	if _, err := tok.Encode("3 € 4"); err == nil || !strings.Contains(err.Error(), `'€' at byte 2`) {
		t.Errorf("an unknown character must be named with its place; got %v", err)
	}
	for id, want := range map[int32]string{Padding: "<pad>", Beginning: "<bos>", End: "<eos>", ids[0]: "1",
		500: "<500>"} {
		if got := tok.Name(id); got != want {
			t.Errorf("name of %d is %q, want %q", id, got, want)
		}
	}
	for _, bad := range []string{"", "aba", "\xff"} {
		if _, err := NewTokenizer(bad); err == nil {
			t.Errorf("alphabet %q was accepted", bad)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"zero width":   {func(c *Config) { c.Width = 0 }, "width"},
		"heads":        {func(c *Config) { c.Heads = 5 }, "divisor"},
		"huge context": {func(c *Config) { c.Context = 1 << 30 }, "context"},
		"too large":    {func(c *Config) { c.Width, c.Hidden, c.Layers = 4096, 1<<15, 64 }, "model size"},
	} {
		c := testConfig()
		test.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := NewParams(c, 1); err == nil {
			t.Errorf("%s: NewParams accepted it", name)
		}
	}
	c := testConfig()
	for name, tokens := range map[string][]int32{"empty": {}, "long": make([]int32, 13), "negative": {-1},
		"unknown": {20}} {
		if c.CheckTokens(tokens) == nil {
			t.Errorf("%s: tokens were accepted", name)
		}
	}
	if err := c.CheckTokens([]int32{0, 19}); err != nil {
		t.Error(err)
	}
}
