package trajectories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/plugins/trajectories/columns"
)

// batch hands out the next batch: GET /batch as run-api does it, GET /batch?lease=120s with an acknowledgement, and
// with early=true in addition while its trainer trains on the one before.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) error {
	lease, early, err := leaseOf(r)
	if err != nil {
		return err
	}
	out, id, err := s.state.lease(r.Context(), lease, early)
	switch {
	case errors.Is(err, errUnregistered):
		reply(w, http.StatusOK, struct {
			Status  string `json:"status"`
			Message string `json:"message"`
			Batch   []int  `json:"batch"`
		}{"error", err.Error(), []int{}})
		return nil
	case errors.Is(err, errNoBatch):
		reply(w, http.StatusOK, map[string]any{"batch": nil})
		return nil
	case err != nil:
		return err
	}
	err = s.send(w, r, out, id)
	var after error
	var lost *unreadable
	switch {
	case errors.As(err, &lost) && !errors.Is(err, context.Canceled):
		after = s.state.damaged(r.Context(), out, lost.id, err)
	case lease == 0:
		after = s.state.delivered(r.Context(), out, err == nil)
	case err != nil:
		after = s.state.giveBack(id)
	}
	if after != nil {
		s.cfg.Log.Error("a batch may be delivered again after a restart", "error", after)
	}
	if errors.Is(err, errBusy) {
		return err // nothing was sent yet
	}
	if err != nil {
		s.cfg.Log.Warn("a batch did not reach its trainer and goes to the next caller", "error", err)
		panic(http.ErrAbortHandler) // a part of the reply has been sent: only a broken connection signals the failure
	}
	return nil
}

// unreadable is a group of a batch whose body the store cannot give.
type unreadable struct {
	id  uint64
	err error
}

func (e *unreadable) Error() string { return fmt.Sprintf("reading group %d back: %v", e.id, e.err) }
func (e *unreadable) Unwrap() error { return e.err }

// send writes a batch, compressed if that pays.
func (s *Server) send(w http.ResponseWriter, r *http.Request, out *batch, id string) (err error) {
	write, each := s.splice, int64(1)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Add("Vary", "Accept")
	if acceptsColumns(r) {
		write, each = s.columns, 8 // in columns, two digits and a comma become eight bytes, twice
		w.Header().Set("Content-Type", columns.ContentType)
	}
	length, longest := int64(0), int64(0)
	for i := range out.items {
		length += out.items[i].Bytes
		longest = max(longest, out.items[i].Bytes)
	}
	done, err := s.memory.acquire(r.Context(), each*longest)
	if err != nil {
		return err
	}
	defer done()
	if name := s.choose(r); name != "" && length >= compressAbove {
		z, done, err := s.encoders.encode(name, w)
		if err != nil {
			return fmt.Errorf("sending a batch: %w", err)
		}
		w.Header().Set("Content-Encoding", name)
		w.Header().Add("Vary", "Accept-Encoding")
		if err := write(z, w, r, out, id, 0); err != nil {
			return err
		}
		err = z.Close()
		done()
		if err != nil {
			return fmt.Errorf("sending a batch: %w", err)
		}
	} else if err := write(w, w, r, out, id, length); err != nil {
		return err
	}
	if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("sending a batch: %w", err)
	}
	return nil
}

// compressAbove is the size from which replies are compressed, as run-api does it.
const compressAbove = 1000

// splice writes the stored bodies as they are, with commas between them. length is that of the bodies where the length
// of the reply is known, and 0 otherwise.
func (s *Server) splice(
	body io.Writer,
	w http.ResponseWriter,
	r *http.Request,
	out *batch,
	id string,
	length int64,
) error {
	const head = `{"batch":[`
	tail := "]}"
	if id != "" {
		tail = fmt.Sprintf(`],"id":%q,"lease_seconds":%g}`, id, out.lease.Seconds())
	}
	if length > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length+int64(len(head)+len(tail)+len(out.items)-1), 10))
	}
	buf := s.pool.get()
	defer s.pool.put(buf)
	before := head
	for i := range out.items {
		buf.Reset()
		buf.Grow(int(out.items[i].Bytes) + len(head))
		text, err := s.state.store.Body(r.Context(), out.items[i].ID, append(buf.AvailableBuffer(), before...))
		if err != nil {
			return &unreadable{out.items[i].ID, err}
		}
		if _, err := body.Write(text); err != nil {
			return fmt.Errorf("sending a batch: %w", err)
		}
		before = ","
	}
	if _, err := io.WriteString(body, tail); err != nil {
		return fmt.Errorf("sending a batch: %w", err)
	}
	return nil
}

// acceptsColumns reports whether a client asks for an Arrow stream by name; */* means JSON.
func acceptsColumns(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, weight, _ := strings.Cut(part, ";")
		if strings.TrimSpace(kind) == columns.ContentType && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// columns writes the stored groups as an Arrow stream.
func (s *Server) columns(
	body io.Writer,
	_ http.ResponseWriter,
	r *http.Request,
	out *batch,
	id string,
	_ int64,
) error {
	about := map[string]string{}
	if id != "" {
		about["id"], about["lease_seconds"] = id, strconv.FormatFloat(out.lease.Seconds(), 'g', -1, 64)
	}
	stream := columns.NewWriter(body, about)
	buf := s.pool.get()
	defer s.pool.put(buf)
	for i := range out.items {
		buf.Reset()
		buf.Grow(int(out.items[i].Bytes))
		text, err := s.state.store.Body(r.Context(), out.items[i].ID, buf.AvailableBuffer())
		if err == nil {
			err = stream.Write(text)
		} else {
			err = &unreadable{out.items[i].ID, err}
		}
		if err != nil {
			return errors.Join(err, stream.Close())
		}
	}
	return stream.Close()
}
