package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/parquet-go/parquet-go"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/plugins/trajectories"
)

// ExportOptions are the flags of `recipe trajectories export`.
type ExportOptions struct {
	Target
	Format string // "jsonl" (default; what replay reads) or "parquet" (one row a sequence)
	Follow bool   // after the stored groups, continue with those that arrive, until interrupted
	Limit  int    // at most so many groups; 0 means all
}

// sink takes exported groups.
type sink interface {
	write(id uint64, env string, text json.RawMessage) error
	close() error
}

// Export writes the stored groups to out and says how many there were.
func Export(ctx context.Context, o ExportOptions, out io.Writer) (groups int, err error) {
	var to sink
	switch o.Format {
	case "", "jsonl":
		to = &lineSink{bufio.NewWriter(out)}
	case "parquet":
		to = &parquetSink{w: parquet.NewGenericWriter[Row](out)}
	default:
		return 0, fmt.Errorf("the export format is %q, expected jsonl or parquet", o.Format)
	}
	s, err := o.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.close() }()
	done := fmt.Errorf("the limit is reached")
	err = s.each(ctx, func(g trajectories.Summary, text json.RawMessage) error {
		if o.Limit > 0 && groups >= o.Limit {
			return done
		}
		groups++
		return to.write(g.ID, g.Env, text)
	})
	if err != nil && err != done { //nolint:errorlint // compared with itself
		return groups, err
	}
	if o.Follow {
		if err := s.follow(ctx, o, to, &groups); err != nil {
			return groups, err
		}
	}
	return groups, to.close()
}

func (s *source) follow(ctx context.Context, o ExportOptions, to sink, groups *int) error {
	body, err := s.send(ctx, http.MethodGet, "/tail", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewReader(body)
	for o.Limit == 0 || *groups < o.Limit {
		line, err := bounded.Line(lines, s.most)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the trajectory API ended the stream of arrivals: %w", err)
		}
		var a trajectories.Arrival
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("reading an arrival: %w", err)
		}
		*groups++
		if err := to.write(0, a.Env, a.Group); err != nil {
			return err
		}
	}
	return nil
}

// lineSink writes one group a line, as the server delivers it.
type lineSink struct{ w *bufio.Writer }

func (l *lineSink) write(_ uint64, _ string, text json.RawMessage) error {
	if _, err := l.w.Write(flat(text)); err != nil {
		return fmt.Errorf("writing a group: %w", err)
	}
	if err := l.w.WriteByte('\n'); err != nil {
		return fmt.Errorf("writing a group: %w", err)
	}
	return nil
}

// flat puts JSON on one line. A line break inside a string is always written as an escape.
func flat(text json.RawMessage) []byte {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return text
}

func (l *lineSink) close() error { return l.w.Flush() }

// Row is one sequence in an exported Parquet file.
type Row struct {
	Group             int64     `parquet:"group"` // the group's id; 0 for groups that were exported as they arrived
	Index             int32     `parquet:"index"` // of the sequence in its group
	Env               string    `parquet:"env,dict"`
	Score             float64   `parquet:"score"`
	MinVersion        int64     `parquet:"min_version"` // -1 when unknown
	MaxVersion        int64     `parquet:"max_version"`
	Tokens            []int64   `parquet:"tokens,list"`
	Masks             []int64   `parquet:"masks,list"`
	InferenceLogprobs []float64 `parquet:"inference_logprobs,list"`
	Advantages        []float64 `parquet:"advantages,list"`
	Messages          string    `parquet:"messages"` // JSON, empty when there were none
}

// exported is a group as a Parquet export reads it.
type exported struct {
	Tokens            [][]int64         `json:"tokens"`
	Masks             [][]int64         `json:"masks"`
	Scores            []float64         `json:"scores"`
	InferenceLogprobs [][]float64       `json:"inference_logprobs"`
	Advantages        [][]float64       `json:"advantages"`
	Messages          []json.RawMessage `json:"messages"`
	PolicyVersion     json.RawMessage   `json:"policy_version"`
}

type parquetSink struct {
	w *parquet.GenericWriter[Row]
}

func (p *parquetSink) write(id uint64, env string, text json.RawMessage) error {
	var g exported
	if err := json.Unmarshal(text, &g); err != nil {
		return fmt.Errorf("reading group %d: %w", id, err)
	}
	oldest, newest := int64(-1), int64(-1)
	if g.PolicyVersion != nil {
		var list []int64
		if json.Unmarshal(g.PolicyVersion, &oldest) == nil {
			newest = oldest
		} else if json.Unmarshal(g.PolicyVersion, &list) == nil && len(list) > 0 {
			oldest, newest = list[0], list[len(list)-1]
		}
	}
	rows := make([]Row, len(g.Tokens))
	for i := range rows {
		rows[i] = Row{
			Group:      int64(id),
			Index:      int32(i),
			Env:        env,
			Score:      at(g.Scores, i),
			MinVersion: oldest,
			MaxVersion: newest,
			Tokens: at(
				g.Tokens,
				i,
			),
			Masks:             at(g.Masks, i),
			InferenceLogprobs: at(g.InferenceLogprobs, i),
			Advantages:        at(g.Advantages, i),
			Messages:          string(at(g.Messages, i)),
		}
	}
	if _, err := p.w.Write(rows); err != nil {
		return fmt.Errorf("writing group %d: %w", id, err)
	}
	return nil
}

func (p *parquetSink) close() error { return p.w.Close() }

// at is an element, or the zero value where there is none.
func at[T any](list []T, i int) (v T) {
	if i < len(list) {
		return list[i]
	}
	return v
}
