package taskfolder

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// file is what recipe reads of task.toml. Other keys are ignored, as Harbor does.
type file struct {
	SchemaVersion any         `toml:"schema_version"`
	Version       any         `toml:"version"` // its old name
	Task          taskSection `toml:"task"`
	Agent         phase       `toml:"agent"`
	Verifier      verifier    `toml:"verifier"`
	Environment   environment `toml:"environment"`
	Solution      struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Artifacts []any  `toml:"artifacts"` // paths, or tables
	Steps     []step `toml:"steps"`
	Strategy  string `toml:"multi_step_reward_strategy"`
}

type step struct {
	Name        string   `toml:"name"`
	Agent       phase    `toml:"agent"`
	Verifier    verifier `toml:"verifier"`
	Least       any      `toml:"min_reward"` // a number, or a table of them
	Healthcheck any      `toml:"healthcheck"`
	Artifacts   []any    `toml:"artifacts"`
}

type taskSection struct {
	Name string `toml:"name"`
}

type phase struct {
	Timeout *float64 `toml:"timeout_sec"`
	User    any      `toml:"user"`
	Network *string  `toml:"network_mode"`
	Hosts   []string `toml:"allowed_hosts"`
}

type verifier struct {
	phase
	Env         map[string]string `toml:"env"`
	Mode        string            `toml:"environment_mode"`
	Environment *environment      `toml:"environment"`
	Collect     []any             `toml:"collect"`
}

type environment struct {
	Image         string            `toml:"docker_image"`
	OS            string            `toml:"os"`
	MemoryMB      *int64            `toml:"memory_mb"`
	Memory        any               `toml:"memory"` // its old form
	GPUs          *int64            `toml:"gpus"`
	TPU           any               `toml:"tpu"`
	Workdir       string            `toml:"workdir"`
	Env           map[string]string `toml:"env"`
	Network       *string           `toml:"network_mode"`
	AllowInternet *bool             `toml:"allow_internet"` // its old form
	Hosts         []string          `toml:"allowed_hosts"`
	MCP           []any             `toml:"mcp_servers"`
	Skills        string            `toml:"skills_dir"`
	Healthcheck   any               `toml:"healthcheck"`
}

// newest is the version of the format that recipe knows.
const newest = "1.4"

// Where tests run.
const (
	shared   = "shared" // where the agent has worked
	separate = "separate"
)

// Network modes of the format.
const (
	public    = "public"
	noNetwork = "no-network"
)

// config reads task.toml.
func (r *reader) config(text []byte) {
	r.file = &file{}
	err := fewValues(text)
	if err == nil {
		err = toml.Unmarshal(text, r.file)
	}
	if err == nil {
		r.lines, err = linesOf(text)
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		line, _ := wrong.Position()
		what := strings.TrimPrefix(wrong.Error(), "toml: ")
		if m := wrongType.FindStringSubmatch(what); m != nil {
			what = fmt.Sprintf("%s has the type %s; expected %s", strings.Join(wrong.Key(), "."), m[1], m[2])
		}
		r.fail(configName, line, "%s", what)
		return
	}
	if err != nil {
		r.fail(configName, 0, "%s", strings.TrimPrefix(err.Error(), "toml: "))
		return
	}
	f, t := r.file, r.task
	r.version()
	if f.Task.Name != "" {
		t.Name = f.Task.Name
	}
	r.refuse()
	t.Env = r.variables("environment.env", f.Environment.Env)
	t.MemoryMB = r.memory()
	r.steps()
}

// steps are those of the task; a task without any is one.
func (r *reader) steps() {
	f, t := r.file, r.task
	solution := Phase{Env: r.variables("solution.env", f.Solution.Env)}
	all := r.variables("verifier.env", f.Verifier.Env)
	agent, tests := scoped{"agent", f.Agent}, scoped{"verifier", f.Verifier.phase}
	switch f.Strategy {
	case "final":
		t.Final = true
	case "", "mean":
	default:
		r.fail(configName, r.lines.of("multi_step_reward_strategy"), "multi_step_reward_strategy is %q; expected mean or "+
			"final", f.Strategy)
	}
	if len(f.Steps) == 0 {
		one := Step{Agent: r.phase(agent), Verifier: r.phase(tests), Solution: solution,
			separate: f.Verifier.separate()}
		one.Verifier.Env = all
		t.Steps = []Step{one}
		return
	}
	if len(f.Steps) > mostSteps {
		r.fail(configName, r.lines.of(fmt.Sprintf("steps[%d]", mostSteps)), "it has %d steps, and %d are allowed",
			len(f.Steps), mostSteps)
		f.Steps = f.Steps[:mostSteps]
	}
	seen := map[string]bool{}
	for i, s := range f.Steps {
		key := fmt.Sprintf("steps[%d]", i)
		if name := strings.ToLower(s.Name); !stepName.MatchString(s.Name) || strings.HasSuffix(s.Name, ".") || seen[name] {
			r.fail(configName, r.lines.of(key+".name"), "the step is named %q; expected the name of a folder in steps, another "+
				"for each step", s.Name)
			continue
		}
		seen[strings.ToLower(s.Name)] = true
		one := Step{Name: s.Name, Solution: solution, Least: r.least(key, s.Least),
			Agent:    r.phase(scoped{key + ".agent", s.Agent}, agent),
			Verifier: r.phase(scoped{key + ".verifier", s.Verifier.phase}, tests),
			separate: f.Verifier.separate()}
		if s.Verifier.Mode != "" || s.Verifier.Environment != nil {
			one.separate = s.Verifier.separate()
		}
		one.Verifier.Env = slices.Concat(all, r.variables(key+".verifier.env", s.Verifier.Env)) // the later one counts
		t.Steps = append(t.Steps, one)
	}
}

// separate reports whether tests run in an environment of their own.
func (v verifier) separate() bool { return v.Mode == separate || v.Mode == "" && v.Environment != nil }

// artifacts are the paths of what tests in an environment of their own get of the agent's.
func (r *reader) artifacts(key string, list []any) []string {
	var out []string
	if len(list) > mostArtifacts {
		r.once(r.lines.of(key), fmt.Sprintf("%s has %d elements, and %d are allowed", key, len(list), mostArtifacts))
		return nil
	}
	for _, one := range list {
		source, _ := one.(string)
		if table, ok := one.(map[string]any); ok {
			source, _ = table["source"].(string)
			if service, ok := table["service"].(string); ok && service != "main" {
				r.once(r.lines.of(key), fmt.Sprintf("%s has one of the service %q; there are no services", key, service))
			}
			if exclude, ok := table["exclude"].([]any); ok && len(exclude) > 0 {
				r.once(r.lines.of(key), key+" has exclude, which recipe does not do")
			}
		}
		if !path.IsAbs(source) || path.Clean(source) != strings.TrimSuffix(source, "/") {
			r.once(r.lines.of(key), fmt.Sprintf("%s has %.200q; expected a path that begins with /, without ..", key,
				fmt.Sprint(one)))
			continue
		}
		out = append(out, path.Clean(source))
	}
	return out
}

// fresh is the environment of tests that do not run where the agent has worked.
func (r *reader) fresh(s *Step) {
	if !s.separate {
		return
	}
	section, key := r.file.Verifier.Environment, "verifier.environment"
	s.Artifacts = r.artifacts("artifacts", r.file.Artifacts)
	for i, one := range r.file.Steps {
		if one.Name != s.Name {
			continue
		}
		s.Artifacts = append(s.Artifacts, r.artifacts(fmt.Sprintf("steps[%d].artifacts", i), one.Artifacts)...)
		if one.Verifier.Environment != nil {
			section, key = one.Verifier.Environment, fmt.Sprintf("steps[%d].verifier.environment", i)
		}
	}
	c := &context{reader: r, into: &Task{Dir: r.task.Dir, Workdir: defaultWorkdir}, name: key}
	if section != nil {
		c.config = *section
	}
	for _, folder := range slices.Backward(s.Tests) {
		if compose := path.Join(folder, "docker-compose.yaml"); r.has(compose) {
			r.fail(compose, 0, noServices)
		}
		if r.has(path.Join(folder, "Dockerfile")) {
			c.folder = folder
			break
		}
	}
	switch {
	case c.folder != "":
		c.into.Env = r.variables(key+".env", c.config.Env)
		c.read()
	case c.config.Image != "": // it has the tests, which are here as well
		c.into.Env, c.into.Images = r.variables(key+".env", c.config.Env), []string{c.config.Image}
	default:
		c.into.Workdir, c.into.Copies, c.into.Env = r.task.Workdir, r.task.Copies, r.task.Env
		if section != nil {
			c.into.Env = slices.Concat(c.into.Env, r.variables(key+".env", section.Env)) // the later one counts
		}
	}
	if c.into.MemoryMB = r.task.MemoryMB; section != nil && section.MemoryMB != nil {
		c.into.MemoryMB = *section.MemoryMB
	}
	for _, name := range s.Artifacts {
		folder := path.Dir(name)
		if at := slices.IndexFunc(r.task.Mounts(""), func(m Mount) bool { return within(name, m.Inside) }); at < 0 {
			if !within(name, logsFolder) {
				r.once(r.lines.of("artifacts"), fmt.Sprintf("artifacts has %q, which is in no folder that outlives the agent: "+
					"those are where it starts, and what COPY fills", name))
			}
			continue
		} else if r.task.Mounts("")[at].Inside == name {
			folder = name
		}
		c.into.more = append(c.into.more, folder)
	}
	s.Fresh = c.into
}

// logsFolder is there in every sandbox.
const logsFolder = "/logs/artifacts"

var stepName = lazyregexp.New(`^[^/\\<>:"|?*\x00-\x1f\x7f.][^/\\<>:"|?*\x00-\x1f\x7f]{0,254}$`)

// least are the rewards without which the steps behind a step are left out.
func (r *reader) least(key string, value any) map[string]float64 {
	number := func(v any) (float64, bool) {
		switch v := v.(type) {
		case int64:
			return float64(v), true
		case float64:
			return v, finite(v)
		}
		return 0, false
	}
	if n, ok := number(value); ok {
		return map[string]float64{rewardKey: n}
	}
	table, ok := value.(map[string]any)
	out := map[string]float64{}
	for name, v := range table {
		n, isNumber := number(v)
		out[name], ok = n, ok && isNumber
	}
	if value != nil && !ok {
		r.fail(configName, r.lines.of(key+".min_reward"), "min_reward is %v; expected a number, or a table of numbers", value)
	}
	return out
}

const configName = "task.toml"

// wrongType is the library's text about a value of another type than that of a field.
var wrongType = lazyregexp.New(`^cannot decode TOML (\S+) into .* of type (\S+)$`)

// version warns of a version of the format that recipe does not know.
func (r *reader) version() {
	key, given := "schema_version", r.file.SchemaVersion
	if given == nil {
		key, given = "version", r.file.Version
	}
	if given == nil {
		return
	}
	text := fmt.Sprint(given)
	var major, minor int
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n < 1 || major != 1 || minor > 4 {
		r.warn(configName, r.lines[key], "%s is %q; recipe knows 1.0 to %s, and reads it as that", key, text, newest)
	}
}

// refuse reports what a sandbox on this machine does not have.
func (r *reader) refuse() {
	r.refuseOf("environment", &r.file.Environment)
	r.refuseIn("", r.file.Agent, r.file.Verifier)
	for i, s := range r.file.Steps {
		key := fmt.Sprintf("steps[%d].", i)
		r.refuseIn(key, s.Agent, s.Verifier)
		r.refuseAll(map[string]refusal{key + "healthcheck": {s.Healthcheck != nil, noHealth}})
	}
}

// refuseOf reports it of the section of an environment.
func (r *reader) refuseOf(key string, e *environment) {
	if e == nil {
		return
	}
	other := e.OS != "" && !strings.EqualFold(e.OS, "linux")
	r.refuseAll(map[string]refusal{
		key + ".os":            {other, fmt.Sprintf("is %q; programs run on Linux", e.OS)},
		key + ".gpus":          {e.GPUs != nil && *e.GPUs > 0, "is set; a sandbox has no GPU"},
		key + ".tpu":           {e.TPU != nil, "is set; a sandbox has no TPU"},
		key + ".mcp_servers":   {len(e.MCP) > 0, "is set; a sandbox has no MCP servers"},
		key + ".skills_dir":    {e.Skills != "", "is set; recipe gives an agent no skills"},
		key + ".healthcheck":   {e.Healthcheck != nil, noHealth},
		key + ".allowed_hosts": {len(e.Hosts) > 0, singleHosts},
	})
}

// refusal is why a key is refused where it is set.
type refusal struct {
	set  bool
	what string
}

// refuseIn reports it of the sections of an agent and of tests.
func (r *reader) refuseIn(key string, agent phase, v verifier) {
	r.refuseOf(key+"verifier.environment", v.Environment)
	r.refuseAll(map[string]refusal{
		key + "agent.allowed_hosts":    {len(agent.Hosts) > 0, singleHosts},
		key + "verifier.allowed_hosts": {len(v.Hosts) > 0, singleHosts},
		key + "agent.user":             {agent.User != nil, oneUser},
		key + "verifier.user":          {v.User != nil, oneUser},
		key + "verifier.collect":       {len(v.Collect) > 0, "is set; there are no services to collect from"},
		key + "verifier.environment_mode": {v.Mode != "" && v.Mode != shared && v.Mode != separate ||
			v.Mode == shared && v.Environment != nil, fmt.Sprintf("is %q; expected shared, without verifier.environment, or "+
			"separate", v.Mode)},
	})
}

func (r *reader) refuseAll(refusals map[string]refusal) {
	for _, key := range slices.Sorted(maps.Keys(refusals)) {
		if refusals[key].set {
			r.fail(configName, r.lines.of(key), "%s %s", key, refusals[key].what)
		}
	}
}

const (
	singleHosts = "is set; a sandbox opens no single hosts"
	noHealth    = "is set; nothing runs in a sandbox before the agent"
	oneUser     = "is set; a sandbox has one user, who is not root: leave it out"
)

// scoped is a section, with its key.
type scoped struct {
	key string
	phase
}

// phase is what the agent and the tests have in common, from sections of which an earlier one overrides a later one.
func (r *reader) phase(sections ...scoped) Phase {
	var out Phase
	mode, key := public, ""
	for _, s := range slices.Backward(sections) {
		out.Timeout = cmp.Or(r.timeout(s), out.Timeout)
	}
	for _, s := range sections {
		if s.Network != nil && key == "" {
			mode, key = *s.Network, s.key+".network_mode"
		}
	}
	switch e := &r.file.Environment; {
	case key != "":
	case e.Network != nil:
		mode, key = *e.Network, "environment.network_mode"
	case e.AllowInternet != nil:
		key = "environment.allow_internet"
		if !*e.AllowInternet {
			mode = noNetwork
		}
	}
	out.Network, out.Named = mode == public, key != ""
	switch mode {
	case public, noNetwork:
	case "allowlist":
		r.once(r.lines.of(key), fmt.Sprintf(`%s is "allowlist"; a sandbox opens no single hosts`, key))
	default:
		r.once(r.lines.of(key), fmt.Sprintf("%s is %q; expected public, no-network or allowlist", key, mode))
	}
	return out
}

// timeout is that of a section; 0: it sets none.
func (r *reader) timeout(s scoped) time.Duration {
	if s.Timeout == nil {
		return 0
	}
	seconds, key := *s.Timeout, s.key+".timeout_sec"
	if !(seconds > 0) || seconds > longest.Seconds() { // NaN is none
		r.once(r.lines.of(key), fmt.Sprintf("%s is %v; expected seconds, more than 0 and at most %d", key, seconds,
			int(longest.Seconds())))
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// longest is the longest time that a part of a task may take.
const longest = 24 * time.Hour

// once reports what two parts of a task have in common.
func (r *reader) once(line int, what string) {
	p := Problem{File: path.Join(r.task.Dir, configName), Line: line, What: what}
	if !slices.Contains(r.problems, p) {
		r.add(p)
	}
}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables are those of a section, by name.
func (r *reader) variables(key string, set map[string]string) []Variable {
	var out []Variable
	if len(set) > mostVariables {
		r.fail(configName, r.lines.of(key), "%s has %d variables, and %d are allowed", key, len(set), mostVariables)
		return nil
	}
	for name, value := range set {
		line := r.lines.of(key + "." + name)
		switch {
		case !variableName.MatchString(name):
			r.fail(configName, line, "%s has %q, which is no name of a variable", key, name)
		case strings.ContainsRune(value, 0):
			r.fail(configName, line, "%s.%s has a NUL character", key, name)
		default:
			out = append(out, Variable{name, value})
		}
	}
	slices.SortFunc(out, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// memory is environment.memory_mb.
func (r *reader) memory() int64 {
	e := &r.file.Environment
	if e.MemoryMB != nil {
		if *e.MemoryMB <= 0 || *e.MemoryMB > math.MaxInt32 {
			r.fail(configName, r.lines.of("environment.memory_mb"), "environment.memory_mb is %d; expected MiB, more than 0",
				*e.MemoryMB)
		}
		return *e.MemoryMB
	}
	if e.Memory == nil {
		return 0
	}
	text := strings.ToUpper(strings.TrimSpace(fmt.Sprint(e.Memory)))
	unit := map[string]float64{"G": 1024, "M": 1, "K": 1. / 1024}[text[max(0, len(text)-1):]]
	n, err := strconv.ParseFloat(strings.TrimRight(text, "GMK"), 64)
	if unit == 0 || err != nil || !(n > 0) || n*unit > math.MaxInt32 {
		r.fail(configName, r.lines.of("environment.memory"), `environment.memory is %q; expected a size such as "2G"`,
			fmt.Sprint(e.Memory))
		return 0
	}
	return int64(math.Ceil(n * unit))
}

// lines are the lines of the keys of a file, by path.
type lines map[string]int

// of is the line of a key, else of the table that it is in.
func (l lines) of(key string) int {
	for key != "" {
		if line, ok := l[key]; ok {
			return line
		}
		at := strings.LastIndexByte(key, '.')
		key = key[:max(at, 0)]
	}
	return 0
}

// longestKey bounds a key with the tables that it is in, in bytes.
const longestKey = 1024

// fewValues refuses more keys and values than a task has: the time to decode them grows with the square of their
// number.
func fewValues(text []byte) error {
	var p unstable.Parser
	p.Reset(text)
	values := 0
	var count func(n *unstable.Node)
	count = func(n *unstable.Node) {
		values++
		for in := n.Children(); values <= mostValues && in.Next(); {
			count(in.Node())
		}
	}
	for p.NextExpression() {
		if count(p.Expression()); values > mostValues {
			return fmt.Errorf("it has more than %d keys and values", mostValues)
		}
	}
	return nil // what else is wrong is found when it is decoded
}

// linesOf goes through the text for its keys. The second table of a list steps has keys that begin with steps[1].
func linesOf(text []byte) (lines, error) {
	out := lines{}
	var p unstable.Parser
	p.Reset(text)
	table, lists := "", map[string]int{} // of each list how many tables there are
	for p.NextExpression() {
		e := p.Expression()
		keys := e.Key()
		name, line := "", 0
		for keys.Next() {
			node := keys.Node()
			if name != "" {
				name = indexed(name, lists) + "."
			}
			name += string(node.Data)
			if line == 0 {
				line = p.Shape(node.Raw).Start.Line
			}
			if len(name) > longestKey { // what follows would take its length again and again
				return out, fmt.Errorf("the key in line %d has more than %d bytes", line, longestKey)
			}
		}
		switch e.Kind {
		case unstable.ArrayTable:
			lists[name]++
			table = indexed(name, lists) + "."
			out.put(indexed(name, lists), line)
		case unstable.Table:
			table = name + "."
		case unstable.KeyValue:
			name = table + name // at most twice as long
		default:
			continue
		}
		out.put(name, line)
	}
	return out, p.Error()
}

// indexed is the key of the last table of a list; a key of no list stays.
func indexed(key string, lists map[string]int) string {
	if n := lists[key]; n > 0 {
		return fmt.Sprintf("%s[%d]", key, n-1)
	}
	return key
}

func (l lines) put(key string, line int) {
	if _, ok := l[key]; !ok {
		l[key] = line
	}
}

// Template splits a value that is a reference to a variable: ${NAME} or ${NAME:-default}.
func Template(value string) (name, otherwise string, has, ok bool) {
	m := template.FindStringSubmatch(value)
	if m == nil {
		return "", "", false, false
	}
	return m[1], strings.TrimPrefix(m[2], ":-"), m[2] != "", true
}

var template = lazyregexp.New(`(?s)^\$\{([^}:]+)(:-.*)?\}$`)
