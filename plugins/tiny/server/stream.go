package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// chunk is one event of a stream.
type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Version int64    `json:"policy_version"`
	Choices []choice `json:"choices"`
	Prompt  []int32  `json:"prompt_token_ids,omitempty"` // chat, in the first event
	Usage   *usage   `json:"usage,omitempty"`
}

// stream answers with server-sent events, one a token, as they are drawn.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, request Request, f form, withUsage bool) error {
	// Every token fits into the channel, so the decoder never waits for a slow client.
	drawn := make(chan Progress, request.N*request.MaxTokens)
	request.Emit = func(p Progress) { drawn <- p }
	type outcome struct {
		results []Completion
		err     error
	}
	finished := make(chan outcome, 1)
	go func() {
		results, err := h.engine.Generate(r.Context(), request)
		finished <- outcome{results, err}
	}()
	s := &eventWriter{
		writer: w, form: f, sent: map[int]int{},
		chunk: chunk{ID: h.nextID(f.idPrefix()), Object: f.object(true), Created: time.Now().Unix(), Model: h.options.Model,
			Prompt: f.head()},
	}
	for {
		select {
		case p := <-drawn:
			s.progress(p)
		case end := <-finished:
			for len(drawn) > 0 {
				s.progress(<-drawn)
			}
			if end.err != nil {
				return s.fail(end.err)
			}
			if withUsage {
				s.usage(len(request.Prompt), end.results)
			}
			s.write([]byte("[DONE]"))
			return nil
		}
	}
}

// eventWriter writes a stream. Errors of writing are not looked at: the request's context ends with
// the client, and generation with it.
type eventWriter struct {
	writer  http.ResponseWriter
	form    form
	sent    map[int]int // bytes of text sent of each choice
	started bool
	chunk   chunk
}

func (s *eventWriter) progress(p Progress) {
	before, begun := s.sent[p.Index]
	ch := s.form.chunk(p, p.Text[before:], !begun)
	s.sent[p.Index] = len(p.Text)
	if p.Finish != "" {
		ch.Finish = &p.Finish
		if p.Stop != "" {
			ch.Stop = &p.Stop
		}
	}
	s.chunk.Version, s.chunk.Choices = p.Version, []choice{ch}
	s.writeJSON(s.chunk)
	s.chunk.Prompt = nil
}

func (s *eventWriter) usage(prompt int, results []Completion) {
	u := usage{Prompt: prompt}
	for _, c := range results {
		u.Completion += len(c.Tokens)
	}
	u.Total = u.Prompt + u.Completion
	s.chunk.Choices, s.chunk.Usage = []choice{}, &u
	s.writeJSON(s.chunk)
}

// fail answers with a status while there still can be one, and with an error event afterwards.
func (s *eventWriter) fail(err error) error {
	if !s.started {
		return err
	}
	kind := "server_error"
	if errors.Is(err, ErrClosed) {
		kind = "server_stopped_error"
	}
	s.writeJSON(map[string]any{"error": map[string]any{"message": err.Error(), "type": kind}})
	return nil
}

func (s *eventWriter) writeJSON(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte(`{"error":{"message":"a number could not be written as JSON","type":"server_error"}}`)
	}
	s.write(data)
}

func (s *eventWriter) write(data []byte) {
	if !s.started {
		s.started = true
		s.writer.Header().Set("Content-Type", "text/event-stream")
		s.writer.Header().Set("Cache-Control", "no-cache")
	}
	_, _ = s.writer.Write(append(append([]byte("data: "), data...), "\n\n"...))
	_ = http.NewResponseController(s.writer).Flush()
}
