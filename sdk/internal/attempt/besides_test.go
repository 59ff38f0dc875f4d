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
	cancelled := &url.Error{Op: "Get", URL: "http://x", Err: context.Canceled}
	for name, tt := range map[string]struct{ err, want error }{
		"nothing":                        {nil, nil},
		"cancelled":                      {context.Canceled, nil},
		"stopped":                        {fmt.Errorf("waiting: %w", errStopped), nil},
		"a call that was cancelled":      {fmt.Errorf("fetch a batch: %w", cancelled), nil},
		"several of them":                {errors.Join(cancelled, errStopped), nil},
		"a connection that was given up": {&net.OpError{Op: "dial", Err: cancelledLeaf{}}, nil},
		"an Error that was cancelled":    {&sdk.Error{Summary: "x", Err: context.Canceled}, nil},
		"a checkpoint":                   {errors.Join(cancelled, full), full},
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

// cancelledLeaf is an error like that of package net for an operation that was cancelled.
type cancelledLeaf struct{}

func (cancelledLeaf) Error() string { return "operation was canceled" }

// Is compares plainly, since errors.Is is what calls it.
func (cancelledLeaf) Is(target error) bool { return target == context.Canceled } //nolint:errorlint // as said
