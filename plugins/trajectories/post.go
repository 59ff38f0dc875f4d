package trajectories

import (
	"net/http"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
)

func (s *Server) scoredData(w http.ResponseWriter, r *http.Request) error {
	if err := s.book.admit(r.Context(), max(r.ContentLength, 0)); err != nil {
		return err
	}
	buf := s.pool.get()
	defer func() { s.pool.put(buf) }()
	if err := s.read(w, r, buf); err != nil {
		return err
	}
	g, err := buf.reader.Parse(buf.Bytes())
	if err != nil {
		s.book.count(func(c *counts) { c.reject("invalid") })
		return err
	}
	g = s.fill(r.Context(), g)
	out, err := s.book.arrive(r.Context(), []*group.Group{g})
	if err != nil {
		return err
	}
	s.show(g)
	buf = s.book.remember(g.JSON, buf)
	if out[0].buffered {
		reply(w, http.StatusOK, struct {
			Status string `json:"status"`
			Size   int    `json:"buffer_size"`
		}{"buffered", out[0].waiting})
		return nil
	}
	reply(w, http.StatusOK, map[string]string{"status": "received"})
	return nil
}

func (s *Server) scoredDataList(w http.ResponseWriter, r *http.Request) error {
	if err := s.book.admit(r.Context(), max(r.ContentLength, 0)); err != nil {
		return err
	}
	buf := s.pool.get()
	defer s.pool.put(buf)
	if err := s.read(w, r, buf); err != nil {
		return err
	}
	groups, err := buf.reader.ParseList(buf.Bytes())
	if err != nil {
		s.book.count(func(c *counts) { c.reject("invalid") })
		return err
	}
	for i := range groups {
		groups[i] = s.fill(r.Context(), groups[i])
	}
	out, err := s.book.arrive(r.Context(), groups)
	if err != nil {
		return err
	}
	for _, g := range groups {
		s.show(g)
	}
	if len(groups) > 0 {
		s.book.remember(groups[len(groups)-1].JSON, nil)
	}
	answer := struct {
		Status    string `json:"status"`
		Processed int    `json:"groups_processed"`
		Buffered  int    `json:"buffered,omitempty"`
		Last      *int   `json:"last_buffer_size,omitempty"`
	}{Status: "received", Processed: len(groups)}
	for i := range out {
		if out[i].buffered {
			answer.Buffered++
			answer.Last = &out[i].waiting
		}
	}
	reply(w, http.StatusOK, answer)
	return nil
}
