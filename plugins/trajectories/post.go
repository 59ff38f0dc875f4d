package trajectories

import (
	"net/http"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

func (s *Server) scoredData(w http.ResponseWriter, r *http.Request) error {
	buf := s.pool.get()
	defer func() { s.pool.put(buf) }()
	p, err := s.post(w, r, buf, func(body []byte) ([]*group.Group, error) {
		g, err := buf.reader.Parse(body)
		return []*group.Group{g}, err
	})
	if err != nil {
		return err
	}
	if !p.repeated {
		buf = s.state.remember(p.groups[0].JSON, buf)
		if p.arrivals[0].buffered {
			reply(w, http.StatusOK, struct {
				Status string `json:"status"`
				Size   int    `json:"buffer_size"`
			}{"buffered", p.arrivals[0].waiting})
			return nil
		}
	}
	reply(w, http.StatusOK, map[string]string{"status": "received"})
	return nil
}

func (s *Server) scoredDataList(w http.ResponseWriter, r *http.Request) error {
	buf := s.pool.get()
	defer s.pool.put(buf)
	p, err := s.post(w, r, buf, buf.reader.ParseList)
	if err != nil {
		return err
	}
	if n := len(p.groups); n > 0 && !p.repeated {
		s.state.remember(p.groups[n-1].JSON, nil)
	}
	answer := struct {
		Status    string `json:"status"`
		Processed int    `json:"groups_processed"`
		Buffered  int    `json:"buffered,omitempty"`
		Last      *int   `json:"last_buffer_size,omitempty"`
	}{Status: "received", Processed: p.count}
	for i := range p.arrivals {
		if p.arrivals[i].buffered {
			answer.Buffered++
			answer.Last = &p.arrivals[i].waiting
		}
	}
	reply(w, http.StatusOK, answer)
	return nil
}

// posted is the outcome of a post.
type posted struct {
	groups   []*group.Group // as they are stored; nil when repeated by key
	arrivals []arrival      // one for each group, unless repeated
	count    int            // of groups
	repeated bool           // it had been stored before
}

// post stores the groups of a body. When it returns without an error they are durable, and stored once.
func (s *Server) post(
	w http.ResponseWriter,
	r *http.Request,
	buf *scratch,
	parse func([]byte) ([]*group.Group, error),
) (p posted, err error) {
	ctx := r.Context()
	key, err := keyOf(r)
	if err != nil {
		return p, err
	}
	keyed, starved := key != postKey{}, false
	if !keyed || !s.state.stored(key) {
		if starved, err = s.state.admit(ctx, max(r.ContentLength, 0)); err != nil {
			return p, err
		}
	}
	held := share{of: s.memory}
	defer held.release()
	if err := s.read(w, r, buf, s.cfg.MaxBody, &held); err != nil {
		return p, err
	}
	var keys []store.Key
	if keyed {
		sum := sumOf(buf.Bytes())
		before, end, err := s.state.begin(ctx, key, sum)
		if err != nil {
			return p, err
		}
		if before != nil {
			w.Header().Set(repeatedHeader, "true")
			s.state.count(func(c *counts) { c.repeated++ })
			return posted{count: before.Groups, repeated: true}, nil
		}
		defer end()
		keys = []store.Key{{Name: key[:], Sum: sum}}
	}
	groups, err := parse(buf.Bytes())
	if err != nil {
		s.state.count(func(c *counts) { c.reject("invalid") })
		return p, err
	}
	if !keyed && s.state.settleUnanswered(groups) {
		return posted{groups: groups, count: len(groups), repeated: true}, nil
	}
	if starved && !s.state.owed(groups) {
		return p, errStarved
	}
	full := make([]*group.Group, len(groups))
	for i, g := range groups {
		if full[i], err = s.backfill(ctx, g); err != nil {
			return p, err
		}
	}
	if keyed {
		keys[0].Groups = len(groups)
	}
	span := s.tracedPost(r)
	arrivals, err := s.state.enqueue(ctx, full, keys, span)
	span.End(err)
	if err != nil {
		return p, err
	}
	for _, g := range full {
		s.show(g)
	}
	if !keyed && ctx.Err() != nil {
		s.state.noteUnanswered(digest(groups))
		panic(http.ErrAbortHandler) // no part of an answer may be sent: see unanswered
	}
	return posted{groups: full, arrivals: arrivals, count: len(groups)}, nil
}
