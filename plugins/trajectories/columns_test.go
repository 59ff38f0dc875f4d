package trajectories

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/klauspost/compress/zstd"
)

// raw makes a request and returns the reply with its body.
func (f *fixture) raw(method, path, accept string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), method, path, nil)
	r.Host = "127.0.0.1"
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	return w
}

// table decodes an Arrow reply to what the JSON reply decodes to.
func table(t *testing.T, r io.Reader) (groups []any, columnar int, id, lease string) {
	t.Helper()
	in, err := ipc.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	about := in.Schema().Metadata()
	id, _ = about.GetValue("id")
	lease, _ = about.GetValue("lease_seconds")
	for in.Next() {
		rows := in.RecordBatch()
		for row := range int(rows.NumRows()) {
			g := map[string]any{}
			for i, field := range rows.Schema().Fields() {
				v := cell(rows.Column(i), row)
				if field.Name != "rest" {
					g[field.Name] = v
					continue
				}
				if g["tokens"] == nil {
					clear(g)
				} else {
					columnar++
				}
				if err := json.Unmarshal([]byte(v.(string)), &g); err != nil {
					t.Fatal(err)
				}
			}
			groups = append(groups, g)
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return groups, columnar, id, lease
}

func cell(a arrow.Array, row int) any {
	if a.IsNull(row) {
		return nil
	}
	switch a := a.(type) {
	case *array.List:
		from, to := a.ValueOffsets(row)
		out := []any{}
		for i := from; i < to; i++ {
			out = append(out, cell(a.ListValues(), int(i)))
		}
		return out
	case *array.Int32:
		return float64(a.Value(row))
	case *array.Float64:
		return a.Value(row)
	case *array.String:
		return a.Value(row)
	}
	panic(fmt.Sprintf("a column of %s", a.DataType()))
}

// scribe writes random groups, with everything that JSON allows.
type scribe struct{ *rand.Rand }

func (s scribe) list(n int, item func() string) string {
	space := []string{"", " ", "\n\t"}[s.IntN(3)]
	all := make([]string, n)
	for i := range all {
		all[i] = space + item() + space
	}
	return "[" + strings.Join(all, ",") + "]"
}

func (s scribe) id() string {
	switch s.IntN(40) {
	case 0:
		return fmt.Sprint(math.MaxInt32 - s.Int64N(3)) // the last that fit
	case 1:
		return []string{"0", "999999999", "1000000000"}[s.IntN(3)]
	}
	return fmt.Sprint(s.IntN(200_000))
}

func (s scribe) number() string {
	switch s.IntN(30) {
	case 0:
		return []string{"0", "-0", "1", "-0.0", "1e-320", "5e-324", "3.4028234663852886e38", "123456789012345",
			"9007199254740993", "0.1E+2", "2.2250738585072011e-308"}[s.IntN(11)]
	case 1:
		return strconv.FormatFloat(math.Float64frombits(s.Uint64()&^(1<<62)), 'g', -1, 64) // up to 2
	}
	return strconv.FormatFloat(-s.ExpFloat64(), 'g', -1, []int{32, 64}[s.IntN(2)])
}

// score is a value that a score may have.
func (s scribe) score() string {
	for {
		text := s.number()
		if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) <= 1e15 {
			return text
		}
	}
}

func (s scribe) group() string {
	n := 1 + s.IntN(4)
	lengths := make([]int, n)
	i := -1
	nested := func(item func() string, free bool) string {
		i = -1
		return s.list(n, func() string {
			i++
			if free && s.IntN(6) == 0 {
				return "[]"
			}
			return s.list(lengths[i], item)
		})
	}
	for i := range lengths {
		lengths[i] = s.IntN(12)
	}
	var ids []string
	tokens := nested(func() string { ids = append(ids, s.id()); return ids[len(ids)-1] }, false)
	masks := nested(func() string {
		id := ids[0]
		if ids = ids[1:]; s.IntN(3) == 0 {
			return "-100"
		}
		return id
	}, false)
	fields := []string{`"tokens":` + tokens, `"masks":` + masks,
		`"scores":` + s.list(n, s.score)}
	for _, name := range []string{"ref_logprobs", "inference_logprobs", "advantages"} {
		switch s.IntN(4) {
		case 0:
			fields = append(fields, `"`+name+`":`+nested(s.number, true))
		case 1:
			fields = append(fields, `"`+name+`":`+[]string{"null", "[]"}[s.IntN(2)])
		case 2:
			if name == "advantages" {
				fields = append(fields, `"advantages":`+s.list(n, func() string { return s.list(s.IntN(3), s.number) }))
			}
		}
	}
	for _, more := range []string{`"env_id":3`, `"policy_version":[1,2]`,
		`"messages":[[{"role":"user","content":"h\u00e9 \"ü\""}]]`, `"images":{"a":[1,2.50,null]}`,
		`"overrides":` + s.list(n, func() string { return `{"a":1}` }), `"generation_params":{"temperature":1.0}`,
		`"distill_token_ids":null`,
		`"distill_logprobs":` + s.list(n, func() string { return "[[-1.5],[]]" }), `"unknown":[1]`, `"scores\u0031":2`} {
		if s.IntN(3) == 0 {
			fields = append(fields, more)
		}
	}
	s.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ",") + "}"
}

func decodeGroups(t *testing.T, text []byte) []any {
	t.Helper()
	var out struct{ Batch []any }
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out.Batch
}

// A trainer that reads columns gets the same data as one that reads JSON, whatever a group holds.
//
//docs:trajectories.md Faster than JSON
func TestColumnsSayWhatTheJSONSays(t *testing.T) {
	t.Parallel()
	rng := scribe{rand.New(rand.NewPCG(11, 12))}
	columnar, all := 0, 0
	for range 60 {
		f := newFixture(t, Config{})
		var bodies []string
		size := 0
		for range 1 + rng.IntN(6) {
			body := rng.group()
			bodies = append(bodies, body)
			var g struct{ Scores []any }
			if err := json.Unmarshal([]byte(body), &g); err != nil {
				t.Fatal(err)
			}
			size += len(g.Scores)
		}
		f.trainer(size)
		for _, body := range bodies {
			if code, out := f.call("POST", "/scored_data", body); code != 200 {
				t.Fatalf("%s is answered with %d %v", body, code, out)
			}
		}
		lease := f.raw("GET", "/batch?lease=90s", "application/json, */*")
		want := decodeGroups(t, lease.Body.Bytes())
		var about struct{ ID string }
		if err := json.Unmarshal(lease.Body.Bytes(), &about); err != nil || len(want) != len(bodies) {
			t.Fatal(len(want), err)
		}
		f.ok("POST", "/batch/"+about.ID+"/release", "")
		reply := f.raw("GET", "/batch?lease=90s", "application/json;q=0.5, application/vnd.apache.arrow.stream")
		if kind := reply.Header().Get("Content-Type"); kind != "application/vnd.apache.arrow.stream" {
			t.Fatalf("the reply is %s", kind)
		}
		got, n, id, seconds := table(t, reply.Body)
		if seconds != "90" || !strings.HasPrefix(id, about.ID[:strings.LastIndex(about.ID, "-")]) {
			t.Errorf("leased as %q for %q s", id, seconds)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("group %d is\n%v\nand in JSON\n%v\nfrom %s", i, got[i], want[i], bodies[i])
			}
		}
		columnar, all = columnar+n, all+len(got)
		f.ok("POST", "/batch/"+id+"/ack", "")
		empty := f.raw("GET", "/batch", "application/vnd.apache.arrow.stream")
		equal(t, "no batch", empty.Body.String(), `{"batch":null}`)
	}
	if columnar < all/4 || columnar == all {
		t.Errorf("%d of %d groups came in columns: the test tests only one of both forms", columnar, all)
	}
}

// A long batch is sent in several pieces, compressed for a remote trainer; without a lease it has no id.
func TestColumnsOfALongBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{Compression: "always"})
	f.trainer(400)
	for i := range 100 {
		f.post(i, 4, `,"images":"`+strings.Repeat("x", 30_000)+`"`)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/batch", nil)
	r.Header.Set("Accept", "application/vnd.apache.arrow.stream")
	r.Header.Set("Accept-Encoding", "zstd")
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	z, err := zstd.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	groups, columnar, id, _ := table(t, z)
	if len(groups) != 100 || columnar != 100 || id != "" || w.Header().Get("Content-Encoding") != "zstd" {
		t.Fatalf("%d groups, id %q, encoding %q", len(groups), id, w.Header().Get("Content-Encoding"))
	}
	for i, g := range groups {
		equal(t, "a token", g.(map[string]any)["tokens"], fmt.Sprintf("[[%d] [%d] [%d] [%d]]", i, i, i, i))
	}
}

func TestBodiesMayBeZstd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxBody: 1 << 20})
	f.trainer(2)
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	pack := func(text string) string {
		b.Reset()
		z.Reset(&b)
		_, _ = io.WriteString(z, text)
		_ = z.Close()
		return b.String()
	}
	good := pack(groupText(5, 2, ""))
	for _, c := range []struct {
		body string
		code int
	}{{good, 200}, {good[:len(good)-3], 400}, {"no zstd", 400}, {pack(strings.Repeat(" ", 2<<20)), 413}, {pack("{"), 422},
		{good, 200}} {
		if code, out := f.call("POST", "/scored_data", c.body, "Content-Encoding", "zstd"); code != c.code {
			t.Errorf("a body of %d bytes is answered with %d %v, expected %d", len(c.body), code, out, c.code)
		}
	}
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{5})
}
