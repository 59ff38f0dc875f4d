package view

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mitchellh/go-wordwrap"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Check is one check of the compliance suite.
type Check struct {
	Name    string   `json:"name"`
	Result  string   `json:"result"` // pass, fail or skip
	Seconds float64  `json:"seconds"`
	Output  []string `json:"output,omitempty"` // why it failed or was skipped
}

// Checks is the report of the compliance suite on one plugin.
type Checks struct {
	kind                kind.Kind
	name, version, path string

	list   []*Check
	at     *Check // which the output belongs to
	failed bool
	headed bool      // the first line is written
	live   io.Writer // nil: nothing is shown before the end
	style  Style
}

// NewChecks is a report without results.
func NewChecks(k kind.Kind, name, version, path string) *Checks {
	return &Checks{kind: k, name: name, version: version, path: path}
}

// Live shows each result as soon as it is there.
func (c *Checks) Live(w io.Writer, s Style) {
	c.live, c.style = w, s
}

// At reports that what follows belongs to a check; empty: to the whole suite.
func (c *Checks) At(name string, begins bool) {
	if c.at = c.find(name); c.at == nil && name != "" && begins {
		c.at = &Check{Name: name}
		c.list = append(c.list, c.at)
	}
}

func (c *Checks) find(name string) *Check {
	for _, k := range c.list {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Say adds a line to the check that runs.
func (c *Checks) Say(line string) {
	if c.at != nil && strings.TrimSpace(line) != "" {
		c.at.Output = append(c.at.Output, line)
	}
}

// Result notes how a check has ended: PASS, FAIL or SKIP.
func (c *Checks) Result(name, result string, took time.Duration) {
	k := c.find(name)
	if k == nil {
		c.failed = c.failed || result == "FAIL"
		return
	}
	k.Result, k.Seconds = strings.ToLower(result), took.Seconds()
	if k.Result == "pass" {
		k.Output = nil
	}
	c.failed = c.failed || k.Result == "fail"
	if c.live != nil && !c.group(k) {
		c.show(k)
	}
}

// group reports whether a check consists of others and has nothing to say itself.
func (c *Checks) group(k *Check) bool {
	return len(k.Output) == 0 &&
		slices.ContainsFunc(c.list, func(o *Check) bool { return strings.HasPrefix(o.Name, k.Name+"/") })
}

func (c *Checks) show(k *Check) {
	if !c.headed {
		c.headed = true
		fmt.Fprintf(c.live, "%s %q %s  %s\n\n", c.kind, c.name, c.version, c.style.Dim(c.path))
	}
	paint := map[string]func(string) string{"pass": c.style.Green, "fail": c.style.Red, "skip": c.style.Yellow}[k.Result]
	name := strings.ReplaceAll(k.Name, "/", ": ")
	took := ""
	if k.Seconds >= 0.05 {
		took = c.style.Dim(fmt.Sprintf("  %.1fs", k.Seconds))
	}
	fmt.Fprintf(c.live, "  %s  %s%s\n", paint(k.Result), name, took)
	for _, line := range k.Output {
		for _, part := range strings.Split(wordwrap.WrapString(plainLine(line), uint(max(40, c.style.Width-8))), "\n") {
			fmt.Fprintf(c.live, "        %s\n", part)
		}
	}
}

// plainLine is a line of a test's log without the place in the suite's source, which says nothing to a plugin's author.
func plainLine(line string) string {
	line = strings.TrimSpace(line)
	if place, text, ok := strings.Cut(line, ": "); ok && strings.Contains(place, ".go:") && !strings.Contains(place, " ") {
		return text
	}
	return line
}

// Len is the number of checks.
func (c *Checks) Len() int { return len(c.list) }

// End completes the report: a check without a result did not end.
func (c *Checks) End(failed bool, said string) {
	for _, k := range c.list {
		if k.Result != "" {
			continue
		}
		k.Result = "fail"
		k.Output = append(k.Output, "the suite ended during this check")
		k.Output = append(k.Output, strings.Split(strings.TrimSpace(said), "\n")...)
		if c.live != nil {
			c.show(k)
		}
	}
	c.failed = c.failed || failed
	c.list = slices.DeleteFunc(c.list, c.group)
	for _, k := range c.list {
		for i, line := range k.Output {
			k.Output[i] = plainLine(line)
		}
	}
}

// Failed reports whether a check failed.
func (c *Checks) Failed() bool { return c.failed }

// count counts the checks with a result, and adds up the seconds of all.
func (c *Checks) count() (n map[string]int, seconds float64) {
	n = map[string]int{}
	for _, k := range c.list {
		n[k.Result]++
		seconds += k.Seconds
	}
	return n, seconds
}

// Summary is the last line.
func (c *Checks) Summary(w io.Writer, s Style) error {
	n, seconds := c.count()
	verdict := s.Green("complies")
	if c.failed {
		verdict = s.Red("does not comply")
	}
	_, err := fmt.Fprintf(w, "\n%s %q %s: %d passed, %d failed, %d skipped in %.0fs\n", c.kind, c.name, verdict, n["pass"],
		n["fail"], n["skip"], seconds)
	return err
}

// MarshalJSON is the form for machines.
func (c *Checks) MarshalJSON() ([]byte, error) {
	n, seconds := c.count()
	return json.Marshal(struct {
		Kind    kind.Kind `json:"kind"`
		Name    string    `json:"name"`
		Version string    `json:"version"`
		Path    string    `json:"path"`
		OK      bool      `json:"ok"`
		Passed  int       `json:"passed"`
		Failed  int       `json:"failed"`
		Skipped int       `json:"skipped"`
		Seconds float64   `json:"seconds"`
		Checks  []*Check  `json:"checks"`
	}{c.kind, c.name, c.version, c.path, !c.failed, n["pass"], n["fail"], n["skip"], seconds, c.list})
}

// junitCase and the types below are JUnit's XML as CI servers read it.
type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// JUnit is the report as JUnit XML.
func (c *Checks) JUnit() ([]byte, error) {
	n, seconds := c.count()
	suite := junitSuite{Name: fmt.Sprintf("%s/%s", c.kind, c.name), Tests: len(c.list), Failures: n["fail"],
		Skipped: n["skip"], Time: fmt.Sprintf("%.3f", seconds)}
	for _, k := range c.list {
		one := junitCase{Class: suite.Name, Name: k.Name, Time: fmt.Sprintf("%.3f", k.Seconds)}
		message := &junitMessage{Text: strings.Join(k.Output, "\n")}
		if len(k.Output) > 0 {
			message.Message = k.Output[0]
		}
		switch k.Result {
		case "fail":
			one.Failure = message
		case "skip":
			one.Skipped = message
		}
		suite.Cases = append(suite.Cases, one)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	return append([]byte(xml.Header), append(data, '\n')...), err
}
