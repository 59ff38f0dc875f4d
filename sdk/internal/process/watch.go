package process

import (
	"context"
	"os"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Status says where the block stands.
func (s *Server) Status(context.Context, *pluginpb.StatusRequest) (*pluginpb.StatusResponse, error) {
	defer s.lease.Contact()()
	l := s.current()
	if l == nil {
		return &pluginpb.StatusResponse{Pid: int64(os.Getpid()), Phase: string(sdk.Pending)}, nil
	}
	state := l.State()
	response := &pluginpb.StatusResponse{
		RunId: l.Start().RunID, Address: l.Start().Address, Pid: int64(os.Getpid()), Phase: string(state.Phase),
		LastEvent: state.LastEvent, Error: state.Failure, Handle: state.Handle, Listen: state.Listen,
		PolicyVersion: state.Version,
	}
	if !state.Phase.Over() {
		list, reported := l.Doing()
		response.ReportsActivities = reported
		now := time.Now()
		for _, a := range list {
			response.Activities = append(response.Activities, wire.EncodeActivity(a, now, l.Blank))
		}
	}
	if state.Outputs != cty.NilVal {
		data, err := spec.Marshal(state.Outputs, s.def.Outputs)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "encode the outputs of %s: %v", l.Start().Address, err)
		}
		response.Outputs = data
	}
	return wire.Readable(response), nil
}

// Watch streams events until the caller goes, or the block is over and everything has been sent. An open stream counts
// as an engine that is there.
func (s *Server) Watch(req *pluginpb.WatchRequest, stream pluginpb.Plugin_WatchServer) error {
	defer s.lease.Contact()()
	ctx := stream.Context()
	select {
	case <-s.started:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	l := s.current()
	for after := req.GetAfter(); ; {
		events, err := l.Events().Next(ctx, after)
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			return status.Errorf(codes.Internal, "events of %s: %v", l.Start().Address, err)
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			message, err := wire.EncodeEvent(e, s.def.Outputs)
			if err != nil {
				return status.Errorf(codes.Internal, "events of %s: %v", l.Start().Address, err)
			}
			if err := stream.Send(message); err != nil {
				return err
			}
			after = e.Seq
		}
	}
}
