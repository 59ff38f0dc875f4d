package single

import (
	"net/http"
	"strings"
	"testing"
)

// Every user of the machine reaches the port: without the token nothing is recorded, and a request costs no memory.
func TestTheFixedServerDemandsItsToken(t *testing.T) {
	t.Parallel()
	f, err := NewFixed("1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(token, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL+"/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	for _, token := range []string{"", "wrong"} {
		if code := ask(token, `{"prompt": "a"}`); code != http.StatusUnauthorized {
			t.Errorf("token %q: got status %d, want 401", token, code)
		}
	}
	if asked := f.Asked(); len(asked) != 0 {
		t.Errorf("recorded without the token: %v", asked)
	}
	if code := ask(f.Token, `{"prompt": "a", "n": 2000000000}`); code != http.StatusBadRequest {
		t.Errorf("two billion answers: got status %d, want 400", code)
	}
	if code := ask(f.Token, `{"prompt": "a"}`); code != http.StatusOK || len(f.Asked()) != 1 {
		t.Errorf("got status %d and requests %v, want one", code, f.Asked())
	}
}
