package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
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

// liveSession is a session in memory.
type liveSession struct {
	id string

	mu       sync.Mutex
	opened   session.Stored
	state    session.State
	tree     *session.Tree
	journal  *session.Journal
	bodies   *semaphore.Weighted // bytes of its requests, sessionBodies at a time
	busy     int                 // requests, pending calls and those that are no calls yet
	pending  int                 // calls that are being answered
	reserved reservation         // of them
	settled  chan struct{}       // closed when a reservation ends; nil: no call waits for one
	closing  bool                // its owner waits for the pending calls to end it
	sampled  int                 // tokens
	rendered int                 // tokens that engines have made of messages, of refused calls, too
	overrule int                 // parameters of the program that were overruled
}

// sessions are those of a gateway.
type sessions struct {
	keys   session.Keys
	folder string // of the journals; empty: sessions are refused

	// parsing has a place for each body that is decoded: that takes many times the memory of the body.
	parsing chan struct{}
	// rendering has maxRendering bytes of messages that engines are making tokens of.
	rendering *semaphore.Weighted

	mu   sync.Mutex
	byID map[string]*liveSession
}

// What bounds the memory and the disk that sessions take, whatever a program does.
const (
	maxSessions      = 16384
	maxTurns         = 1024     // calls of a session
	maxSessionText   = 64 << 20 // bytes of the messages of all calls, as maxSessionTokens counts tokens
	maxSessionTokens = 8 << 20  // of all calls of a session, prompts that were rendered anew each time included
	maxSessionCalls  = 64       // requests of a session at a time
	maxSessionBody   = 16 << 20
	sessionBodies    = 2 * maxSessionBody // of a session at a time
	maxRendering     = 32 << 20
	maxRendered      = 256 << 20 // tokens that engines make of a session's messages, which takes minutes of a processor
	maxModelName     = 512       // bytes; answers repeat the name
)

// sessionFormat is the version of the journals.
const sessionFormat = 1

// sessionName is what sessions are called: rand.Text.
var sessionName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

func newSessions(folder, secret string) *sessions {
	return &sessions{keys: session.NewKeys(secret), folder: folder, byID: map[string]*liveSession{},
		parsing: make(chan struct{}, runtime.GOMAXPROCS(0)), rendering: semaphore.NewWeighted(maxRendering)}
}

func (s *sessions) path(id string) string { return filepath.Join(s.folder, id+".jsonl") }

// open begins a session.
func (s *sessions) open(q session.Open, now time.Time) (*liveSession, error) {
	if s.folder == "" {
		return nil, errors.New("this gateway keeps no sessions: it was started without a folder for them")
	}
	if err := q.Check(); err != nil {
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
	l := &liveSession{id: rand.Text(), opened: session.Stored{Format: sessionFormat, Open: q, Opened: now},
		state: session.State{State: session.StateOpen}, tree: &session.Tree{}, bodies: semaphore.NewWeighted(sessionBodies)}
	var err error
	if l.journal, err = session.Create(s.path(l.id), l.opened); err != nil {
		return nil, err
	}
	s.byID[l.id] = l
	return l, nil
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
	l := &liveSession{id: id, state: session.State{State: session.StateOpen},
		bodies: semaphore.NewWeighted(sessionBodies)}
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
	// Sequences repeat the calls that they have in common.
	if l.tree.Len() > maxTurns+maxSessionCalls || l.tree.Size() > 2*maxSessionTokens {
		return nil, errors.Join(fmt.Errorf("the journal of session %s holds %d calls of %d tokens together, more than "+
			"recipe writes", id, l.tree.Len(), l.tree.Size()), l.journal.Close())
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
	l.state.State = session.StateAborted
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
		var q session.Open
		if err := decode(body, &q); err != nil {
			return nil, err
		}
		l, err := g.sessions.open(q, now)
		if err != nil {
			return nil, err
		}
		return session.Opened{ID: l.id, Key: g.sessions.keys.Key(l.id), BaseURL: g.URL() + "/v1"}, nil
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
	if err := session.CheckMetrics(q.Metrics); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
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
		next.State, next.Why = session.StateAborted, q.Why
	case l.pending > 0:
		// a process that the program has left behind would else keep every reward away, a bad one above all
		l.closing = true
		return nil, fmt.Errorf("%w: %d calls of the session are being answered; it takes no more: ask again when they have "+
			"ended", ErrHeld, l.pending)
	case next.State == session.StateAborted:
		return nil, fmt.Errorf("%w: the session was aborted: %s", ErrNotHeld, next.Why)
	default:
		next.State = session.StateFinished
	}
	if err := l.journal.State(next); err != nil {
		return nil, err
	}
	l.state = next
	return l.statusLocked(false), nil
}

func (l *liveSession) status(sequences bool) session.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statusLocked(sequences)
}

func (l *liveSession) statusLocked(sequences bool) session.Status {
	out := session.Status{ID: l.id, Stored: l.opened, State: l.state, Calls: l.tree.Len(), Pending: l.pending,
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
