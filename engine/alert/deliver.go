package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"time"

	"github.com/recipe-rl/recipe/schema/decode"
)

// Message is what a webhook and a command get, as JSON. Text is what chat services show.
type Message struct {
	Version int       `json:"version"` // 1
	Alert   string    `json:"alert"`
	Run     string    `json:"run"`
	RunID   string    `json:"run_id"`
	Address string    `json:"address,omitempty"`
	Step    int64     `json:"step,omitempty"`
	Time    time.Time `json:"time"`
	Message string    `json:"message"`
	Text    string    `json:"text"`
}

// attempts is how often a delivery is tried; pause is the first wait between two, which doubles.
const (
	attempts = 3
	pause    = time.Second
)

// deliver tells everyone that an alert names. Errors name no webhook and no argument.
func deliver(ctx context.Context, a decode.Alert, m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the alert: %w", err)
	}
	var errs []error
	if a.Webhook != "" {
		errs = append(errs, tried(ctx, a, "the webhook", func(ctx context.Context) error {
			return post(ctx, a.Webhook, text)
		}))
	}
	if len(a.Command) > 0 {
		errs = append(errs, tried(ctx, a, "the command", func(ctx context.Context) error {
			return execute(ctx, text, a.Command...)
		}))
	}
	if a.Desktop {
		if path, err := exec.LookPath("notify-send"); err == nil {
			errs = append(errs, tried(ctx, a, "notify-send", func(ctx context.Context) error {
				return execute(ctx, nil, path, "--", "recipe: "+a.Name, m.Text)
			}))
		}
	}
	return errors.Join(errs...)
}

// tried tries until it succeeds, each time within the alert's timeout.
func tried(ctx context.Context, a decode.Alert, what string, do func(context.Context) error) error {
	var err error
	for n := range attempts {
		if n > 0 {
			select {
			case <-time.After(pause << (n - 1)):
			case <-ctx.Done():
				return fmt.Errorf("could not notify %s: %w", what, err)
			}
		}
		limited, cancel := context.WithTimeout(ctx, a.Timeout)
		err = do(limited)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("could not notify %s after %d attempts: %w", what, attempts, err)
}

// client follows no redirect: the message is for the address that was given.
func client() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func post(ctx context.Context, address string, text []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return errors.New("it is no usable URL") // the error would quote it
	}
	req.Header.Set("Content-Type", "application/json")
	c := client()
	defer c.CloseIdleConnections()
	answer, err := c.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %s", answer.Status)
	}
	return nil
}

func execute(ctx context.Context, input []byte, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(input)
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return fmt.Errorf("it ended with %s", failed.ProcessState)
	}
	if wrapped := (*exec.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err // without the program
	}
	return err
}
