package environment

import (
	"context"
	"errors"
)

// tooLong says that what the model is to read and its answer are longer than its context.
type tooLong struct{ err error }

func (t *tooLong) Error() string {
	return "it seems to be too long for the model's context, since a short one is answered: " + t.err.Error()
}

func (t *tooLong) Unwrap() error { return t.err }

// telling returns an asker whose error is a tooLong when the server refuses a question for its length. Engines say that
// in words of their own, so the server is asked: it takes the same question with hardly any content.
func telling(ask asker) asker {
	return func(ctx context.Context, q question, p sampling) (*sample, error) {
		drawn, err := ask(ctx, q, p)
		var no *refusal
		if !errors.As(err, &no) {
			return drawn, err
		}
		p.N = 1
		if _, short := ask(ctx, q.shortest(), p); short == nil {
			return nil, &tooLong{err}
		}
		return nil, err
	}
}

// shortest is a question of the same form and roles with hardly any content.
func (q question) shortest() question {
	switch {
	case q.tokens != nil:
		return question{tokens: q.tokens[:1]}
	case q.messages == nil:
		return question{text: "?"}
	}
	short := question{messages: make([]Message, len(q.messages))}
	for i, m := range q.messages {
		short.messages[i] = Message{m.Role, "?"}
	}
	return short
}
