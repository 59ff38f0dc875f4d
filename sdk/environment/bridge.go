package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// bridge finds the tokens that stand between two answers of the model: the end of the first one's turn, the turns that
// follow, and the beginning of the next, as the server's chat template writes them. Only these are turned into tokens;
// what the model said stays as it was sampled, which a template applied to the whole conversation would not assure.
//
// The server renders a short conversation whose answer is a digit, and the same with another digit: what both end with
// is what follows an answer. Where the digit is depends on nothing but the roles of what follows, so it is looked for
// once for each.
type bridge struct {
	ask asker

	mu    sync.Mutex
	heads map[string][]int // by the roles: the tokens up to the digit, with it
}

func newBridge(ask asker) *bridge { return &bridge{ask: ask, heads: map[string][]int{}} }

// between returns the tokens to append after an answer that ended with the token last.
func (b *bridge) between(ctx context.Context, messages []Message, last int) ([]int, error) {
	first, err := b.render(ctx, "0", messages)
	if err != nil {
		return nil, err
	}
	head, err := b.head(ctx, first, messages)
	if err != nil {
		return nil, err
	}
	tokens := first[len(head):]
	if len(tokens) > 0 && tokens[0] == last { // the model has ended its turn itself
		tokens = tokens[1:]
	}
	return tokens, nil
}

// head returns the beginning of a rendered conversation, up to the answer and with it.
func (b *bridge) head(ctx context.Context, first []int, messages []Message) ([]int, error) {
	var roles strings.Builder
	for _, m := range messages {
		roles.WriteString(m.Role + " ")
	}
	b.mu.Lock()
	head, known := b.heads[roles.String()]
	b.mu.Unlock()
	if known && len(head) <= len(first) && slices.Equal(head, first[:len(head)]) {
		return head, nil
	}
	second, err := b.render(ctx, "1", messages)
	if err != nil {
		return nil, err
	}
	same := 0
	for same < min(len(first), len(second)) && first[len(first)-1-same] == second[len(second)-1-same] {
		same++
	}
	if same == len(first) || same == len(second) {
		return nil, errors.New("the chat template leaves out the answers of the assistant, so a conversation of several " +
			"turns has no tokens; set chat_template of the inference block")
	}
	head = first[:len(first)-same]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heads[roles.String()] = head
	return head, nil
}

// render lets the server turn a conversation into tokens: those of the prompt of a chat request, which the training
// reads of the first turn as well. Engines differ in their routes for it, and all have this one.
func (b *bridge) render(ctx context.Context, answer string, messages []Message) ([]int, error) {
	conversation := append([]Message{{Role: "user", Content: "?"}, {Role: "assistant", Content: answer}}, messages...)
	drawn, err := b.ask(ctx, question{messages: conversation}, sampling{N: 1, MaxTokens: 1, TopP: 1})
	if err != nil {
		return nil, fmt.Errorf("apply the chat template to the messages of the environment: %w", err)
	}
	return drawn.prompt, nil
}
