package environment

import (
	"context"
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
)

// tooLong reports that what the model is to read and its answer are longer than its context.
type tooLong struct{ err error }

func (t *tooLong) Error() string {
	return "it seems to be too long for the model's context, since a short one is answered: " + t.err.Error()
}

func (t *tooLong) Unwrap() error { return t.err }

// ofLength are the words in which servers refuse a question for its length.
var ofLength = lazyregexp.New(`(?i)context|too (long|large|many)|not fit|length|max_model_len|max_tokens|(exceed|maximum|limit|more than).*token|token.*(exceed|maximum|limit|more)`)

// explainRefusals returns an asker that says of a refused question whether others of its form are answered: then it is
// a tooLong error where the server speaks of lengths, and else a reason to lose this group alone.
func explainRefusals(ask asker) asker {
	return func(ctx context.Context, q question, p sampling) (*sample, error) {
		drawn, err := ask(ctx, q, p)
		var no *refusal
		if !errors.As(err, &no) {
			return drawn, err
		}
		p.N = 1
		if _, short := ask(ctx, q.shortest(), p); short != nil {
			return nil, err
		}
		if ofLength.MatchString(no.text) {
			return nil, &tooLong{err}
		}
		text := fmt.Sprintf("the prompt is refused, and another one is answered: %v", err)
		return nil, &unscored{text: text, causes: []error{&promptRefused{err}}}
	}
}

// promptRefused is the refusal of one prompt by a server that answers others.
type promptRefused struct{ err error }

func (p *promptRefused) Error() string { return p.err.Error() }

// shortest is a question of the same form and roles with hardly any content.
func (q question) shortest() question {
	switch {
	case q.tokens != nil:
		return question{tokens: q.tokens[:1]}
	case q.messages == nil:
		return question{text: "?"}
	}
	short := question{messages: make([]Message, len(q.messages)), template: q.template}
	for i, m := range q.messages {
		short.messages[i] = Message{Role: m.Role, Content: "?", ToolCallID: m.ToolCallID, Name: m.Name}
	}
	return short
}

// allTooLong ends a block none of whose groups fits: it would ask for ever, and after a restart the same.
func allTooLong(groups int, reason error) error {
	summary := fmt.Sprintf("all of the first %d groups are too long", groups)
	if groups == 1 {
		summary = "the first group is too long"
	}
	return &sdk.Error{Summary: summary, Err: reason, Final: true,
		Remedy: "shorten the prompts, lower max_tokens, or let the inference block and the trainer take longer sequences " +
			"(max_model_len, max_length)"}
}

// least is the smaller of two bounds of which 0 is none.
func least(a, b int) int {
	if a <= 0 || b <= 0 {
		return max(a, b, 0)
	}
	return min(a, b)
}
