package trajectories

import (
	"cmp"
	"crypto/rand"
	"errors"
	"math/big"
	"net/http"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
)

// routes is the whole contract. openapi.go describes each, and a test compares the two.
func (s *Server) routes() map[string]map[string]route {
	get := func(h func(http.ResponseWriter, *http.Request) error) map[string]route {
		return map[string]route{http.MethodGet: {handle: h}}
	}
	post := func(h func(http.ResponseWriter, *http.Request) error) map[string]route {
		return map[string]route{http.MethodPost: {handle: h}}
	}
	return map[string]map[string]route{
		"/":                   {http.MethodGet: {handle: s.root, open: true}},
		"/register":           post(s.register),
		"/info":               get(s.info),
		"/wandb_info":         get(s.wandbInfo),
		"/status":             get(s.status),
		"/register-env":       post(s.registerEnv),
		"/disconnect-env":     post(s.disconnectEnv),
		"/status-env":         get(s.statusEnv),
		"/scored_data":        post(s.scoredData),
		"/scored_data_list":   post(s.scoredDataList),
		"/batch":              get(notBrowsers(s.batch)),
		"/batch/{id}/ack":     post(s.ackBatch),
		"/batch/{id}/release": post(s.releaseBatch),
		"/batch/{id}/trained": post(s.trainedBatch),
		"/latest_example":     get(s.latestExample),
		"/reset_data": {
			http.MethodGet:  {handle: notBrowsers(s.resetData), admin: true},
			http.MethodPost: {handle: s.resetData, admin: true},
		},
		"/metrics":        get(s.metrics),
		"/groups":         get(s.listGroups),
		"/groups/{id}":    get(s.showGroup),
		"/environments":   get(s.environments),
		"/tail":           get(s.tail),
		"/openapi.json":   {http.MethodGet: {handle: s.openAPI, open: true}},
		"/policy_version": {http.MethodPost: {handle: s.setPolicyVersion}, http.MethodGet: {handle: s.policyVersion}},
	}
}

func (s *Server) root(w http.ResponseWriter, _ *http.Request) error {
	reply(w, http.StatusOK, map[string]string{"message": "AtroposLib API"})
	return nil
}

// maxForm bounds the bodies of all routes but those that take groups.
const maxForm = 1 << 20

// form reads a small JSON object.
func (s *Server) form(w http.ResponseWriter, r *http.Request) (*group.Form, error) {
	buf := s.pool.get()
	defer s.pool.put(buf)
	held := share{of: s.memory}
	defer held.release()
	if err := s.read(w, r, buf, maxForm, &held); err != nil {
		return nil, err
	}
	return group.ParseForm(append([]byte(nil), buf.Bytes()...)) // the form outlives the buffer
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) error {
	f, err := s.form(w, r)
	if err != nil {
		return err
	}
	reg := registration{
		Group:     f.String("wandb_group"),
		BatchSize: f.Int32("batch_size", 1),
		NumSteps:  f.Int("num_steps", -1<<62),
	}
	maxTokenLen, checkpoints := f.Int("max_token_len", -1<<62), f.String("checkpoint_dir")
	// run-api requires these three, and many clients were written from a description that does not mention them.
	starting := int64(0)
	if f.Has("wandb_project") {
		reg.Project = f.String("wandb_project")
	}
	if f.Has("save_checkpoint_interval") {
		reg.SaveInterval = f.Int("save_checkpoint_interval", -1<<62)
	}
	if f.Has("starting_step") {
		starting = f.Int("starting_step", -1<<62)
	}
	if f.Has("rollout_parts") {
		reg.RolloutParts = f.Bool("rollout_parts")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if err := s.state.register(r.Context(), reg, starting, maxTokenLen, checkpoints); err != nil {
		return err
	}
	id, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, map[string]*big.Int{"uuid": id})
	return nil
}

func (s *Server) info(w http.ResponseWriter, _ *http.Request) error {
	out := struct {
		BatchSize   int64 `json:"batch_size"`
		MaxTokenLen int64 `json:"max_token_len"`
		// Absent unless the trainer has it, as in run-api.
		RolloutParts bool `json:"rollout_parts,omitempty"`
	}{-1, -1, false}
	b := s.state
	b.mu.Lock()
	out.MaxTokenLen = b.doc.MaxTokenLen
	if b.doc.Trainer != nil {
		out.BatchSize, out.RolloutParts = b.doc.Trainer.BatchSize, b.doc.Trainer.RolloutParts
	}
	b.mu.Unlock()
	reply(w, http.StatusOK, out)
	return nil
}

func (s *Server) wandbInfo(w http.ResponseWriter, _ *http.Request) error {
	var out struct {
		Group   *string `json:"group"`
		Project *string `json:"project"`
	}
	b := s.state
	b.mu.Lock()
	if t := b.doc.Trainer; t != nil {
		group, project := t.Group, t.Project
		out.Group, out.Project = &group, &project
	}
	b.mu.Unlock()
	reply(w, http.StatusOK, out)
	return nil
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	var out struct {
		CurrentStep int64 `json:"current_step"`
		QueueSize   int   `json:"queue_size"`
	}
	b := s.state
	b.mu.Lock()
	out.CurrentStep, out.QueueSize = b.doc.Step, b.queue.Total().Groups
	b.mu.Unlock()
	reply(w, http.StatusOK, out)
	return nil
}

func (s *Server) registerEnv(w http.ResponseWriter, r *http.Request) error {
	f, err := s.form(w, r)
	if err != nil {
		return err
	}
	e := environment{MaxTokens: f.Int("max_token_length", -1<<62), Name: f.String("desired_name"),
		Weight: f.Float("weight"), GroupSize: f.Int32("group_size", 1)}
	if f.Has("min_batch_allocation") {
		least := f.Float("min_batch_allocation")
		e.Minimum = &least
	}
	if err := f.Err(); err != nil {
		return err
	}
	welcome, err := s.state.registerEnv(r.Context(), e)
	switch {
	case err != nil:
		return err
	case welcome == nil:
		reply(w, http.StatusOK, map[string]string{"status": "wait for trainer to start"})
	default:
		reply(w, http.StatusOK, welcome)
	}
	return nil
}

// envID reads which environment a request is about.
func (s *Server) envID(w http.ResponseWriter, r *http.Request) (int64, error) {
	f, err := s.form(w, r)
	if err != nil {
		return 0, err
	}
	id := f.Int("env_id", 0)
	return id, f.Err()
}

func (s *Server) disconnectEnv(w http.ResponseWriter, r *http.Request) error {
	id, err := s.envID(w, r)
	if err != nil {
		return err
	}
	ok, err := s.state.disconnectEnv(r.Context(), id)
	switch {
	case err != nil:
		return err
	case !ok:
		reply(w, http.StatusOK, map[string]string{"status": "failure", "error": "list index out of range"})
	default:
		reply(w, http.StatusOK, map[string]string{"status": "success"})
	}
	return nil
}

func (s *Server) statusEnv(w http.ResponseWriter, r *http.Request) error {
	id, err := s.envID(w, r)
	if err != nil {
		return err
	}
	status, ok := s.state.statusOf(id)
	if !ok {
		return &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"body", "env_id"}, Input: id,
			Msg: "No environment is registered under this id: call /register-env first"}}}
	}
	reply(w, http.StatusOK, status)
	return nil
}

func (s *Server) latestExample(w http.ResponseWriter, r *http.Request) error {
	b := s.state
	b.mu.Lock()
	size := len(b.latest.json)
	b.mu.Unlock()
	done, err := s.memory.acquire(r.Context(), int64(size))
	if err != nil {
		return err
	}
	defer done()
	b.mu.Lock()
	latest := append([]byte(nil), b.latest.json...)
	b.mu.Unlock()
	if len(latest) == 0 {
		latest = []byte(
			`{"tokens":[],"masks":[],"scores":[],"advantages":[],"ref_logprobs":[],"generation_params":[],"inference_logprobs":[],"messages":[],"images":[]}`,
		)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(latest)))
	_, _ = w.Write(latest)
	return nil
}

func (s *Server) resetData(w http.ResponseWriter, r *http.Request) error {
	if err := s.state.reset(r.Context()); err != nil {
		return err
	}
	text(w, http.StatusOK, "Reset successful")
	return nil
}

func (s *Server) setPolicyVersion(w http.ResponseWriter, r *http.Request) error {
	f, err := s.form(w, r)
	if err != nil {
		return err
	}
	version := f.Int("version", 0)
	var stalest *int64
	if f.Has("max_staleness") {
		limit := f.Int("max_staleness", 0)
		stalest = &limit
	}
	inFlight := ""
	if f.Has("in_flight") {
		inFlight = f.String("in_flight")
	}
	if err := f.Err(); err != nil {
		return err
	}
	if err := s.state.setVersion(r.Context(), version, stalest, inFlight); err != nil {
		return err
	}
	return s.policyVersion(w, r)
}

func (s *Server) policyVersion(w http.ResponseWriter, _ *http.Request) error {
	b := s.state
	b.mu.Lock()
	answer := map[string]any{"version": b.doc.Version, "trainer_waits": !b.watch.wanting.IsZero()}
	if limit := b.staleness(); limit >= 0 {
		answer["max_staleness"] = limit
	}
	if b.doc.Keeps {
		answer["in_flight"] = sdksync.Keep
	}
	b.mu.Unlock()
	reply(w, http.StatusOK, answer)
	return nil
}

func (s *Server) ackBatch(w http.ResponseWriter, r *http.Request) error {
	repeated, err := s.state.ack(r.Context(), r.PathValue("id"))
	if err != nil {
		return leaseError(err)
	}
	reply(w, http.StatusOK, map[string]any{"status": "success", "repeated": repeated})
	return nil
}

func (s *Server) releaseBatch(w http.ResponseWriter, r *http.Request) error {
	if err := s.state.giveBack(r.PathValue("id")); err != nil {
		return leaseError(err)
	}
	reply(w, http.StatusOK, map[string]string{"status": "success"})
	return nil
}

func leaseError(err error) error {
	switch {
	case errors.Is(err, errLeaseUnknown):
		return &refusal{code: http.StatusNotFound, message: err.Error()}
	case errors.Is(err, errLeaseLost), errors.Is(err, errLeaseStale):
		return &refusal{code: http.StatusConflict, message: err.Error()}
	}
	return err
}

// leaseOf reads ?lease=120s, or ?lease=120 in seconds, and &early=true.
func leaseOf(r *http.Request) (lease time.Duration, early bool, err error) {
	query := r.URL.Query()
	given, when := query.Get("lease"), query.Get("early")
	if early, err = strconv.ParseBool(cmp.Or(when, "false")); err != nil || early && given == "" {
		return 0, false, &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"query", "early"},
			Input: when, Msg: "early must be true or false, and true needs a lease"}}}
	}
	if given == "" {
		return 0, false, nil
	}
	lease, err = time.ParseDuration(given)
	if seconds, err2 := strconv.ParseFloat(given, 64); err2 == nil {
		lease, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || lease < time.Second || lease > 24*time.Hour {
		return 0, false, &group.Invalid{Details: []group.Detail{{Type: "value_error", Loc: []any{"query", "lease"},
			Input: given, Msg: "lease must be a duration between 1s and 24h, such as 120s"}}}
	}
	return lease, early, nil
}
