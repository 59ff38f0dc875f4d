package tracking

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/recipe-rl/recipe/engine/event"
)

// spanBatch is how many spans are sent at once.
const spanBatch = 512

// exporter is a sink that sends traces over OTLP: the spans that blocks have reported, and those of training steps and
// weight updates, which are made of the events before them.
type exporter struct {
	client otlptrace.Client
	opts   Options
	steps  *steps
	after  uint64 // spans of events up to this one were sent by an earlier sink
	ready  []span
}

// span is one that is ready to be sent.
type span struct {
	address string // of the block that it is of
	*tracepb.Span
}

// openExporter returns a sink for the spans of events after a number. The collector's address and headers are those of
// the block, else of OpenTelemetry's variables, which the client reads.
func openExporter(ctx context.Context, endpoint string, o Options, after uint64) (*exporter, error) {
	var options []otlptracehttp.Option
	if endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" &&
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		endpoint = "http://localhost:4318"
	}
	if endpoint != "" {
		const route = "/v1/traces"
		url := strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), route) + route
		options = append(options, otlptracehttp.WithEndpointURL(url))
	}
	// What fails is sent again by the follower, which says so in the log.
	options = append(options, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	x := &exporter{client: otlptracehttp.NewClient(options...), opts: o, steps: newSteps(o.Needs), after: after}
	if err := x.client.Start(ctx); err != nil {
		return nil, fmt.Errorf("prepare to send traces: %w", err)
	}
	return x, nil
}

func (x *exporter) write(ctx context.Context, e event.Event) error {
	found := x.steps.spans(e)
	if e.Type == event.Span {
		found = append(found, span{e.Address, reported(e)})
	}
	if e.Seq <= x.after {
		return nil // they were only needed for what follows
	}
	if x.ready = append(x.ready, found...); len(x.ready) < spanBatch {
		return nil
	}
	return x.send(ctx)
}

func (x *exporter) flush(ctx context.Context) error { return x.send(ctx) }

func (x *exporter) close(ctx context.Context) error { return x.client.Stop(ctx) }

func (x *exporter) abort() { _ = x.client.Stop(context.Background()) }

// send passes on what is ready, with the block as the service.
func (x *exporter) send(ctx context.Context) error {
	if len(x.ready) == 0 {
		return nil
	}
	byBlock := map[string][]*tracepb.Span{}
	for _, s := range x.ready {
		byBlock[s.address] = append(byBlock[s.address], s.Span)
	}
	var all []*tracepb.ResourceSpans
	for _, address := range slices.Sorted(maps.Keys(byBlock)) {
		all = append(all, &tracepb.ResourceSpans{
			Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attribute("service.name", address),
				attribute("service.namespace", x.opts.Recipe), attribute("recipe.run_id", x.opts.RunID)}},
			ScopeSpans: []*tracepb.ScopeSpans{{
				Scope: &commonpb.InstrumentationScope{Name: "github.com/recipe-rl/recipe"}, Spans: byBlock[address]}},
		})
	}
	if err := x.client.UploadTraces(ctx, all); err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	x.ready = nil
	return nil
}

// reported is the span of an event.
func reported(e event.Event) *tracepb.Span {
	s := &tracepb.Span{TraceId: id(e.TraceID), SpanId: id(e.SpanID), ParentSpanId: id(e.ParentID), Name: e.Name,
		Kind: tracepb.Span_SPAN_KIND_INTERNAL, Flags: 1}
	if e.Attributes["http.request.method"] != "" {
		s.Kind = tracepb.Span_SPAN_KIND_SERVER
	}
	if e.Began != nil {
		s.StartTimeUnixNano = uint64(e.Began.UnixNano()) //nolint:gosec // after 1970
		s.EndTimeUnixNano = s.StartTimeUnixNano + uint64(max(e.Seconds, 0)*1e9)
	}
	if e.Message != "" {
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: e.Message}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Attributes)) {
		s.Attributes = append(s.Attributes, attribute(name, e.Attributes[name]))
	}
	s.Attributes = append(s.Attributes, numbers(e.Metrics)...)
	return s
}

func id(hexadecimal string) []byte {
	b, err := hex.DecodeString(hexadecimal)
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

func attribute(key, value string) *commonpb.KeyValue {
	value = strings.ToValidUTF8(value, "�")
	return &commonpb.KeyValue{Key: key,
		Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// numbers are integers where they can be.
func numbers(values map[string]float64) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}
		if v == float64(int64(v)) {
			value = &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(v)}}
		}
		out = append(out, &commonpb.KeyValue{Key: name, Value: value})
	}
	return out
}
