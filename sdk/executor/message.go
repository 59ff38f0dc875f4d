package executor

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// The conversions between the types of this package and messages of the protocol.

func encodeKey(k Key) *pluginpb.JobKey {
	return &pluginpb.JobKey{Run: k.Run, Block: k.Block, Attempt: int64(k.Attempt)}
}

func decodeKey(k *pluginpb.JobKey) Key {
	return Key{Run: k.GetRun(), Block: k.GetBlock(), Attempt: int(k.GetAttempt())}
}

func encodeJob(j Job) *pluginpb.Job {
	return &pluginpb.Job{Key: encodeKey(j.Key), Argv: j.Argv, Secret: j.Secret, Input: j.Input, Dir: j.Dir,
		Nodes: int64(j.Nodes), Gpus: int64(j.GPUs), Cpus: int64(j.CPUs), Memory: j.Memory,
		TimeLimitMs: j.TimeLimit.Milliseconds(), Host: j.Host, Constraints: j.Constraints,
		GraceMs: j.Grace.Milliseconds()}
}

func decodeJob(j *pluginpb.Job) Job {
	return Job{Key: decodeKey(j.GetKey()), Argv: j.GetArgv(), Secret: j.GetSecret(), Dir: j.GetDir(),
		Input: j.GetInput(),
		Resources: Resources{Nodes: int(j.GetNodes()), GPUs: int(j.GetGpus()), CPUs: int(j.GetCpus()),
			Memory: j.GetMemory(), TimeLimit: time.Duration(j.GetTimeLimitMs()) * time.Millisecond, Host: j.GetHost(),
			Constraints: j.GetConstraints(), Grace: time.Duration(j.GetGraceMs()) * time.Millisecond}}
}

func encodeHandle(h Handle) *pluginpb.JobHandle {
	return &pluginpb.JobHandle{Key: encodeKey(h.Key), Id: h.ID}
}

func decodeHandle(h *pluginpb.JobHandle) Handle {
	return Handle{Key: decodeKey(h.GetKey()), ID: h.GetId()}
}

func encodeStatus(s Status) *pluginpb.JobStatus {
	m := &pluginpb.JobStatus{State: string(s.State), Reason: s.Reason, Node: s.Node, Place: int64(s.Place)}
	if !s.Expected.IsZero() {
		m.ExpectedUnixNano = s.Expected.UnixNano()
	}
	if s.ExitCode != nil {
		code := int64(*s.ExitCode)
		m.ExitCode = &code
	}
	return m
}

func decodeStatus(m *pluginpb.JobStatus) Status {
	s := Status{State: State(m.GetState()), Reason: m.GetReason(), Node: m.GetNode(), Place: int(m.GetPlace())}
	if m.GetExpectedUnixNano() != 0 {
		s.Expected = time.Unix(0, m.GetExpectedUnixNano())
	}
	if m.ExitCode != nil {
		code := int(m.GetExitCode())
		s.ExitCode = &code
	}
	return s
}

// encodeError keeps what the engine distinguishes in the errors of an executor.
func encodeError(err error) error {
	if err == nil {
		return nil
	}
	said := &pluginpb.JobError{Summary: err.Error(), Unreachable: errors.Is(err, ErrUnreachable)}
	var e *sdk.Error
	if errors.As(err, &e) {
		said.Detail, said.Remedy = e.Detail, e.Remedy
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	s, detailed := status.New(code, err.Error()).WithDetails(said)
	if detailed != nil {
		return status.Error(code, err.Error())
	}
	return s.Err()
}

// decodeError returns the error that encodeError was given, as far as the engine distinguishes it. An error of the
// connection stays as it is.
func decodeError(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	ended := map[codes.Code]error{
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: context.DeadlineExceeded,
	}[s.Code()]
	for _, d := range s.Details() {
		said, ok := d.(*pluginpb.JobError)
		switch {
		case !ok:
		case said.GetUnreachable():
			return unreachable(said.GetSummary())
		default:
			e := &sdk.Error{Summary: said.GetSummary(), Detail: said.GetDetail(), Remedy: said.GetRemedy()}
			if ended != nil {
				return waited{e, ended}
			}
			return e
		}
	}
	switch {
	case s.Code() == codes.Unavailable:
		return err
	case ended != nil:
		return ended
	default:
		return errors.New(s.Message())
	}
}

// waited is what an executor says of a wait that its context ended. Whose deadline it was, the executor's or that of
// the call, which ends on both sides at once, makes no difference.
type waited struct {
	said  *sdk.Error
	ended error
}

func (w waited) Error() string   { return w.said.Error() }
func (w waited) Unwrap() []error { return []error{w.said, w.ended} }

// unreachable is an ErrUnreachable with a message of its own.
type unreachable string

func (u unreachable) Error() string { return string(u) }

func (unreachable) Is(target error) bool { return target == ErrUnreachable }
