package single

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/recipe-rl/recipe/internal/web"
)

// Fixed is an OpenAI-compatible server that gives one answer to everything, and records what it was asked.
type Fixed struct {
	URL   string // ending in /v1
	Token string

	answer string
	server *http.Server
	served chan error

	mu    sync.Mutex
	asked [][]Asked
}

// Asked is a message of a request; a text without roles is one with an empty role.
type Asked struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// maxAsked bounds how many requests are recorded, maxAskedBytes the size of one, and maxAnswers the answers to one.
const (
	maxAsked      = 1000
	maxAskedBytes = 64 << 20
	maxAnswers    = 1 << 16
)

// NewFixed serves on loopback.
func NewFixed(answer string) (*Fixed, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the environment: %w", err)
	}
	f := &Fixed{URL: "http://" + listener.Addr().String() + "/v1", Token: rand.Text(), answer: answer,
		served: make(chan error, 1)}
	f.server = web.NewServer(http.HandlerFunc(f.serve))
	go func() { f.served <- web.Serve(f.server, listener) }()
	return f, nil
}

// Close ends the server.
func (f *Fixed) Close() error {
	err := f.server.Close()
	<-f.served
	return err
}

// Asked returns the requests so far, in their order: the messages of each.
func (f *Fixed) Asked() [][]Asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([][]Asked{}, f.asked...)
}

func (f *Fixed) serve(w http.ResponseWriter, r *http.Request) {
	if !bears(r, f.Token) {
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	var answer any
	switch strings.TrimPrefix(r.URL.Path, "/v1") {
	case "/models":
		answer = object{"object": "list", "data": []object{{"id": "fixed", "object": "model"}}}
	case "/completions", "/chat/completions":
		var request struct {
			N        int             `json:"n"`
			Prompt   json.RawMessage `json:"prompt"`
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAskedBytes)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if request.N > maxAnswers {
			http.Error(w, fmt.Sprintf("n is %d; expected at most %d", request.N, maxAnswers), http.StatusBadRequest)
			return
		}
		var messages []Asked
		for _, m := range request.Messages {
			text, ok := m.Content.(string)
			if !ok {
				data, _ := json.Marshal(m.Content) // decoded a moment ago
				text = string(data)
			}
			messages = append(messages, Asked{m.Role, text})
		}
		if len(request.Messages) == 0 {
			text := ""
			if json.Unmarshal(request.Prompt, &text) != nil {
				text = string(request.Prompt)
			}
			messages = []Asked{{Content: text}}
		}
		if !rendering(messages) {
			f.record(messages)
		}
		answer = f.answered(max(request.N, 1), len(request.Messages) > 0)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// rendering reports whether a request only asks for the tokens between two answers (package sdk/environment).
func rendering(messages []Asked) bool {
	return len(messages) > 1 && messages[0] == Asked{"user", "?"} && messages[1].Role == "assistant"
}

func (f *Fixed) record(messages []Asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) < maxAsked {
		f.asked = append(f.asked, messages)
	}
}

func (f *Fixed) answered(n int, chat bool) object {
	choices := make([]object, n)
	for i := range choices {
		choices[i] = object{"index": i, "finish_reason": "stop", "text": f.answer}
		if chat {
			choices[i] = object{"index": i, "finish_reason": "stop",
				"message": object{"role": "assistant", "content": f.answer}}
		}
	}
	return object{"id": "fixed", "model": "fixed", "choices": choices}
}
