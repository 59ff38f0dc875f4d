package redact

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing to hide in /t/home/x":                           "nothing to hide in /t/home/x",
		`Get "http://127.0.0.1:8000/t/s3cret/batch": refused`:    `Get "http://127.0.0.1:8000/t/<token>/batch": refused`,
		"http://h/t/s3cret":                                      "http://h/t/<token>",
		"https://h/api/t/s3cret?x=1, https://h/t/other-s3cret/a": "https://h/api/t/<token>?x=1, https://h/t/<token>/a",
		"postgres://me:s3cret@host/db and nats://s3cret@a,b":     "postgres://<token>@host/db and nats://<token>@a,b",
		"Authorization: Bearer s3cret-s3cret":                    "Authorization: Bearer <token>",
		"url='http://h/t/s3cret/scored_data'":                    "url='http://h/t/<token>/scored_data'",
		"http://h/health is fine, me@example.org too":            "http://h/health is fine, me@example.org too",
	} {
		if got := Text(text); got != want {
			t.Errorf("%s\nbecame %s\nexpected %s", text, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/t/s3cret/batch/1": "/t/<token>/batch/1", "/t/s3cret": "/t/<token>",
		"/batch": "/batch", "/t/": "/t/<token>"} {
		if got := Path(path); got != want {
			t.Errorf("%s became %s, expected %s", path, got, want)
		}
	}
}

func TestHandlerHidesInMessagesAndAttributes(t *testing.T) {
	t.Parallel()
	const url = "http://h/t/s3cret/batch"
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, nil))).With("at", url).WithGroup("g")
	log.Error("asked "+url, "path", "/t/s3cret/x", "error", errors.New("at "+url), slog.Group("more", "url", url), "n",
		3)
	if text := out.String(); strings.Contains(text, "s3cret") || strings.Count(text, Token) != 5 ||
		!strings.Contains(text, "g.n=3") {
		t.Errorf("logged %s", text)
	}
}
