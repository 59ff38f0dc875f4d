package taskfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// defaultWorkdir is where a program starts whose task names no folder.
const defaultWorkdir = "/app"

// reserved are folders of a sandbox that a task cannot fill.
func reserved() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/etc", "/proc", "/dev",
		"/sys", "/run", "/tmp", "/tests", "/solution", "/logs", "/rollout"}
}

// context is a folder of a task from which an environment is made, and the environment.
type context struct {
	*reader
	folder string // of the task
	into   *Task
	name   string      // of its section in task.toml
	config environment // that section
}

func (c *context) file() string { return path.Join(c.folder, "Dockerfile") }

// environment finds what the agent begins with, and what tests begin with that run elsewhere.
func (r *reader) environment() {
	f := r.file
	if f == nil {
		f = &file{}
	}
	c := &context{reader: r, folder: "environment", into: r.task, name: "environment", config: f.Environment}
	c.read()
	for i := range r.task.Steps {
		r.fresh(&r.task.Steps[i])
	}
}

// read finds what the Dockerfile copies, else takes all files of the folder.
func (c *context) read() {
	t := c.into
	if image := c.config.Image; image != "" {
		t.Images = append(t.Images, image)
	}
	if _, err := os.Lstat(filepath.Join(t.Dir, c.file())); err != nil {
		c.wholeFolder()
	} else if text, ok := c.text(c.file()); ok {
		d := &dockerfile{context: c, env: map[string]string{}}
		d.read(string(text))
	}
	if workdir := c.config.Workdir; workdir != "" {
		t.Workdir = path.Clean(workdir)
		line := c.lines.of(c.name + ".workdir")
		if !path.IsAbs(workdir) {
			c.fail(configName, line, "%s.workdir is %q; expected a path that begins with /", c.name, workdir)
			return
		}
		c.place(configName, line, t.Workdir)
	}
	for i := range t.Copies { // what has no Dockerfile is put where the agent starts
		if t.Copies[i].Dest == "" {
			t.Copies[i].Dest = t.Workdir
		}
	}
}

// wholeFolder takes all files of the folder.
func (c *context) wholeFolder() {
	entries, err := os.ReadDir(filepath.Join(c.task.Dir, c.folder))
	if err == nil && len(entries) > 0 {
		c.into.Copies = []Copy{{From: c.folder, Sources: []string{"."}, Folder: true}}
		return
	}
	if len(c.into.Images) > 0 {
		c.fail(configName, c.lines.of(c.name+".docker_image"), "%s.docker_image is %q and the folder %s has no files: "+
			"those of the task are in the image, which recipe does not read. Add them to the folder", c.name,
			c.into.Images[0], c.folder)
	}
}

// place refuses a folder that a sandbox has already.
func (c *context) place(file string, line int, folder string) {
	if folder == "/" {
		c.fail(file, line, "the files of a task cannot be put into / itself: name a folder, such as %s", defaultWorkdir)
		return
	}
	for _, taken := range reserved() {
		if within(folder, taken) && (taken != testsFolder || c.into == c.task) {
			c.fail(file, line, "the files of a task cannot be put into %q: %s is a folder of the sandbox itself. Name another, "+
				"such as %s", folder, taken, defaultWorkdir)
		}
	}
}

// testsFolder has the tests in a sandbox.
const testsFolder = "/tests"

// dockerfile reads a Dockerfile: FROM, ENV, WORKDIR and COPY.
type dockerfile struct {
	*context
	workdir string // empty: not set yet
	env     map[string]string
	stages  int

	files    []string // of the folder, once a pattern asks for them
	compared int      // files with patterns
	sources  int      // files and folders that COPY has named
}

// Limits of a Dockerfile, which would else take much more memory and time than it has bytes.
const (
	mostInstructions = 1000
	mostFiles        = 100_000   // of its folder, where a pattern stands for some
	mostCompared     = 2_000_000 // files with patterns
	mostSources      = 10_000
	mostEnv          = 1 << 20 // bytes of the values of ENV together
	longestPath      = 4096
)

// instruction is one instruction of a Dockerfile.
type instruction struct {
	name, rest string
	line       int
}

func (d *dockerfile) fault(line int, format string, args ...any) {
	d.fail(d.file(), line, format, args...)
}

func (d *dockerfile) read(text string) {
	all, err := instructions(text)
	if err != nil {
		d.fault(err.line, "%s", err.what)
		return
	}
	if len(all) > mostInstructions {
		d.fault(all[mostInstructions].line, "it has more than %d instructions", mostInstructions)
		return
	}
	for _, one := range all {
		if slices.Contains(d.skip, one.name) {
			continue
		}
		switch one.name {
		case "FROM":
			d.from(one)
		case "ENV":
			d.setEnv(one)
		case "WORKDIR":
			d.setWorkdir(one)
		case "COPY":
			d.copyFiles(one)
		default:
			d.fault(one.line, "%s is not run: a program has the programs of this machine. Where they are enough, write "+
				"skip = [%q]; of a Dockerfile FROM, ENV, WORKDIR and COPY are read", one.name, one.name)
		}
	}
	if len(all) == 0 || d.stages == 0 {
		d.fault(0, "it has no FROM")
	}
	if d.workdir != "" {
		d.into.Workdir = d.workdir
	}
	for name := range d.env {
		i := slices.IndexFunc(d.into.Env, func(v Variable) bool { return v.Name == name })
		if i < 0 { // task.toml overrides it
			d.into.Env = append(d.into.Env, Variable{name, d.env[name]})
		}
	}
	slices.SortFunc(d.into.Env, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
}

func (d *dockerfile) from(one instruction) {
	if d.stages++; d.stages > 1 {
		d.fault(one.line, "it has a second FROM: what one stage builds for another is not there without building it")
	}
	for _, word := range strings.Fields(one.rest) {
		if !strings.HasPrefix(word, "--") {
			d.into.Images = append(d.into.Images, word)
			return
		}
	}
	d.fault(one.line, "FROM names no image")
}

func (d *dockerfile) setEnv(one instruction) {
	first, rest, _ := strings.Cut(one.rest, " ")
	if !strings.Contains(first, "=") { // its old form: the rest of the line is the value
		one.rest = first + "=" + quoteWord(strings.TrimSpace(rest))
	}
	set, err := d.words(one.rest)
	if err != nil {
		d.fault(one.line, "ENV: %v", err)
		return
	}
	for _, word := range set { // they see the values of before this instruction
		name, value, ok := strings.Cut(word, "=")
		if !ok || !variableName.MatchString(name) {
			d.fault(one.line, "ENV has %q; expected NAME=value", word)
			return
		}
		d.env[name] = value
	}
	size := 0
	for name, value := range d.env {
		size += len(name) + len(value)
	}
	if size > mostEnv {
		d.fault(one.line, "the values of ENV have more than %d bytes together", mostEnv)
		clear(d.env)
	}
}

// quoteWord makes one word of a text, in which variables are still replaced.
func quoteWord(text string) string {
	if strings.ContainsAny(text, `"'\`) {
		return text
	}
	return `"` + text + `"`
}

func (d *dockerfile) setWorkdir(one instruction) {
	words, err := d.words(one.rest)
	if err == nil && len(words) != 1 {
		err = fmt.Errorf("it has %d words; expected a folder", len(words))
	}
	if err != nil {
		d.fault(one.line, "WORKDIR: %v", err)
		return
	}
	if d.workdir = d.absolute(words[0]); len(d.workdir) > longestPath {
		d.fault(one.line, "WORKDIR has more than %d bytes", longestPath)
		d.workdir = ""
		return
	}
	d.place(d.file(), one.line, d.workdir)
}

// absolute is a path of the image.
func (d *dockerfile) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	base := d.workdir
	if base == "" {
		base = defaultWorkdir
	}
	return path.Join(base, name)
}

func (d *dockerfile) copyFiles(one instruction) {
	rest := one.rest
	for strings.HasPrefix(rest, "--") {
		flag, after, _ := strings.Cut(rest, " ")
		name, _, _ := strings.Cut(flag, "=")
		if slices.Contains(d.skip, "COPY "+name) {
			return
		}
		if name != "--chown" && name != "--link" { // all files are the user's
			d.fault(one.line, "COPY has %s, which recipe does not do. Where it is not needed, write skip = [%q]", name,
				"COPY "+name)
			return
		}
		rest = strings.TrimSpace(after)
	}
	var words []string
	var err error
	if strings.HasPrefix(rest, "[") {
		if err = json.Unmarshal([]byte(rest), &words); err != nil {
			err = errors.New("expected a list of texts in JSON")
		}
	} else {
		words, err = d.words(rest)
	}
	if err == nil && len(words) < 2 {
		err = fmt.Errorf("it has %d words; expected files and where to", len(words))
	}
	if err != nil {
		d.fault(one.line, "COPY: %v", err)
		return
	}
	dest, sources := words[len(words)-1], []string(nil)
	folder := strings.HasSuffix(dest, "/") || dest == "." || strings.HasSuffix(dest, "/.")
	for _, word := range words[:len(words)-1] {
		found, err := d.matches(word)
		if err != nil {
			d.fault(one.line, "COPY: %v", err)
			return
		}
		for _, name := range found {
			info, err := os.Stat(filepath.Join(d.task.Dir, d.folder, name))
			folder = folder || err == nil && info.IsDir()
		}
		sources = append(sources, found...)
	}
	c := Copy{From: d.folder, Sources: sources, Dest: d.absolute(dest), Folder: folder || len(sources) > 1}
	d.place(d.file(), one.line, c.into())
	if !within(c.into(), testsFolder) { // all tests are there anyway
		d.into.Copies = append(d.into.Copies, c)
	}
}

// into is the folder that a copy writes to.
func (c Copy) into() string {
	if c.Folder {
		return c.Dest
	}
	return path.Dir(c.Dest)
}

// matches are the files of the folder that a word of COPY names.
func (d *dockerfile) matches(word string) ([]string, error) {
	name := strings.TrimPrefix(path.Clean("/"+word), "/") // nothing is above the folder
	if name == "" {
		name = "."
	}
	root, err := os.OpenRoot(filepath.Join(d.task.Dir, d.folder))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	var found []string
	if !strings.ContainsAny(name, `*?[\`) {
		if _, err = root.Stat(name); err == nil {
			found = []string{name}
		}
	} else {
		found, err = d.matching(root, name)
	}
	if d.sources += len(found); d.sources > mostSources {
		return nil, fmt.Errorf("COPY names more than %d files and folders: copy the folder that they are in", mostSources)
	}
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("the folder %s has no %q", d.folder, word)
	}
	return found, nil
}

// matching are the files of the folder that a pattern stands for.
func (d *dockerfile) matching(root *os.Root, pattern string) (found []string, err error) {
	if d.files == nil {
		// Not fs.Glob, which follows links: in circles of them it would find more and more.
		err := fs.WalkDir(root.FS(), ".", func(at string, _ fs.DirEntry, err error) error {
			if d.files = append(d.files, at); err == nil && len(d.files) > mostFiles {
				err = fmt.Errorf("the folder %s has more than %d files: name them without a pattern", d.folder, mostFiles)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if d.compared += len(d.files); d.compared > mostCompared {
		return nil, errors.New("there are too many patterns for so many files: name them, or their folder")
	}
	for _, at := range d.files {
		if ok, err := path.Match(pattern, at); err != nil {
			return nil, err
		} else if ok {
			found = append(found, at)
		}
	}
	return found, nil
}

// fileError is a fault that ends reading a Dockerfile.
type fileError struct {
	line int
	what string
}

var (
	directive = lazyregexp.New(`^#\s*escape\s*=\s*(\S)`)
	heredoc   = lazyregexp.New(`<<-?["']?([A-Za-z_][A-Za-z0-9_]*)["']?`)
)

// instructions splits a Dockerfile.
func instructions(text string) (out []instruction, _ *fileError) {
	all := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if m := directive.FindStringSubmatch(all[0]); len(m) == 2 && m[1] != `\` {
		return nil, &fileError{1, "it has another escape character than \\, which recipe does not read"}
	}
	for i := 0; i < len(all); i++ {
		line := strings.TrimSpace(all[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at, parts, open := i+1, []string{strings.TrimSuffix(line, `\`)}, strings.HasSuffix(line, `\`)
		for open && i+1 < len(all) {
			i++
			next := strings.TrimSpace(all[i])
			if next == "" || strings.HasPrefix(next, "#") {
				continue
			}
			parts, open = append(parts, strings.TrimSuffix(next, `\`)), strings.HasSuffix(next, `\`)
		}
		line = strings.Join(parts, " ")
		name, rest, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
		one := instruction{strings.ToUpper(name), strings.TrimSpace(rest), at}
		if m := heredoc.FindStringSubmatch(one.rest); m != nil && (one.name == "RUN" || one.name == "COPY" ||
			one.name == "ADD") {
			for i++; i < len(all) && strings.TrimSpace(all[i]) != m[1]; i++ { //nolint:revive // the text is left out
			}
			if one.name == "COPY" {
				return nil, &fileError{at, "COPY has a text in the Dockerfile itself (<<), which recipe does not read: put it " +
					"into a file"}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// longestWord bounds a word with the values of variables in it, in bytes.
const longestWord = 64 << 10

// words splits the rest of an instruction, and puts in the values of variables. $PATH stays, for when it is known.
func (d *dockerfile) words(text string) ([]string, error) {
	var out []string
	var word strings.Builder
	has, quote, size := false, byte(0), 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\$", rune(text[i])) {
				word.WriteByte('\\')
			}
			word.WriteByte(text[i])
			has = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, has = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if has {
				out = append(out, word.String())
				word.Reset()
				has = false
			}
		case c == '$' && quote != '\'':
			value, n, err := d.variable(text[i:])
			if err != nil {
				return nil, err
			}
			if word.WriteString(value); word.Len() > longestWord { // A=$A$A, again and again
				return nil, fmt.Errorf("a word has more than %d bytes", longestWord)
			}
			if size += len(value); size > mostEnv {
				return nil, fmt.Errorf("its variables have more than %d bytes together", mostEnv)
			}
			i += n - 1
			has = true
		default:
			word.WriteByte(c)
			has = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote %c is not closed", quote)
	}
	if has {
		out = append(out, word.String())
	}
	return out, nil
}

var reference = lazyregexp.New(`^\$(\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// OwnPath stands in values of variables for the PATH of the sandbox.
const OwnPath = "${PATH}"

// variable is the value of the variable that a text begins with, and how long its name is.
func (d *dockerfile) variable(text string) (string, int, error) {
	m := reference.FindStringSubmatch(text)
	if m == nil {
		return "", 0, fmt.Errorf("%.20q is no variable that recipe reads: $NAME or ${NAME}", text)
	}
	name := m[2] + m[3]
	if value, ok := d.env[name]; ok {
		return value, len(m[0]), nil
	}
	if name == "PATH" {
		return OwnPath, len(m[0]), nil
	}
	return "", 0, fmt.Errorf("the variable %s is not set by ENV before it", name)
}
