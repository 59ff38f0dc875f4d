package single

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/internal/temporary"
)

// sessionGateway is a gateway before a proxy, for environments whose programs have sessions. It gets stand-ins for all
// tokens, because the tokens of one session must fit together.
type sessionGateway struct {
	*gateway.Gateway
	remove func() error // the folder of sessions
	served chan error
}

// standInContext is how many stand-ins a conversation may have.
const standInContext = 1 << 20

// openGateway starts the gateway of a proxy that is served.
func (p *Proxy) openGateway() error {
	folder, remove, err := temporary.Dir("", "recipe-sessions-")
	if err != nil {
		return fmt.Errorf("make a folder for sessions: %w", err)
	}
	p.admin, p.inner = rand.Text(), rand.Text()
	g, err := gateway.New(gateway.Config{Address: "127.0.0.1:0", Token: p.Token, AdminToken: p.admin, Sessions: folder})
	if err == nil {
		err = g.SetReplicas([]gateway.Replica{{ID: "0", URL: strings.TrimSuffix(p.URL, "/v1"), APIKey: p.inner}})
	}
	if err == nil {
		err = g.Admit(context.Background(), "0", 0)
	}
	if err != nil {
		return errors.Join(err, remove())
	}
	p.sessions = &sessionGateway{g, remove, make(chan error, 1)}
	go func() { p.sessions.served <- g.Serve(context.Background()) }()
	return nil
}

// Control is where sessions are opened, and the token for it.
func (p *Proxy) Control() (url, token string) { return p.sessions.URL(), p.admin }

func (s *sessionGateway) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx) // requests in flight are cut off: the command has its result
	<-s.served
	return s.remove()
}

// tokenize answers as engines do, in stand-ins.
func (p *Proxy) tokenize(w http.ResponseWriter, r *http.Request) {
	var request object
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAskedBytes)).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.reply(w, object{"tokens": conversation(request), "max_model_len": standInContext})
}

// withoutTokens leaves of a choice its text.
func withoutTokens(choice object) {
	for _, name := range []string{"prompt_token_ids", "token_ids", "logprobs"} {
		delete(choice, name)
	}
}
