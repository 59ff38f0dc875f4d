package errorbody_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/errorbody"
)

func TestText(t *testing.T) {
	t.Parallel()
	masks := "masks[0][3] is 1. Expected -100, or the token's own id 17. Masks of 0 and 1 are not read."
	sentence := "A sentence of the server that ends here. "
	word := strings.Repeat("word ", 1000)
	for name, c := range map[string]struct{ body, want string }{
		"nothing":        {"", ""},
		"plain text":     {"no\n  such model ", "no such model"},
		"page":           {"<html> Bad\nGateway</html>", "<html> Bad Gateway</html>"},
		"FastAPI":        {`{"detail":"Not Found"}`, "Not Found"},
		"list":           {`{"detail":[{"type":"value_error","loc":["body","masks",0],"msg":"` + masks + `","input":[1]}]}`, "body.masks.0: " + masks},
		"several":        {`{"detail":[{"loc":["a"],"msg":"one"},{"loc":["b",2],"msg":"two"}]}`, "a: one; b.2: two"},
		"many":           {`{"detail":[` + strings.Repeat(`{"msg":"x"},`, 8) + `{"msg":"x"}]}`, "x; x; x; x; x; and 4 more"},
		"OpenAI":         {`{"error":{"message":"max_tokens is too large","type":"BadRequestError","code":400}}`, "max_tokens is too large"},
		"error as text":  {`{"error":"busy"}`, "busy"},
		"vLLM before":    {`{"object":"error","message":"the model does not exist","code":404}`, "the model does not exist"},
		"ours":           {`{"status":"error","detail":"no such batch"}`, "no such batch"},
		"other JSON":     {`{"code": 7, "reason": "x"}`, `{"code": 7, "reason": "x"}`},
		"list of others": {`{"detail":[{"code":1}]}`, `{"detail":[{"code":1}]}`},
		"cut JSON":       {`{"detail":"Not`, `{"detail":"Not`},
		"number":         {`7`, `7`},
		"null":           {`null`, `null`},
		"not UTF-8":      {"a\xffb", "a�b"},
		"nested deep": {strings.Repeat(`{"error":`, 9) + `"x"` + strings.Repeat("}", 9),
			strings.Repeat(`{"error":`, 9) + `"x"` + strings.Repeat("}", 9)},
		"long":              {`{"detail":"` + strings.Repeat(sentence, 60) + `"}`, strings.TrimSpace(strings.Repeat(sentence, 48)) + " … (492 more bytes)"},
		"without sentences": {word, word[:1999] + " … (3000 more bytes)"},
		"without words":     {strings.Repeat("é", 2000), strings.Repeat("é", 1000) + " … (2000 more bytes)"},
	} {
		if got := errorbody.Text([]byte(c.body)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}
