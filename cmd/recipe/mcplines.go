package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// agentLines reads the lines of a client, and passes on those that are messages. The others would end the session: they
// are answered with an error here.
type agentLines struct {
	in      *bufio.Reader
	out     io.Writer
	rest    []byte // of a message that was not read yet
	batches bool   // the client speaks the one version of the protocol that has batches
}

// batchingVersion is the version of the protocol in which a line may hold several messages.
const batchingVersion = "2025-03-26"

func newAgentLines(in io.Reader, out io.Writer) *agentLines {
	return &agentLines{in: bufio.NewReaderSize(in, 64<<10), out: out}
}

// Read implements io.Reader.
func (l *agentLines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.line()
		if err != nil && !errors.Is(err, errLongLine) {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		switch code, wrong := l.judge(line, err); {
		case wrong != nil:
			if err := l.refuse(code, wrong); err != nil {
				return 0, err
			}
		case len(line) > 0:
			l.rest = append(line, '\n')
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

var errLongLine = fmt.Errorf("the line has more than %d bytes", mcp.DefaultMaxLineLength)

// line reads a line. The last one may end without a line feed.
func (l *agentLines) line() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if long = long || len(line)+len(part) > mcp.DefaultMaxLineLength-2; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)):
			return nil, err
		case long:
			return nil, errLongLine
		}
		return line, nil
	}
}

// judge returns what is wrong with a line that is no message, with the code of JSON-RPC.
func (l *agentLines) judge(line []byte, err error) (code int64, wrong error) {
	if len(line) == 0 || err != nil {
		return jsonrpc.CodeParseError, err
	}
	if err := json.Unmarshal(line, new(json.RawMessage)); err != nil {
		return jsonrpc.CodeParseError, err
	}
	if line[0] == '[' {
		return l.judgeBatch(line)
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return jsonrpc.CodeInvalidRequest, err
	}
	var first struct {
		Method string `json:"method"`
		Params struct {
			Version string `json:"protocolVersion"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &first) == nil && first.Method == "initialize" {
		l.batches = first.Params.Version == batchingVersion
	}
	return 0, nil
}

func (l *agentLines) judgeBatch(line []byte) (code int64, wrong error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(line, &parts); err != nil {
		return jsonrpc.CodeParseError, err
	}
	if !l.batches || len(parts) == 0 {
		return jsonrpc.CodeInvalidRequest, errors.New("expected one message, got a list")
	}
	for _, part := range parts {
		if _, err := jsonrpc.DecodeMessage(part); err != nil {
			return jsonrpc.CodeInvalidRequest, err
		}
	}
	return 0, nil
}

// refuse answers a line whose id is not known.
func (l *agentLines) refuse(code int64, wrong error) error {
	what := "parse error"
	if code == jsonrpc.CodeInvalidRequest {
		what = "invalid request"
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code,
		"message": fmt.Sprintf("%s: %v: expected one JSON-RPC 2.0 message a line", what, wrong)}})
	if err != nil {
		return err
	}
	_, err = l.out.Write(append(text, '\n'))
	return err
}

// oneAtATime is a writer for several writers, that the transport does not close.
type oneAtATime struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (w *oneAtATime) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// Close implements io.Closer.
func (*oneAtATime) Close() error { return nil }
