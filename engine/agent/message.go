package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Every stream of a session is opened by the engine and begins with a line of JSON, a request; the agent answers with a
// line. After output, dial, put and get the stream then carries bytes, after usage a line for each
// sample.
const (
	opHello   = "hello"
	opStart   = "start"
	opFind    = "find"
	opOutput  = "output"
	opWait    = "wait"
	opKill    = "kill"
	opSweep   = "sweep"
	opDial    = "dial"
	opForward = "forward"
	opExpose  = "expose"
	opGroup   = "group"
	opUsage   = "usage"
	opExit    = "exit"

	// of agents with a folder for staged files
	opMissing = "missing"
	opPut     = "put"
	opPlace   = "place"
	opList    = "list"
	opGet     = "get"
	opPython  = "python"
)

// Request is one request of the engine; which fields are set depends on Op.
type Request struct {
	Op      string         `json:"op"`
	Lease   time.Duration  `json:"lease,omitempty"`   // hello: how long the agent lives without an engine; 0: no limit
	Command *host.Command  `json:"command,omitempty"` // start
	Process *host.Identity `json:"process,omitempty"` // find, output, wait, kill, sweep
	Handle  []byte         `json:"handle,omitempty"`  // sweep
	Address string         `json:"address,omitempty"` // dial: path of a unix socket
	Forward *Forward       `json:"forward,omitempty"`
	Expose  *Exposure      `json:"expose,omitempty"`
	Group   []Member       `json:"group,omitempty"`   // the agents of the job, by number of their machine
	Engine  []string       `json:"engine,omitempty"`  // hello: the addresses of the engine
	Files   []File         `json:"files,omitempty"`   // missing, place; put: one
	Folders []string       `json:"folders,omitempty"` // place: to be made, relative to the job's folder
	Python  *PythonRequest `json:"python,omitempty"`
	Path    string         `json:"path,omitempty"`   // get
	Offset  int64          `json:"offset,omitempty"` // get
	Every   time.Duration  `json:"every,omitempty"`  // usage: the time between two samples
}

// Response answers a request.
type Response struct {
	Error   string         `json:"error,omitempty"`
	Remedy  string         `json:"remedy,omitempty"` // what to do about the error
	Gone    bool           `json:"gone,omitempty"`   // the error is host.ErrGone
	Hello   *Hello         `json:"hello,omitempty"`
	Process *host.Identity `json:"process,omitempty"` // start
	Ended   string         `json:"ended,omitempty"`   // wait
	Address string         `json:"address,omitempty"` // forward: HOST:PORT on the agent's machine
	Missing []string       `json:"missing,omitempty"` // digests
	Offset  int64          `json:"offset,omitempty"`  // put
	Size    int64          `json:"size,omitempty"`    // get: of what follows
	Entries []Entry        `json:"entries,omitempty"` // list
}

// Hello is what an agent says of itself.
type Hello struct {
	Job      executor.Key `json:"job"`
	Node     int          `json:"node"`     // the machine among those of the job
	Instance string       `json:"instance"` // random: a second agent with the same bootstrap file differs
	Host     string       `json:"host"`
	Data     string       `json:"data"`           // HOST:PORT where other agents connect
	Also     []string     `json:"also,omitempty"` // and those of the machine's other addresses
	// Folder is that of the job, and Program this program in it, where files are staged.
	Folder  string `json:"folder,omitempty"`
	Program string `json:"program,omitempty"`
}

// Forward is a port of a block on another machine which an agent makes a loopback port of its own machine.
type Forward struct {
	Block  string   `json:"block"` // address of the block that listens
	Target string   `json:"target"`
	Via    []string `json:"via"`  // HOST:PORT of the agent beside that block; the first that answers is taken
	Name   string   `json:"name"` // in that agent's certificate
}

// Exposure allows one other agent to connect to a loopback port.
type Exposure struct {
	Target string `json:"target"` // HOST:PORT
	Block  string `json:"block"`  // address of the block that connects; a newer exposure for it replaces the older
	Name   string `json:"name"`   // in the certificate of the agent beside it
}

// Member is the agent on one machine of a job that has several.
type Member struct {
	Via  []string `json:"via"`  // HOST:PORT where other agents reach it; the first that answers is taken
	Name string   `json:"name"` // in its certificate
}

const maxLine = 4 << 20 // of a message: the environment of a process may be large

// conn is a stream whose first line was read with a buffer.
type conn struct {
	net.Conn
	in *bufio.Reader
}

func (c conn) Read(b []byte) (int, error) { return c.in.Read(b) }

// CloseWrite reports that nothing more follows; a stream of a session says so by Close.
func (c conn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// readLine reads one message. What follows it stays in the reader.
func readLine(in *bufio.Reader, into any) error { return readLineOf(in, maxLine, into) }

// readLineOf is readLine for a message of at most limit bytes.
func readLineOf(in *bufio.Reader, limit int, into any) error {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > limit {
			return fmt.Errorf("a message is longer than %d bytes", limit)
		}
		if err == nil {
			return json.Unmarshal(line, into)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func writeLine(to io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = to.Write(append(data, '\n'))
	return err
}

// err is the error in a response.
func (r Response) err() error {
	switch {
	case r.Gone:
		return fmt.Errorf("%s: %w", strings.TrimSuffix(r.Error, ": "+host.ErrGone.Error()), host.ErrGone)
	case r.Remedy != "":
		return &sdk.Error{Summary: r.Error, Remedy: r.Remedy}
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// keepAlive is how often a silent connection is tested; a test that is not answered within as long ends it.
const keepAlive = 10 * time.Second

// Multiplex is the configuration of a session on both sides.
func Multiplex() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = keepAlive, keepAlive
	c.LogOutput = io.Discard
	return c
}

// splice copies both ways until one side has ended, and closes both.
func splice(a, b net.Conn) {
	done := make(chan struct{}, 2)
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = closeWrite(to) // the other direction may still have something to say
		done <- struct{}{}
	}
	go copyTo(a, b)
	go copyTo(b, a)
	<-done
	<-done
	_, _ = a.Close(), b.Close()
}
