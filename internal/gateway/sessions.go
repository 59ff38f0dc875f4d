package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/recipe-rl/recipe/internal/session"
)

// A session is one rollout of a program that knows nothing of training: it asks the policy by a base URL and a key, and
// the gateway keeps its calls as a tree of tokens.

// SessionRequest opens a session.
type SessionRequest struct {
	Task     string          `json:"task,omitempty"`     // name of the task, for people
	Group    string          `json:"group,omitempty"`    // name of the group of rollouts of one task
	Index    int             `json:"index,omitempty"`    // of the rollout in its group
	Budget   SessionBudget   `json:"budget,omitzero"`    //
	Sampling SessionSampling `json:"sampling,omitempty"` // overrules what the program asks for
}

// SessionBudget limits a session. 0: no limit.
type SessionBudget struct {
	Turns   int     `json:"turns,omitempty"`   // calls, at most maxTurns
	Tokens  int     `json:"tokens,omitempty"`  // sampled, of all calls together
	Context int     `json:"context,omitempty"` // of one call: prompt and answer
	Seconds float64 `json:"seconds,omitempty"` // since the session was opened
}

// SessionSampling is a distribution: parameters of /v1/completions by name. What is missing has the engine's default;
// temperature is 1.
type SessionSampling map[string]float64

// sessionParameters are the parameters that a session may have.
var sessionParameters = map[string]bool{"temperature": true, "top_p": true, "top_k": true, "min_p": true,
	"repetition_penalty": true, "presence_penalty": true, "frequency_penalty": true}

// Session states.
const (
	sessionOpen     = "open"
	sessionFinished = "finished"
	sessionAborted  = "aborted"
)

// sessionState is what changes of a session besides its calls.
type sessionState struct {
	State     string             `json:"state"`
	Why       string             `json:"why,omitempty"`       // it was aborted
	Truncated string             `json:"truncated,omitempty"` // which limit of the budget was reached
	Reward    *float64           `json:"reward,omitempty"`    // none: it is not scored
	Metrics   map[string]float64 `json:"metrics,omitempty"`
}

// openedSession is the first line of a journal.
type openedSession struct {
	Format int `json:"format"`
	SessionRequest
	Opened time.Time `json:"opened"`
}

// liveSession is a session in memory.
type liveSession struct {
	id string

	mu       sync.Mutex
	opened   openedSession
	state    sessionState
	tree     *session.Tree
	journal  *session.Journal
	bodies   *semaphore.Weighted // bytes of its requests, sessionBodies at a time
	busy     int                 // requests, pending calls and those that are no calls yet
	pending  int                 // calls that are being answered
	promised promise             // of them
	settled  chan struct{}       // closed when a promise ends; nil: nobody waits for one
	closing  bool                // its owner waits for the pending calls to end it
	sampled  int                 // tokens
	overrule int                 // parameters of the program that were overruled
}

// sessions are those of a gateway.
type sessions struct {
	keys   session.Keys
	folder string // of the journals; empty: sessions are refused

	// parsing has a place for each body that is decoded: that takes many times the memory of the body.
	parsing chan struct{}

	mu   sync.Mutex
	byID map[string]*liveSession
}

// What bounds the memory and the disk that sessions take, whatever a program does.
const (
	maxSessions      = 16384
	maxTurns         = 1024    // calls of a session
	maxSessionTokens = 8 << 20 // of all calls of a session, prompts that were rendered anew each time included
	maxSessionCalls  = 64      // requests of a session at a time
	maxSessionBody   = 16 << 20
	sessionBodies    = 2 * maxSessionBody // of a session at a time
)

// sessionFormat is the version of the journals.
const sessionFormat = 1

// sessionName is what sessions are called: rand.Text.
var sessionName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

func newSessions(folder, secret string) *sessions {
	return &sessions{keys: session.NewKeys(secret), folder: folder, byID: map[string]*liveSession{},
		parsing: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (s *sessions) path(id string) string { return filepath.Join(s.folder, id+".jsonl") }

// open begins a session.
func (s *sessions) open(q SessionRequest, now time.Time) (*liveSession, error) {
	if s.folder == "" {
		return nil, errors.New("this gateway keeps no sessions: it was started without a folder for them")
	}
	if err := q.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of sessions: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= maxSessions {
		return nil, fmt.Errorf("%d sessions are open, which is the limit; delete those that are done", maxSessions)
	}
	l := &liveSession{id: rand.Text(), opened: openedSession{sessionFormat, q, now},
		state: sessionState{State: sessionOpen}, tree: &session.Tree{}, bodies: semaphore.NewWeighted(sessionBodies)}
	var err error
	if l.journal, err = session.Create(s.path(l.id), l.opened); err != nil {
		return nil, err
	}
	s.byID[l.id] = l
	return l, nil
}

func (q *SessionRequest) check() error {
	b := q.Budget
	if b.Turns < 0 || b.Tokens < 0 || b.Context < 0 || !(b.Seconds >= 0) || math.IsInf(b.Seconds, 0) {
		return fmt.Errorf("budget: want numbers from 0 (no limit), got %+v", b)
	}
	for name, v := range q.Sampling {
		if !sessionParameters[name] {
			return fmt.Errorf("sampling: %q is not known; want temperature, top_p, top_k, min_p, repetition_penalty, "+
				"presence_penalty or frequency_penalty", name)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("sampling: %s is no number", name)
		}
	}
	if len(q.Task) > 1024 || len(q.Group) > 1024 {
		return errors.New("task, group: want names of at most 1024 bytes")
	}
	return nil
}

// get finds a session, also one of an earlier life of the gateway.
func (s *sessions) get(id string) (*liveSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byID[id]; l != nil {
		return l, nil
	}
	if s.folder == "" || !sessionName.MatchString(id) {
		return nil, errNoSession
	}
	l := &liveSession{id: id, state: sessionState{State: sessionOpen}, bodies: semaphore.NewWeighted(sessionBodies)}
	var err error
	l.journal, l.tree, err = session.Resume(s.path(id), &l.opened, &l.state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoSession
	}
	if err != nil {
		return nil, err
	}
	if l.opened.Format != sessionFormat {
		return nil, errors.Join(fmt.Errorf("the journal of session %s has format %d, this program reads %d: another version "+
			"of recipe has written it", id, l.opened.Format, sessionFormat), l.journal.Close())
	}
	l.sampled = l.tree.Sampled()
	s.byID[id] = l
	return l, nil
}

var errNoSession = errors.New("no such session: it was deleted, or belongs to another gateway")

// remove forgets a session and deletes its journal.
func (s *sessions) remove(l *liveSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(s.byID, l.id)
	l.state.State = sessionAborted
	return l.journal.Remove()
}

// close closes the journals; the sessions go on with the next gateway.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byID {
		l.mu.Lock()
		_ = l.journal.Close() // everything acknowledged is on the disk
		l.mu.Unlock()
	}
}

// SessionStatus is a session as its owner sees it.
type SessionStatus struct {
	ID string `json:"id"`
	openedSession
	sessionState
	Calls     int                `json:"calls"`     // answered
	Pending   int                `json:"pending"`   // being answered
	Sampled   int                `json:"sampled"`   // tokens
	Overruled int                `json:"overruled"` // sampling parameters of the program that the session's overruled
	Sequences []session.Sequence `json:"sequences,omitempty"`
}

// OpenedSession is the answer to SessionRequest.
type OpenedSession struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	BaseURL string `json:"base_url"` // for OpenAI's clients; the key is their api_key
}

// sessionRoute answers POST /recipe/v1/sessions, and GET, DELETE and POST of /recipe/v1/sessions/ID.
func (g *Gateway) sessionRoute(w http.ResponseWriter, r *http.Request, rest string) {
	out, err := g.sessionControl(w, r, rest)
	if err != nil {
		status := controlStatus(err)
		if errors.Is(err, errNoSession) {
			status = http.StatusNotFound
		}
		var refused *refusal
		if errors.As(err, &refused) {
			status = refused.status
		}
		writeJSON(w, status, apiError{apiErrorBody{err.Error(), "session", status}})
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func (g *Gateway) sessionControl(w http.ResponseWriter, r *http.Request, rest string) (any, error) {
	now := g.cfg.Clock.Now()
	body, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if rest == "" {
		if r.Method != http.MethodPost {
			return nil, &refusal{http.StatusMethodNotAllowed, "", "sessions takes POST", 0}
		}
		var q SessionRequest
		if err := decode(body, &q); err != nil {
			return nil, err
		}
		l, err := g.sessions.open(q, now)
		if err != nil {
			return nil, err
		}
		return OpenedSession{l.id, g.sessions.keys.Key(l.id), g.URL() + "/v1"}, nil
	}
	id, action, _ := strings.Cut(rest, "/")
	l, err := g.sessions.get(id)
	if err != nil {
		return nil, err
	}
	switch r.Method + " " + action {
	case "GET ":
		return l.status(true), nil
	case "DELETE ":
		return struct{}{}, g.sessions.remove(l)
	case "POST reward", "POST finish", "POST abort":
		return l.change(action, body)
	}
	return nil, &refusal{http.StatusNotFound, "", "a session has GET, DELETE, and POST reward, finish, abort", 0}
}

// change takes a reward, or ends a session.
func (l *liveSession) change(action string, body []byte) (any, error) {
	var q struct {
		Reward  *float64           `json:"reward"`
		Metrics map[string]float64 `json:"metrics"`
		Why     string             `json:"why"`
	}
	if err := decode(body, &q); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.state
	if q.Reward != nil {
		next.Reward, next.Metrics = q.Reward, q.Metrics
	}
	switch {
	case action == "reward" && q.Reward == nil:
		return nil, fmt.Errorf("%w: reward is missing", errBody)
	case action == "abort":
		next.State, next.Why = sessionAborted, q.Why
	case l.pending > 0:
		// a process that the program has left behind would else keep every reward away, a bad one above all
		l.closing = true
		return nil, fmt.Errorf("%w: %d calls of the session are being answered; it takes no more: ask again when they have "+
			"ended", ErrHeld, l.pending)
	case next.State == sessionAborted:
		return nil, fmt.Errorf("%w: the session was aborted: %s", ErrNotHeld, next.Why)
	default:
		next.State = sessionFinished
	}
	if err := l.journal.State(next); err != nil {
		return nil, err
	}
	l.state = next
	return l.statusLocked(false), nil
}

func (l *liveSession) status(sequences bool) SessionStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statusLocked(sequences)
}

func (l *liveSession) statusLocked(sequences bool) SessionStatus {
	out := SessionStatus{ID: l.id, openedSession: l.opened, sessionState: l.state, Calls: l.tree.Len(), Pending: l.pending,
		Sampled: l.sampled, Overruled: l.overrule}
	if sequences {
		out.Sequences = l.tree.Sequences()
	}
	return out
}

// truncate notes which limit a session has reached. Its rewards still count.
func (l *liveSession) truncate(why string) error {
	if l.state.Truncated != "" {
		return nil
	}
	next := l.state
	next.Truncated = why
	if err := l.journal.State(next); err != nil {
		return err
	}
	l.state = next
	return nil
}
