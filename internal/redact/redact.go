// Package redact takes credentials out of texts that quote URLs: unmodified environments accept only a URL, so a token
// may be in its path, and errors and logs quote URLs.
package redact

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// Token stands where a token was.
const Token = "<token>"

var (
	inPath   = lazyregexp.New(`(?i)\b((?:https?|nats|tls)://[^\s"'<>]*?/t/)[^/\s"'<>?#]+`)
	userinfo = lazyregexp.New(`(?i)\b([a-z][a-z0-9+.-]*://)[^/@\s"'<>]+@`)
	bearer   = lazyregexp.New(`(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}`)
)

// Text hides the tokens of all URLs in a text, names and passwords before a host, and bearer tokens.
func Text(s string) string {
	if !strings.Contains(s, "://") && !strings.Contains(strings.ToLower(s), "bearer") {
		return s
	}
	s = userinfo.ReplaceAllString(s, "${1}"+Token+"@")
	s = inPath.ReplaceAllString(s, "${1}"+Token)
	return bearer.ReplaceAllString(s, "${1}"+Token)
}

// Path hides the token of a request's path, /t/TOKEN/….
func Path(path string) string {
	rest, found := strings.CutPrefix(path, "/t/")
	if !found {
		return path
	}
	_, rest, more := strings.Cut(rest, "/")
	if more {
		rest = "/" + rest
	}
	return "/t/" + Token + rest
}

// Handler hides credentials in everything that is logged.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(attribute(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = attribute(a)
	}
	return handler{h.Handler.WithAttrs(clean)}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func attribute(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, Text(Path(v.String())))
	case slog.KindGroup:
		members := v.Group()
		clean := make([]slog.Attr, len(members))
		for i, m := range members {
			clean[i] = attribute(m)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(clean...)}
	case slog.KindAny:
		return slog.String(a.Key, Text(fmt.Sprint(v.Any())))
	}
	return a
}
