package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/internal/session"
)

// serveSession answers a request that came with the key of a session.
func (g *Gateway) serveSession(w http.ResponseWriter, r *http.Request, id, route string) {
	// A program chooses its text, and nothing else of what an engine gets: engines read priorities, names of requests and
	// ranks from headers.
	r.Header, r.URL.RawQuery = http.Header{}, ""
	switch {
	case strings.TrimSuffix(route, "/") == "/v1/models" && reads(r):
		g.models(w, r)
		return
	case strings.HasPrefix(route, "/v1/models/") && reads(r):
		g.model(w, r, strings.TrimPrefix(route, "/v1/models/"))
		return
	case dialects[route].parse == nil || r.Method != http.MethodPost:
		writeErrorTo(w, route, &refusal{http.StatusNotFound, "not_found", "a session answers POST /v1/chat/completions, " +
			"/v1/responses, /v1/messages and /v1/messages/count_tokens, and GET /v1/models, not " + r.Method + " " + route, 0})
		return
	}
	start := g.cfg.Clock.Now()
	cl := g.clients.begin("session", start)
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	tokens, err := g.sessionCall(seen, r, id, route)
	if err != nil {
		g.refuse(seen, route, err)
	}
	g.clients.end(cl, tokens, seen.status)
	g.met.done(route, seen.status, tokens, g.cfg.Clock.Now().Sub(start))
}

// dialect is a form of requests and answers.
type dialect struct {
	parse  func(body []byte) (*session.Query, error)
	whole  func(r *session.Reply) []byte
	stream func(r *session.Reply, q *session.Query) []byte
	prefix string // of the names of answers
	counts bool   // only the tokens of the prompt are asked for
}

// dialects are the routes of a session.
var dialects = map[string]dialect{
	"/v1/chat/completions": {session.ParseChat, (*session.Reply).Chat,
		func(r *session.Reply, q *session.Query) []byte { return r.ChatStream(q.Usage) }, "chatcmpl-", false},
	"/v1/messages": {session.ParseMessages, (*session.Reply).Messages,
		func(r *session.Reply, _ *session.Query) []byte { return r.MessagesStream() }, "msg_", false},
	"/v1/responses": {session.ParseResponses, (*session.Reply).Responses,
		func(r *session.Reply, _ *session.Query) []byte { return r.ResponsesStream() }, "resp_", false},
	"/v1/messages/count_tokens": {parse: session.ParseMessages, counts: true},
}

// sessionCall answers one call of a session.
func (g *Gateway) sessionCall(w *statusWriter, r *http.Request, id, route string) (tokens int, err error) {
	l, err := g.sessions.get(id)
	if err != nil {
		return 0, &refusal{http.StatusUnauthorized, "unauthorized", "session key: " + err.Error(), 0}
	}
	if err := l.enter(); err != nil {
		return 0, err
	}
	defer l.leave()
	form := dialects[route]
	q, release, err := g.query(w, r, l, form)
	defer release()
	if err != nil {
		return 0, err
	}
	ask := &sessionCall{g: g, l: l, q: q, form: form, header: r.Header}
	if form.counts {
		if err := l.counts(); err != nil {
			return 0, err
		}
		ids, _, err := ask.tokenize(r.Context(), q.Raw)
		if err == nil {
			writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(ids)})
		}
		return 0, err
	}
	if q.Stream {
		ask.early = &early{w}
	}
	n, err := ask.begin()
	if err != nil {
		return 0, err
	}
	sampled := n < 0
	if sampled {
		n, err = ask.answer(r.Context())
	}
	if err == nil && r.Context().Err() != nil {
		err = context.Cause(r.Context())
	}
	if err != nil {
		l.end(n, false)
		return 0, err
	}
	reply := ask.reply(n)
	l.end(n, ask.send(w, reply))
	if sampled {
		tokens = reply.Output
	}
	return tokens, nil
}

// query reads and decodes a request. What it takes of the session's bytes is given back by release.
func (g *Gateway) query(w http.ResponseWriter, r *http.Request, l *liveSession, form dialect) (
	q *session.Query, release func(), err error) {
	limit := min(g.cfg.MaxBodyBytes, maxSessionBody)
	taken := r.ContentLength
	if taken < 0 || taken > limit {
		taken = limit
	}
	if err := l.bodies.Acquire(r.Context(), taken); err != nil {
		return nil, func() {}, context.Cause(r.Context())
	}
	release = func() { l.bodies.Release(taken) }
	body, err := readBodyUpTo(w, r, limit)
	if err != nil {
		return nil, release, err
	}
	l.bodies.Release(taken - int64(len(body)))
	taken = int64(len(body))
	select {
	case g.sessions.parsing <- struct{}{}:
	case <-r.Context().Done():
		return nil, release, context.Cause(r.Context())
	}
	defer func() { <-g.sessions.parsing }()
	q, err = form.parse(body)
	if err == nil && len(q.Model) > maxModelName {
		err = fmt.Errorf("model: want a name of at most %d bytes, got one of %d", maxModelName, len(q.Model))
	}
	if err != nil { // it may repeat what it refuses
		err = &refusal{http.StatusBadRequest, "invalid_request_error", shortened(err.Error()), 0}
	}
	return q, release, err
}

// enter lets a request in before its body is read; leave must follow.
func (l *liveSession) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.endedLocked(); err != nil {
		return err
	}
	if l.busy >= maxSessionCalls {
		return &refusal{http.StatusTooManyRequests, "too_many_calls", fmt.Sprintf("the session has %d calls at a time, "+
			"which is the limit", l.busy), time.Second}
	}
	l.busy++
	return nil
}

func (l *liveSession) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
}

// endedLocked refuses a call of a session that has ended.
func (l *liveSession) endedLocked() error {
	state := l.state.State
	if l.closing && state == session.StateOpen {
		state = "about to end"
	}
	if state == session.StateOpen {
		return nil
	}
	return &refusal{http.StatusConflict, "session_ended", "the session is " + state + "; it takes no more calls", 0}
}

// begin lets a call in, or refuses it. It returns the earlier call whose answer the program has not received and asks
// for again, or -1.
func (s *sessionCall) begin() (again int, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if err := s.l.endedLocked(); err != nil {
		return -1, err
	}
	s.place = s.l.tree.Find(s.q.Request)
	s.place.Rest = s.q.Rest()
	if again = s.l.tree.Again(s.place); again < 0 {
		if err := s.l.affordsLocked(s.g.cfg.Clock.Now()); err != nil {
			return -1, err
		}
	}
	s.l.pending++
	s.l.overrule += len(s.q.Overruled)
	return again, nil
}

// affordsLocked refuses a call that the budget has no place for.
func (l *liveSession) affordsLocked(now time.Time) error {
	b := l.opened.Budget
	turns := min(cmp.Or(b.Turns, maxTurns), maxTurns)
	switch {
	case l.tree.Len()+l.pending >= turns:
		return l.overLocked(fmt.Sprintf("turns: %d calls were made", turns))
	case l.tree.Text() >= maxSessionText:
		return l.overLocked(fmt.Sprintf("size: its messages hold %d bytes", maxSessionText))
	case l.rendered >= maxRendered:
		return l.overLocked(fmt.Sprintf("size: prompts of %d tokens were rendered", l.rendered))
	case l.tree.Size() >= maxSessionTokens:
		return l.overLocked(fmt.Sprintf("size: its calls hold %d tokens", maxSessionTokens))
	case b.Tokens > 0 && l.sampled >= b.Tokens:
		return l.overLocked(fmt.Sprintf("tokens: %d were sampled", b.Tokens))
	case b.Seconds > 0 && now.Sub(l.opened.Opened).Seconds() >= b.Seconds:
		return l.overLocked(fmt.Sprintf("seconds: it was opened %g s ago", b.Seconds))
	}
	return nil
}

// counts refuses to count the tokens of another prompt once too many were rendered.
func (l *liveSession) counts() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rendered >= maxRendered {
		return l.overLocked(fmt.Sprintf("size: prompts of %d tokens were rendered", l.rendered))
	}
	return nil
}

// addRendered notes tokens that an engine has made of messages.
func (l *liveSession) addRendered(tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rendered += tokens
}

// overLocked ends a session whose budget is spent. The answer is one that clients do not send again, and take for a
// conversation that has become too long.
func (l *liveSession) overLocked(why string) error {
	if err := l.truncate(why); err != nil {
		return err
	}
	return &refusal{http.StatusBadRequest, "context_length_exceeded",
		"prompt is too long: the budget of the session is spent (" + why + ")", 0}
}

// end is the end of a call, n in the tree, or -1 if there was none.
func (l *liveSession) end(n int, delivered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending--
	switch {
	case n < 0 || l.state.State == session.StateAborted:
		return
	case !delivered:
		l.tree.Fail(n)
		return
	}
	l.tree.Deliver(n)
	_ = l.journal.Deliver(n) // if it is lost, the call is not trained
}

// sessionCall is one call of a session while it is answered.
type sessionCall struct {
	g      *Gateway
	l      *liveSession
	q      *session.Query
	form   dialect
	header http.Header
	early  *early
	place  session.Place
}

// answer samples the answer of a call and records it. It returns the call, or -1.
func (s *sessionCall) answer(ctx context.Context) (int, error) {
	place := s.place
	s.l.mu.Lock()
	var held []int32
	last := int32(-1)
	if place.Parent >= 0 {
		held, last = s.l.tree.Tokens(place.Parent), s.l.tree.LastToken(place.Parent)
	}
	s.l.mu.Unlock()

	fresh, limit, err := s.render(ctx, place, last)
	if errors.Is(err, errNoGap) { // the template does not show where the answer ends: the conversation is rendered anew
		place, held = place.Anew(s.q.Request), nil
		fresh, limit, err = s.render(ctx, place, last)
	}
	if err != nil {
		return -1, err
	}
	prompt := append(held, fresh...)
	want, err := s.room(ctx, len(prompt), limit)
	if err != nil {
		return -1, err
	}
	defer s.l.settle(reservation{want, len(prompt) + want})
	c, by, err := s.sample(ctx, prompt, want)
	if err != nil {
		return -1, err
	}
	c.Asked, c.Prompt = place.Tail, fresh
	if s.q.Constraint != nil {
		c.Masked = session.Constrained
	}
	c.Answer, c.Finish, err = s.read(ctx, by, Sampled{Text: c.text, Prompt: prompt[max(0, len(prompt)-promptTail):],
		Output: c.Output, Finish: c.Finish, Tools: s.q.Tools, Variables: s.q.Variables})
	if err != nil {
		return -1, err
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.state.State == session.StateAborted {
		return -1, &refusal{http.StatusConflict, "session_ended", "the session was aborted", 0}
	}
	n := s.l.tree.Add(place, c.Call)
	if err := s.l.journal.Call(s.l.tree, n); err != nil {
		s.l.tree.Drop(n)
		return -1, err
	}
	s.l.sampled += len(c.Output)
	return n, nil
}

// reply is the answer of a recorded call.
func (s *sessionCall) reply(n int) *session.Reply {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	c := s.l.tree.Call(n)
	return &session.Reply{ID: s.form.prefix + rand.Text(), Model: cmp.Or(s.q.Model, s.g.policyModel()),
		Created: s.g.cfg.Clock.Now().Unix(), Thinking: s.q.Thinking, Answer: c.Answer, Finish: c.Finish,
		Prompt: s.l.tree.Length(n) - len(c.Output), Output: len(c.Output)}
}

// tokenize has an engine turn messages into a prompt, by the model's own chat template.
func (s *sessionCall) tokenize(ctx context.Context, messages []json.RawMessage) (ids []int32, limit int, err error) {
	fields := map[string]any{"messages": messages, "add_generation_prompt": true}
	if model := s.g.policyModel(); model != "" {
		fields["model"] = model
	}
	if len(s.q.Tools) > 0 {
		fields["tools"] = s.q.Tools
	}
	if len(s.q.Variables) > 0 {
		fields["chat_template_kwargs"] = s.q.Variables
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, 0, &refusal{http.StatusBadRequest, "invalid_request_error", err.Error(), 0}
	}
	// What an engine answers takes many times the memory of the text.
	takes := min(int64(len(body)), maxRendering)
	if err := s.g.sessions.rendering.Acquire(ctx, takes); err != nil {
		return nil, 0, context.Cause(ctx)
	}
	defer s.g.sessions.rendering.Release(takes)
	a, err := s.g.send(ctx, &call{method: http.MethodPost, path: "/tokenize", header: http.Header{}, body: body,
		prompt: body[:min(len(body), prefixBlock*prefixMax)], early: s.early})
	if err != nil {
		return nil, 0, err
	}
	if a.rest != nil || a.status != http.StatusOK {
		a.discard(s.g)
		return nil, 0, &refusal{http.StatusBadRequest, "invalid_request_error",
			"the engine cannot render the conversation: " +
				engineMessage(a.body), 0}
	}
	root := gjson.ParseBytes(a.body)
	if ids, err = parseIDs(root.Get("tokens").Raw, nil); err != nil {
		return nil, 0, fmt.Errorf("the engine's answer to /tokenize: %w", err)
	}
	s.l.addRendered(len(ids))
	if limit = int(root.Get("max_model_len").Int()); limit < 1 || len(ids) == 0 {
		return nil, 0, &refusal{http.StatusBadGateway, "engine_answer",
			"the engine's answer to /tokenize has no tokens, or no " +
				"max_model_len", 0}
	}
	return ids, limit, nil
}

// engineMessage is the message of an engine's error.
func engineMessage(body []byte) string {
	for _, path := range []string{"error.message", "message"} {
		if m := gjson.GetBytes(body, path); m.Type == gjson.String {
			return shortened(m.Str)
		}
	}
	return brief(string(body))
}

// sampledCall is a call whose answer is not read yet.
type sampledCall struct {
	session.Call
	text string // of the answer
}

// sample has an engine continue a prompt, and returns the replica that has answered.
func (s *sessionCall) sample(ctx context.Context, prompt []int32, want int) (c sampledCall, by Replica, err error) {
	fields := map[string]any{"prompt": map[string]any{"prompt_token_ids": prompt}, "logprobs": 0, "max_tokens": want,
		"temperature": 1.0}
	for name, v := range s.l.opened.Sampling {
		fields[name] = v
	}
	if len(s.q.Stop) > 0 {
		fields["stop"] = s.q.Stop
	}
	if s.q.Constraint != nil {
		fields["response_format"] = s.q.Constraint.Format
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return c, by, err
	}
	q, err := translateRequest(body, s.g.policyModel())
	if err != nil {
		return c, by, &refusal{http.StatusBadRequest, "invalid_request_error", err.Error(), 0}
	}
	asked := q.call(s.header)
	asked.early = s.early
	a, err := s.g.send(ctx, asked)
	if err != nil {
		return c, by, err
	}
	if a.rest != nil || a.status != http.StatusOK {
		a.discard(s.g)
		return c, by, &refusal{a.status, "engine_failed", engineMessage(a.body), 0}
	}
	done := q.read(a)
	if err := q.check(done); err != nil {
		s.g.met.mistranslated.Add(1)
		return c, by, &refusal{http.StatusBadGateway, "engine_answer", "the engine's answer cannot be trained: " +
			err.Error(), 0}
	}
	a.ownVersion(done)
	c, err = newSampledCall(&done.choices[0], a.low, a.high)
	return c, a.inFlight.replica.Replica, err
}

// newSampledCall takes over an engine's answer, which the policy versions low to high have sampled.
func newSampledCall(ch *choice, low, high int) (c sampledCall, err error) {
	c.text, c.Output, c.Finish = gjson.Parse(ch.text).Str, slices.Clone(ch.ids), gjson.Parse(ch.finish).Str
	if c.Logprobs, err = ch.floats(); err != nil {
		return c, err
	}
	for _, v := range ch.spans {
		c.Versions = append(c.Versions, session.VersionSpan{Start: v.Start, End: v.End, Version: int64(v.Version)})
	}
	if len(ch.spans) == 0 { // of a range, the oldest counts, as for staleness
		c.Versions = []session.VersionSpan{{Start: 0, End: len(c.Output), Version: int64(min(low, high))}}
	}
	return c, nil
}

// send writes the answer, and says whether the program has received it.
func (s *sessionCall) send(w *statusWriter, r *session.Reply) bool {
	body := s.form.whole(r)
	if s.q.Stream {
		body = s.form.stream(r, s.q)
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(stall))
	if !w.begun {
		kind := "application/json"
		if s.q.Stream {
			kind = "text/event-stream; charset=utf-8"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
	}
	if _, err := w.Write(body); err != nil {
		return false
	}
	return out.Flush() == nil
}
