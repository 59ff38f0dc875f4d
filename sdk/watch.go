package sdk

import (
	"context"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"

	"github.com/zclconf/go-cty/cty"
)

func (s *server) Status(context.Context, *pluginpb.StatusRequest) (*pluginpb.StatusResponse, error) {
	defer s.lease.Contact()()
	l := s.current()
	if l == nil {
		return &pluginpb.StatusResponse{Pid: int64(os.Getpid()), Phase: string(Pending)}, nil
	}
	snap := l.snapshot()
	response := &pluginpb.StatusResponse{
		RunId: l.start.RunID, Address: l.start.Address, Pid: int64(os.Getpid()), Phase: string(snap.phase),
		LastEvent: snap.last, Error: snap.failure, Handle: snap.handle, Listen: snap.listen,
		PolicyVersion: snap.version,
	}
	if !snap.phase.Over() {
		list, reported := l.activities.list()
		response.ReportsActivities, response.Activities = reported, activitiesTo(list, time.Now(), l.blanker.Load().Replace)
	}
	if snap.outputs != cty.NilVal {
		data, err := spec.Marshal(snap.outputs, s.def.Outputs)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "encode the outputs of %s: %v", l.start.Address, err)
		}
		response.Outputs = data
	}
	return response, nil
}

// Watch streams events until the caller goes, or the block is over and everything has been sent. An open stream counts
// as an engine that is there.
func (s *server) Watch(req *pluginpb.WatchRequest, stream pluginpb.Plugin_WatchServer) error {
	defer s.lease.Contact()()
	ctx := stream.Context()
	select {
	case <-s.started:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	l := s.current()
	for after := req.GetAfter(); ; {
		events, err := l.events.Next(ctx, after)
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			return status.Errorf(codes.Internal, "events of %s: %v", l.start.Address, err)
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			if err := stream.Send(e); err != nil {
				return err
			}
			after = e.GetSeq()
		}
	}
}
