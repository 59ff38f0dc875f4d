package attempt

import (
	"context"
	"errors"
	"fmt"
	"github.com/recipe-rl/recipe/sdk"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
)

func TestBesidesStop(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	canceled := &url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}
	for name, tt := range map[string]struct{ err, want error }{
		"nothing":                        {nil, nil},
		"canceled":                       {context.Canceled, nil},
		"stopped":                        {fmt.Errorf("waiting: %w", errStopped), nil},
		"a call that was canceled":       {fmt.Errorf("fetch a batch: %w", canceled), nil},
		"several of them":                {errors.Join(canceled, errStopped), nil},
		"a connection that was given up": {&net.OpError{Op: "dial", Err: canceledLeaf{}}, nil},
		"an Error that was canceled":     {&sdk.Error{Summary: "x", Err: context.Canceled}, nil},
		"a checkpoint":                   {errors.Join(canceled, full), full},
		"a checkpoint, deeper": {fmt.Errorf("train: %w",
			errors.Join(context.Canceled, fmt.Errorf("save: %w", full))), full},
		"an Error":    {&sdk.Error{Summary: "x"}, nil},
		"another end": {io.ErrUnexpectedEOF, io.ErrUnexpectedEOF},
		"a deadline":  {os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := besidesStop(tt.err)
			if name == "an Error" {
				tt.want = tt.err
			}
			if (got == nil) != (tt.want == nil) || tt.want != nil && !errors.Is(got, tt.want) {
				t.Errorf("left of %v: %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}

// canceledLeaf is an error like that of package net for an operation that was canceled.
type canceledLeaf struct{}

func (canceledLeaf) Error() string { return "operation was canceled" }

// Is compares plainly, since errors.Is is what calls it.
func (canceledLeaf) Is(target error) bool { return target == context.Canceled } //nolint:errorlint // as said
