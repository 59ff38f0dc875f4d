package usage

import "testing"

func TestParseStat(t *testing.T) {
	t.Parallel()
	p, err := parseStat("cpu  10 1 5 80 4 0 1 2 9 0\ncpu0 1 2 3 4\n")
	if err != nil || p.idle != 84 || p.total != 103 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "intr 1 2 3 4 5 6", "cpu a b c d e f"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
