package lazyregexp_test

import (
	"reflect"
	"regexp"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// Each method returns what regexp's own returns, also when several goroutines use the expression for the first time.
func TestAnswersAsRegexpDoes(t *testing.T) {
	t.Parallel()
	const expr, text = `(\w)=(\d+)`, "a=1 b=23 c="
	want, got := regexp.MustCompile(expr), lazyregexp.New(expr)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if !got.MatchString(text) {
				t.Error("no match")
			}
		})
	}
	wg.Wait()
	match := want.FindStringSubmatchIndex(text)
	for name, pair := range map[string][2]any{
		"String":                  {want.String(), got.String()},
		"MatchString":             {want.MatchString("none"), got.MatchString("none")},
		"FindString":              {want.FindString(text), got.FindString(text)},
		"FindStringSubmatch":      {want.FindStringSubmatch(text), got.FindStringSubmatch(text)},
		"FindStringIndex":         {want.FindStringIndex(text), got.FindStringIndex(text)},
		"FindIndex":               {want.FindIndex([]byte(text)), got.FindIndex([]byte(text))},
		"FindStringSubmatchIndex": {match, got.FindStringSubmatchIndex(text)},
		"ReplaceAllString":        {want.ReplaceAllString(text, "$2"), got.ReplaceAllString(text, "$2")},
		"ReplaceAllLiteralString": {want.ReplaceAllLiteralString(text, "$2"), got.ReplaceAllLiteralString(text, "$2")},
		"ExpandString": {want.ExpandString(nil, "$1:$2", text, match), got.ExpandString(nil, "$1:$2", text,
			match)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: got %v, want %v", name, pair[1], pair[0])
		}
	}
}

// Nothing is compiled before it is used: a wrong expression fails at its first use, not at its declaration.
func TestNothingIsCompiledBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	wrong := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("a wrong expression was used without a panic")
		}
	}()
	wrong.MatchString("")
}
