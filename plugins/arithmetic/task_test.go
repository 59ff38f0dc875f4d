package arithmetic

import "testing"

func TestSplitsAreDisjointAndComplete(t *testing.T) {
	t.Parallel()
	seen := map[Problem]Split{}
	for _, split := range []Split{Train, HeldOut} {
		for _, p := range Problems(split) {
			if _, double := seen[p]; double {
				t.Errorf("%v is listed twice", p)
			}
			seen[p] = split
		}
	}
	if len(seen) != Limit*Limit {
		t.Errorf("%d problems in all, want %d", len(seen), Limit*Limit)
	}
	held := 0
	for p, split := range seen {
		if seen[Problem{p.B, p.A}] != split {
			t.Errorf("%v and its mirror image are in different splits", p)
		}
		if split == HeldOut {
			held++
		}
	}
	if held < 400 || held > 600 {
		t.Errorf("%d problems are held out, want about 500", held)
	}
	if Problems("nonsense") != nil {
		t.Error("an unknown split has problems")
	}
}

func TestScore(t *testing.T) {
	t.Parallel()
	p := Problem{7, 35}
	if p.Prompt() != "07+35=" || p.Answer() != "42" {
		t.Fatalf("prompt %q, answer %q", p.Prompt(), p.Answer())
	}
	for _, test := range []struct {
		completion string
		ended      bool
		want       float64
	}{{"42", true, 1}, {"42", false, 0}, {"43", true, 0}, {"", true, 0}, {"042", true, 0}, {"42 ", true, 0}} {
		if got := p.Score(test.completion, test.ended); got != test.want {
			t.Errorf("score of %q (ended %v) is %v, want %v", test.completion, test.ended, got, test.want)
		}
	}
	for _, q := range append(Problems(Train), Problems(HeldOut)...) {
		if len(q.Answer())+1 > MaxTokens {
			t.Fatalf("%v needs more than %d tokens", q, MaxTokens)
		}
	}
}
