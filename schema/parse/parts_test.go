package parse

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// TestPartsAreParsedAsTheWhole edits recipes at random places. After each edit the tree and the mistakes must be those
// of a parser that has seen nothing before.
func TestPartsAreParsedAsTheWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join("..", "..", "recipes", "*.hcl"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err, paths)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"x", "\n", "}", "{", "\n}\n", "a {\n}\n", "/*", "*/", "#", "\"", "${", "<<E\n}\nE\n", "é", "\r\n",
		"\ufeff", "a = 1\n", ""}
	p, src, reused, joined := &Parts{}, all.String(), 0, 0
	for edit := range 48 {
		if edit%6 == 0 {
			src = all.String()
		}
		at, length := rng.IntN(len(src)), rng.IntN(3)
		src = src[:at] + texts[rng.IntN(len(texts))] + src[min(len(src), at+length):]
		before := p.files["a.hcl"]
		got, diags := p.parse("a.hcl", []byte(src))
		want, wanted := hclsyntax.ParseConfig([]byte(src), "a.hcl", hcl.InitialPos)
		if !reflect.DeepEqual(got.Body, want.Body) || fmt.Sprint(diags) != fmt.Sprint(diagnostic.Few(wanted, MaxMistakes)) {
			t.Fatalf("edit %d at %d: the parts have %v, the whole %v, or their trees differ", edit, at, diags, wanted)
		}
		for i, part := range p.files["a.hcl"] {
			if i < len(before) && part.body != nil && part.body == before[i].body {
				reused++
			}
		}
		if len(p.files["a.hcl"]) > 1 && len(diags) == 0 {
			joined++
		}
	}
	if reused == 0 || joined == 0 {
		t.Errorf("%d parts were used again, and %d files joined: the test shows nothing", reused, joined)
	}
}
