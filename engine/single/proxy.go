package single

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/errorbody"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proxy"
)

// Proxy makes any OpenAI-compatible server look like an inference block to an environment: it sends the key and the
// model's name, asks for token ids and log-probabilities where the server knows them, and else puts stand-ins in their
// place (see standins.go). Nothing can be trained on those, and nothing is.
type Proxy struct {
	URL   string // as base_url, ending in /v1
	Token string // as api_key

	base, model, key string
	client           *http.Client
	server           *http.Server
	tokens           atomic.Bool // the server gives token ids itself
	served           chan error
	sessions         *sessionGateway
	admin, inner     string // tokens: of the gateway's control routes, and by which it asks this proxy
}

// proxyTimeout bounds one request to the server, all completions of a group included.
const proxyTimeout = 20 * time.Minute

// NewProxy serves a proxy of the server at base on loopback. Model is the name to ask for, empty: the first that the
// server lists. Key is empty where it wants none. A server that cannot be reached, or refuses the key, is an error.
func NewProxy(ctx context.Context, base, model, key string) (*Proxy, error) {
	base = strings.TrimRight(base, "/")
	if !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, Proxy: proxy.Of}
	if key != "" { // else the server may be anyone's
		transport = peer.Transport(base, transport)
	}
	p := &Proxy{base: base, model: model, key: key, Token: rand.Text(), served: make(chan error, 1),
		client: &http.Client{Timeout: proxyTimeout, Transport: transport}}
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the environment: %w", err)
	}
	p.URL = "http://" + listener.Addr().String() + "/v1"
	p.server = web.NewServer(http.HandlerFunc(p.serve))
	go func() { p.served <- web.Serve(p.server, listener) }()
	if err := p.openGateway(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Model is the name that is asked for.
func (p *Proxy) Model() string { return p.model }

// Close ends the proxy.
func (p *Proxy) Close() error {
	var err error
	if p.sessions != nil {
		err = p.sessions.close()
	}
	err = errors.Join(err, p.server.Close())
	<-p.served
	p.client.CloseIdleConnections()
	return err
}

// reach asks the server for its models, which shows whether it is there and takes the key.
func (p *Proxy) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	code, body, err := p.send(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return &sdk.Error{Summary: "the policy's server cannot be reached", Err: err,
			Remedy: "start the server, or correct the URL of --policy"}
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	switch {
	case (code == http.StatusUnauthorized || code == http.StatusForbidden) && p.key == "":
		return &sdk.Error{Summary: fmt.Sprintf("%s requires a key (HTTP %d)", p.base, code), Detail: errorbody.Text(body),
			Remedy: "name the environment variable that holds it: --key-env NAME"}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return &sdk.Error{Summary: fmt.Sprintf("%s refuses the key (HTTP %d)", p.base, code), Detail: errorbody.Text(body),
			Remedy: "correct the key in the variable that --key-env names"}
	case p.model != "": // services differ in what they list
		return nil
	case code != http.StatusOK || json.Unmarshal(body, &list) != nil || len(list.Data) == 0:
		return &sdk.Error{Summary: fmt.Sprintf("%s/models answered HTTP %d and no list of models", p.base, code),
			Detail: errorbody.Text(body), Remedy: "name the model: --model NAME"}
	}
	p.model = list.Data[0].ID
	return nil
}

func (p *Proxy) send(ctx context.Context, method, route string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.base+route, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", p.base, err)
	}
	r.Header.Set("Content-Type", "application/json")
	if p.key != "" {
		r.Header.Set("Authorization", "Bearer "+p.key)
	}
	response, err := p.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", p.base, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 256<<20))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s: %w", p.base, err)
	}
	return response.StatusCode, answer, nil
}

// bears reports whether a request has the token.
func bears(r *http.Request, token string) bool {
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	return subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	route := strings.TrimPrefix(r.URL.Path, "/v1")
	switch {
	case !bears(r, p.Token) && !bears(r, p.inner):
		http.Error(w, "wrong token", http.StatusUnauthorized)
	case r.Method == http.MethodGet && route == "/models":
		p.reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": p.model, "object": "model"}}})
	case r.Method == http.MethodPost && route == "/tokenize":
		p.tokenize(w, r)
	case r.Method == http.MethodPost && (route == "/completions" || route == "/chat/completions"):
		p.complete(w, r, route)
	default:
		http.Error(w, "a policy by URL answers /v1/completions and /v1/chat/completions only, not "+r.URL.Path,
			http.StatusNotFound)
	}
}

func (p *Proxy) reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

type object = map[string]any

// complete asks the server until it has given as many completions as were wanted: some give one, whatever n says.
func (p *Proxy) complete(w http.ResponseWriter, r *http.Request, route string) {
	var request object
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAskedBytes)).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	standIns := bears(r, p.inner) // the gateway asks
	prompt, chat := p.translate(request, route, standIns)
	if chat {
		route = "/chat/completions"
	}
	request["model"], request["stream"] = p.model, false
	want := 1
	if n, ok := request["n"].(float64); ok && n > 1 {
		want = int(n)
	}
	var whole object
	var choices []any
	for len(choices) < want {
		request["n"] = want - len(choices)
		code, body, err := p.ask(r.Context(), route, request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		var answer object
		_ = json.Unmarshal(body, &answer) // without choices it is an error, whatever it is
		given, _ := answer["choices"].([]any)
		if code != http.StatusOK || len(given) == 0 {
			if code == http.StatusOK {
				code = http.StatusBadGateway
			}
			http.Error(w, fmt.Sprintf("%s: %s", p.base, errorbody.Text(body)), code)
			return
		}
		if whole == nil {
			whole = answer
		}
		if standIns {
			withoutTokens(whole)
		}
		choices = append(choices, given...)
	}
	choices = choices[:want]
	if whole["prompt_token_ids"] != nil {
		p.tokens.Store(true)
	}
	for i, c := range choices {
		choice, _ := c.(object)
		if choice == nil {
			choice = object{}
		}
		choice["index"] = i
		if standIns {
			withoutTokens(choice)
		}
		if choice["prompt_token_ids"] != nil {
			p.tokens.Store(true)
		}
		if message, ok := choice["message"].(object); chat && ok {
			choice["text"], _ = message["content"].(string)
			delete(choice, "message")
		}
		complement(choice, prompt, whole["prompt_token_ids"])
		choices[i] = choice
	}
	whole["choices"], whole["model"] = choices, p.model
	p.reply(w, whole)
}

// ask sends a request; what the server refuses of it is left out.
func (p *Proxy) ask(ctx context.Context, route string, request object) (int, []byte, error) {
	for {
		data, err := json.Marshal(request)
		if err != nil {
			return 0, nil, err
		}
		code, body, err := p.send(ctx, http.MethodPost, route, data)
		if err != nil || code < 400 || code >= 500 || !relax(request, string(body)) {
			return code, body, err
		}
	}
}

// relax changes one thing that servers differ in, and says whether there was one left.
func relax(request object, refusal string) bool {
	if limit, ok := request["max_tokens"]; ok && strings.Contains(refusal, "max_completion_tokens") {
		delete(request, "max_tokens")
		request["max_completion_tokens"] = limit
		return true
	}
	for _, name := range []string{"return_token_ids", "logprobs", "top_p"} {
		if _, ok := request[name]; ok && (name != "top_p" || strings.Contains(refusal, name)) {
			delete(request, name)
			return true
		}
	}
	return false
}

// complement adds to a choice what an environment of a recipe expects.
func complement(choice object, prompt []int, ofPrompt any) {
	text, _ := choice["text"].(string)
	if message, ok := choice["message"].(object); ok {
		text, _ = message["content"].(string)
		message["content"] = text // some say null
	}
	if choice["prompt_token_ids"] == nil && ofPrompt == nil {
		choice["prompt_token_ids"] = prompt
	}
	ids, known := choice["token_ids"].([]any)
	if logprobs, ok := choice["logprobs"].(object); known && ok && matches(logprobs, len(ids)) {
		return
	}
	own := answered(text, choice["finish_reason"])
	logprobs := make([]float64, len(own))
	names := make([]string, len(own))
	content := make([]object, len(own))
	for i := range own {
		content[i] = object{"token": "", "logprob": 0, "top_logprobs": []any{}}
	}
	choice["token_ids"] = own
	if _, chat := choice["message"]; chat {
		choice["logprobs"] = object{"content": content}
		return
	}
	choice["logprobs"] = object{"tokens": names, "token_logprobs": logprobs}
}

// matches reports whether there is a log-probability for each token.
func matches(logprobs object, tokens int) bool {
	for _, name := range []string{"content", "token_logprobs"} {
		if list, ok := logprobs[name].([]any); ok && len(list) == tokens && tokens > 0 {
			return true
		}
	}
	return false
}
