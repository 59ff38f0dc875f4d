package proc

import "testing"

func TestFindEntry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, block string
		want        verdict
	}{
		{"there", "A=1\x00MARK=x\x00", yes},
		{"there behind a title", "VLLM::EngineCore\x00\x00\x00MARK=x\x00", yes},
		{"empty value", "A=\x00MARK=y\x00", no},
		{"another value", "A=1\x00MARK=xx\x00", no},
		{"title at the beginning", "VLLM::EngineCore\x00in:/bin\x00A=1\x00", unknown},
		{"zeros at the end", "A=1\x00B=\x00\x00\x00", unknown},
		{"cut short", "A=1\x00MAR", unknown},
		{"zeros only", "\x00\x00\x00", unknown},
		{"nothing", "", unknown},
	} {
		if got := findEntry([]byte(test.block), "MARK=x"); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}
