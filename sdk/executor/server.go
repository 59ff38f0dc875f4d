package executor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// server answers an engine for the one executor that it opens in this process.
type server struct {
	pluginpb.UnimplementedExecutorServer
	opener  Opener
	schema  *spec.Schema
	contact func() (over func())

	mu     sync.Mutex
	opened Executor
}

// Open implements pluginpb.ExecutorServer.
func (s *server) Open(_ context.Context, req *pluginpb.OpenExecutorRequest) (*pluginpb.OpenExecutorResponse, error) {
	defer s.contact()()
	config, err := spec.Unmarshal(req.GetConfig(), s.schema)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the block's configuration: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != nil {
		return nil, status.Error(codes.AlreadyExists, "this process has opened an executor; start a new one for another")
	}
	if s.opened, err = s.opener.Open(config, req.GetDir()); err != nil {
		return nil, encodeError(err)
	}
	return &pluginpb.OpenExecutorResponse{Abilities: Abilities(s.opened)}, nil
}

// executor returns the executor, or the status of a call that came before Open.
func (s *server) executor() (Executor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened == nil {
		return nil, status.Error(codes.FailedPrecondition, "no executor has been opened in this process; call Open first")
	}
	return s.opened, nil
}

// Render implements pluginpb.ExecutorServer.
func (s *server) Render(_ context.Context, req *pluginpb.RenderJobRequest) (*pluginpb.RenderJobResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	r, err := x.Render(decodeJob(req.GetJob()))
	return &pluginpb.RenderJobResponse{Language: r.Language, Text: r.Text}, encodeError(err)
}

// Submit implements pluginpb.ExecutorServer.
func (s *server) Submit(ctx context.Context, req *pluginpb.SubmitJobRequest) (*pluginpb.SubmitJobResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	h, err := x.Submit(ctx, decodeJob(req.GetJob()))
	return &pluginpb.SubmitJobResponse{Handle: encodeHandle(h)}, encodeError(err)
}

// Status implements pluginpb.ExecutorServer.
func (s *server) Status(ctx context.Context, req *pluginpb.JobStatusRequest) (*pluginpb.JobStatusResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	list, err := x.Status(ctx, each(req.GetHandles(), decodeHandle))
	return &pluginpb.JobStatusResponse{Statuses: each(list, encodeStatus)}, encodeError(err)
}

// Logs implements pluginpb.ExecutorServer.
func (s *server) Logs(req *pluginpb.JobLogsRequest, to grpc.ServerStreamingServer[pluginpb.JobLogsResponse]) error {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return err
	}
	return encodeError(x.Logs(to.Context(), decodeHandle(req.GetHandle()), streamed{to}))
}

// streamed sends what is written to it.
type streamed struct {
	to grpc.ServerStreamingServer[pluginpb.JobLogsResponse]
}

// maxPiece keeps a message below gRPC's limit of 4 MiB.
const maxPiece = 1 << 20

func (s streamed) Write(data []byte) (n int, err error) {
	for n < len(data) {
		piece := data[n:min(n+maxPiece, len(data))]
		if err := s.to.Send(&pluginpb.JobLogsResponse{Data: piece}); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// Cancel implements pluginpb.ExecutorServer.
func (s *server) Cancel(ctx context.Context, req *pluginpb.CancelJobRequest) (*pluginpb.CancelJobResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	err = x.Cancel(ctx, decodeHandle(req.GetHandle()), time.Duration(req.GetGraceMs())*time.Millisecond)
	return &pluginpb.CancelJobResponse{}, encodeError(err)
}

// List implements pluginpb.ExecutorServer.
func (s *server) List(ctx context.Context, req *pluginpb.ListJobsRequest) (*pluginpb.ListJobsResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	list, err := x.List(ctx, req.GetRun())
	return &pluginpb.ListJobsResponse{Handles: each(list, encodeHandle)}, encodeError(err)
}

// Test implements pluginpb.ExecutorServer.
func (s *server) Test(ctx context.Context, req *pluginpb.TestJobRequest) (*pluginpb.TestJobResponse, error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	t, ok := As[Tester](x)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this executor cannot test jobs")
	}
	answer, err := t.Test(ctx, decodeJob(req.GetJob()))
	return &pluginpb.TestJobResponse{Answer: answer}, encodeError(err)
}

// Examine implements pluginpb.ExecutorServer.
func (s *server) Examine(ctx context.Context, _ *pluginpb.ExamineClusterRequest) (*pluginpb.ExamineClusterResponse,
	error) {
	defer s.contact()()
	x, err := s.executor()
	if err != nil {
		return nil, err
	}
	e, ok := As[Examiner](x)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this executor cannot examine its cluster")
	}
	checks := each(e.Examine(ctx), func(c Check) *pluginpb.ClusterCheck {
		return &pluginpb.ClusterCheck{Name: c.Name, Found: c.Found, Remedy: c.Remedy}
	})
	return &pluginpb.ExamineClusterResponse{Checks: checks}, nil
}

// each converts every element of a list.
func each[A, B any](list []A, convert func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = convert(a)
	}
	return out
}
