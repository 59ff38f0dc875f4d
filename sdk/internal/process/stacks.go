package process

import (
	"context"
	"os"
	"runtime"

	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// mostGoroutineBytes bounds the dump of this process's goroutines.
const mostGoroutineBytes = 256 << 10

// Stacks says where this process and the programs of its block are.
func (s *Server) Stacks(ctx context.Context, _ *pluginpb.StacksRequest) (*pluginpb.StacksResponse, error) {
	defer s.lease.Contact()()
	text := make([]byte, mostGoroutineBytes)
	text = text[:runtime.Stack(text, true)]
	r := &pluginpb.StacksResponse{Stacks: []*pluginpb.Stack{{Program: "plugin", Pid: int64(os.Getpid()),
		Text: string(text)}}}
	l := s.current()
	if l == nil {
		return r, nil
	}
	for _, h := range proc.Parse(l.State().Handle) {
		for _, stack := range h.Stacks(ctx) {
			one := &pluginpb.Stack{Program: stack.Program, Pid: int64(stack.PID), Text: l.Blank(stack.Text)}
			if stack.Err != nil {
				one.Error = stack.Err.Error()
			}
			r.Stacks = append(r.Stacks, one)
		}
	}
	return wire.Readable(r), nil
}
