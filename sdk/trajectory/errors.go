package trajectory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
)

// Reason is the kind of failure of a call, for programs that decide what to do next.
type Reason string

// The reasons. Those that may pass by themselves are retried by the client first.
const (
	Refused      Reason = "connection refused"  // nothing listens at the address
	Timeout      Reason = "timeout"             // the server did not answer in time
	Unreachable  Reason = "network unreachable" // no route, or the name does not resolve
	ClientError  Reason = "request refused"     // 4xx: the request must change
	ServerError  Reason = "server error"        // 5xx
	BadReply     Reason = "unexpected reply"    // 200, but not what the contract says
	Unregistered Reason = "not registered"      // no trainer has registered, or the server was restarted without its data
	LeaseLost    Reason = "lease lost"          // 409: the batch was given to another trainer
	Broken       Reason = "connection broken"   // the connection ended in the middle
)

// Error is the failure of one call to the trajectory API.
type Error struct {
	Op     string // "GET /batch"
	URL    string // of the server, without a token
	Reason Reason
	Status int    // HTTP status, 0 when there was no reply
	Detail string // what the server said
	Err    error  // the cause, if there is one below this
}

func (e *Error) Error() string {
	s := fmt.Sprintf("trajectory API at %s: %s: %s", e.URL, e.Op, e.Reason)
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	} else if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Guidance describes what to check, in three numbered lines.
func (e *Error) Guidance() string {
	third := "Is it the right server? " + e.URL + "/status must answer with current_step and queue_size."
	switch e.Reason {
	case Timeout:
		third = "Is it overloaded? Raise the timeout, or look at the server's processor and disk."
	case ClientError, BadReply:
		third = "Do both sides speak the same contract? The server said: " + e.Detail
	case ServerError:
		third = "Does the server have disk space? Its log says why it failed."
	case Unregistered:
		third = "Was the server restarted without its data? Register the trainer again, and keep its folder next time."
	case LeaseLost:
		third = "Is a second trainer running? Otherwise raise the lease above the longest step."
	}
	return fmt.Sprintf(
		"1. Is the trajectory API running? `curl %s/status`, or `recipe status`.\n2. Is the address right, as seen from "+
			"this machine, with its port and token? %s\n3. %s",
		e.URL,
		e.URL,
		third,
	)
}

// Is lets errors.Is match a reason: errors.Is(err, trajectory.Refused).
func (e *Error) Is(target error) bool {
	reason, ok := target.(Reason) //nolint:errorlint // a reason is compared by value and never wrapped
	return ok && reason == e.Reason
}

// Error makes a Reason usable as a target of errors.Is.
func (r Reason) Error() string { return string(r) }

// transient reports whether the same call may succeed later.
func (e *Error) transient() bool {
	switch e.Reason {
	case Refused, Timeout, Unreachable, ServerError, Broken:
		return true
	}
	return e.Status == 429
}

// classify finds the reason of a failed round trip.
func classify(err error) Reason {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &dns), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return Unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	}
	return Broken
}

// withoutURL strips net/http's repetition of the URL, which may hold a token.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
