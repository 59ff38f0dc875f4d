// Package trace makes the spans of a rollout's trace: W3C trace contexts that travel in the header traceparent, and
// what a block reports of its part. The engine exports spans over OTLP; nothing here sends any.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Header carries a Context in HTTP requests (W3C Trace Context).
const Header = "traceparent"

// The variables with which a block is told to trace. OpenTelemetry defines them.
const (
	SamplerVariable    = "OTEL_TRACES_SAMPLER"
	SamplerArgVariable = "OTEL_TRACES_SAMPLER_ARG"
	ContentVariable    = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
	Sampler            = "parentbased_traceidratio" // the value of SamplerVariable
)

// Context names a span: a trace, and one of its spans.
type Context struct {
	TraceID, SpanID string // 32 and 16 hexadecimal digits
	Sampled         bool   // the spans of the trace are recorded
}

// New begins a trace.
func New(sampled bool) Context {
	return Context{TraceID: random(16), SpanID: random(8), Sampled: sampled}
}

// Child names a new span of the same trace.
func (c Context) Child() Context {
	c.SpanID = random(8)
	return c
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// String is the context as the value of Header.
func (c Context) String() string {
	flags := "00"
	if c.Sampled {
		flags = "01"
	}
	return "00-" + c.TraceID + "-" + c.SpanID + "-" + flags
}

// Parse reads the value of Header; ok is false when it is none.
func Parse(header string) (c Context, ok bool) {
	parts := strings.Split(header, "-")
	if len(parts) < 4 || !isHex(parts[0], 2) || parts[0] == "ff" || parts[0] == "00" && len(parts) > 4 ||
		!isHex(parts[1], 32) || !isHex(parts[2], 16) || !isHex(parts[3], 2) ||
		strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return Context{}, false
	}
	flags, _ := strconv.ParseUint(parts[3], 16, 8)
	return Context{parts[1], parts[2], flags&1 == 1}, true
}

// Valid reports whether a text is a value of Header.
func Valid(header string) bool {
	_, ok := Parse(header)
	return ok
}

// isHex reports whether a text is that many lower-case hexadecimal digits.
func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// Span is one span that has ended.
type Span struct {
	Context
	ParentID     string // span id; empty: the root of the trace
	Name         string
	Began, Ended time.Time
	Error        string // empty: it succeeded
	Attributes   map[string]string
	Numbers      map[string]float64
}

// Recorder begins the traces of one block. Its methods may be called on nil, which traces nothing.
type Recorder struct {
	ratio  float64
	report func(Span)
	// Content reports that spans may have prompts and completions.
	Content bool
}

// NewRecorder returns a recorder that passes spans to report, as a block's environment variables say; nil: the run is
// not traced.
func NewRecorder(environment map[string]string, report func(Span)) *Recorder {
	ratio, err := strconv.ParseFloat(environment[SamplerArgVariable], 64)
	if environment[SamplerVariable] != Sampler || err != nil {
		return nil
	}
	return &Recorder{ratio: ratio, report: report, Content: environment[ContentVariable] == "true"}
}

// New begins a trace, which is sampled or not; ok is false when the run is not traced.
func (r *Recorder) New() (c Context, ok bool) {
	if r == nil {
		return Context{}, false
	}
	return New(mathrand.Float64() < r.ratio), true //nolint:gosec // no secret
}

// Report records a span, if its trace is sampled.
func (r *Recorder) Report(s Span) {
	if r != nil && s.Sampled {
		r.report(s)
	}
}

// Begin begins a child of the context that a request carries in Header; nil when the run or the request is not traced.
func (r *Recorder) Begin(header, name string) *Ongoing {
	if r == nil {
		return nil
	}
	parent, ok := Parse(header)
	if !ok || !parent.Sampled {
		return nil
	}
	return r.begin(parent.Child(), parent.SpanID, name)
}

func (r *Recorder) begin(c Context, parent, name string) *Ongoing {
	return &Ongoing{recorder: r, span: Span{Context: c, ParentID: parent, Name: name, Began: time.Now(),
		Attributes: map[string]string{}, Numbers: map[string]float64{}}}
}

// Root begins a trace as New does, and its first span. The returned context carries the trace for Start and Inject; the
// span is nil when the trace is not sampled.
func (r *Recorder) Root(ctx context.Context, name string) (context.Context, *Ongoing) {
	c, ok := r.New()
	if !ok {
		return ctx, nil
	}
	o := r.begin(c, "", name)
	ctx = context.WithValue(ctx, key{}, o)
	if !c.Sampled {
		return ctx, nil
	}
	return ctx, o
}

type key struct{}

// Start begins a child of the span that ctx carries; nil when that is not traced.
func Start(ctx context.Context, name string) *Ongoing {
	parent, _ := ctx.Value(key{}).(*Ongoing)
	if parent == nil || !parent.span.Sampled {
		return nil
	}
	return parent.Start(name)
}

// Start begins a child of the span.
func (o *Ongoing) Start(name string) *Ongoing {
	if o == nil {
		return nil
	}
	return o.recorder.begin(o.span.Child(), o.span.SpanID, name)
}

// Carry returns ctx with the trace that from carries.
func Carry(from, ctx context.Context) context.Context {
	if o := from.Value(key{}); o != nil {
		return context.WithValue(ctx, key{}, o)
	}
	return ctx
}

// Inject sets Header to the context that ctx carries, if any.
func Inject(ctx context.Context, set func(name, value string)) {
	if parent, _ := ctx.Value(key{}).(*Ongoing); parent != nil {
		set(Header, parent.span.Context.String())
	}
}

// Ongoing is a span that has not ended. Its methods may be called on nil; one goroutine at a time may use it.
type Ongoing struct {
	recorder *Recorder
	span     Span
}

// Context is the span's own; false when nothing is traced.
func (o *Ongoing) Context() (Context, bool) {
	if o == nil {
		return Context{}, false
	}
	return o.span.Context, true
}

// Set adds an attribute.
func (o *Ongoing) Set(name, value string) {
	if o != nil {
		o.span.Attributes[name] = value
	}
}

// SetNumber adds an attribute that is a number.
func (o *Ongoing) SetNumber(name string, value float64) {
	if o != nil {
		o.span.Numbers[name] = value
	}
}

// Content reports whether the span may have prompts and completions.
func (o *Ongoing) Content() bool { return o != nil && o.recorder.Content }

// End ends and reports the span; err is nil when what it stands for has succeeded.
func (o *Ongoing) End(err error) {
	if o == nil {
		return
	}
	if err != nil {
		o.span.Error = err.Error()
	}
	o.span.Ended = time.Now()
	o.recorder.Report(o.span)
}
