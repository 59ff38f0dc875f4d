package transcript

import "testing"

func TestTokenizers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file string
		ids  []int
		want string
	}{
		"byte level": {`{"model":{"type":"BPE","vocab":{"Ġhello":0,"Ã":1,"©":2,"Ċ":3}},"decoder":{"type":"ByteLevel"}}`,
			[]int{0, 1, 2, 3}, " helloé\n"},
		"byte fallback": {`{"model":{"type":"BPE","vocab":{"▁a":0,"<0xC3>":1,"<0xA9>":2}},"decoder":{"type":"Sequence",` +
			`"decoders":[{"type":"ByteFallback"}]}}`, []int{0, 1, 2}, " aé"},
		"unigram":   {`{"model":{"type":"Unigram","vocab":[["<unk>",0],["▁b",-1]]},"decoder":{"type":"Metaspace"}}`, []int{1, 0}, " b<unk>"},
		"wordpiece": {`{"model":{"type":"WordPiece","vocab":{"play":0,"##ing":1,"on":2}},"decoder":{"type":"WordPiece"}}`, []int{0, 1, 2}, "playing on"},
		"unknown":   {`{"model":{"vocab":{"a":0}}}`, []int{0, 9}, "a[9]"},
	} {
		tok, err := parseTokenizer([]byte(test.file))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.text(test.ids); got != test.want {
			t.Errorf("%s: %q, expected %q", name, got, test.want)
		}
	}
	tok, err := parseTokenizer([]byte(`{"model":{"vocab":{"Ã":1}},"decoder":{"type":"ByteLevel"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.piece(1); got != "⟨c3⟩" {
		t.Errorf("half a character is shown as %q", got)
	}
}

func FuzzTokenizer(f *testing.F) {
	f.Add([]byte(`{"model":{"vocab":{"a":0}},"added_tokens":[{"id":1,"content":"x"}]}`))
	f.Add([]byte(`{"model":{"vocab":[["a",1],[]]},"decoder":{"type":"Metaspace"}}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if tok, err := parseTokenizer(text); err == nil {
			_ = tok.text([]int{0, 1, 2})
		}
	})
}
