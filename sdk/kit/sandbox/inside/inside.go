// Package inside is the first process in a sandbox: recipe's own program, started as process 1 of the sandbox's
// processes. It sets limits, forwards the gateway's address, starts the one program that the sandbox is for, and ends
// with it, which ends everything else in the sandbox.
//
// The program cannot harm it: a signal of another process does not reach process 1, and its memory cannot be read.
package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Program is the path of recipe's program in a sandbox. Started by this name it is the first process of one.
const Program = "/run/recipe/sandbox"

// Job is what the first process does. It goes to it as its first argument: variables and secrets are in the
// environment instead, which other users cannot read.
type Job struct {
	Dir     string        // where the program starts
	Port    int           // of the sandbox's loopback; 0: none
	Socket  string        // what connections to it are forwarded to
	Limits  Limits        //
	Timeout time.Duration // how long the program may run; 0: no limit
	Grace   time.Duration // between SIGTERM and the end, after Timeout
	Output  int64         // bytes of output, the rest is dropped; 0: no limit
	Root    bool          // outside this is root, for whom the kernel holds no limit of processes
	Alone   bool          // the sandbox has a network of its own
	// Writable are the folders in which the program writes on the disk.
	Writable []string
	Check    bool // start nothing, only look whether the program could be started
}

// Limits of a sandbox. 0: none.
type Limits struct {
	Memory    int64         // bytes of all processes together, and of each
	Processes int           // threads included
	FileSize  int64         // bytes of one file
	Disk      int64         // bytes of all files in the writable folders
	Files     int           // in the writable folders
	Free      int64         // bytes that are left on their disk
	OpenFiles int           // of one process
	CPU       time.Duration // of one process
}

// Deepest is how deep folders of a program may be nested.
const Deepest = 128

// Report is how the program ended. It goes to descriptor 3.
type Report struct {
	Exit   *int   `json:"exit,omitempty"`   // its exit status; nil: it was ended, or died of a signal
	Signal string `json:"signal,omitempty"` // of which it died
	Limit  string `json:"limit,omitempty"`  // why the sandbox has ended it
	Late   bool   `json:"late,omitempty"`   // its time was over
	Failed string `json:"failed,omitempty"` // why it could not be started
}

// Main is the first process of a sandbox, if this process was started as one, and does not return then. A program that
// makes sandboxes calls it before anything else.
func Main() {
	if len(os.Args) < 2 || os.Args[0] != Program {
		return
	}
	var job Job
	report := Report{}
	if err := json.Unmarshal([]byte(os.Args[1]), &job); err != nil {
		report.Failed = fmt.Sprintf("read the job: %v", err)
	} else if err := job.run(os.Args[2:], &report); err != nil {
		report.Failed = err.Error()
	}
	out := os.NewFile(reportTo, "report")
	_ = json.NewEncoder(out).Encode(report) // without a report the sandbox has failed
	switch {
	case report.Failed != "":
		os.Exit(125)
	case report.Exit != nil:
		os.Exit(*report.Exit)
	}
	os.Exit(137)
}

const reportTo = 3
