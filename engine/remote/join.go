package remote

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// A machine that has no file system in common with the engine's gets neither the recipe program nor a bootstrap file
// by
// it. Its job is a script that fetches the program from the engine's port, with a ticket that stands for the job's
// token
// and is good for this alone, checks its digest, which stands in the script, and gives it an agent.Join on the
// standard input. The program is no secret, so it is sent as it is; the
// bootstrap goes over TLS, to the first agent on each machine that shows the job's token.

const (
	// joinName is the file in a block's directory with the token of its job.
	joinName = "join.json"
	// programRequest is the first word of a connection that asks for the program; digest, offset and
	// ticket follow.
	programRequest = "program"
	// programsAtOnce bounds the connections that take the program. Others ask again.
	programsAtOnce = 64
)

// invitation is the content of join.json.
type invitation struct {
	Job       executor.Key   `json:"job"`
	Token     string         `json:"token"`
	Near      bool           `json:"near"`
	Grace     time.Duration  `json:"grace"`     // see executor.Resources
	Instances map[int]string `json:"instances"` // agents that have joined, by machine
}

// forJoins lets agents connect without a certificate of the run, to be admitted and for nothing else.
func forJoins(config *tls.Config) {
	joins := config.Clone()
	joins.ClientAuth, joins.NextProtos = tls.NoClientCert, []string{agent.JoinProtocol}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == agent.JoinProtocol {
			return joins, nil
		}
		return nil, nil
	}
}

// invite makes the job of a block whose agent joins, and what lets it.
func (h *Hub) invite(s Spec, near bool) (executor.Job, error) {
	i := invitation{Job: executor.Key{Run: h.id, Block: s.Block, Attempt: s.Attempt}, Near: near, Token: rand.Text(),
		Instances: map[int]string{}, Grace: s.Grace}
	path := filepath.Join(s.Dir, joinName)
	if old, err := readInvitation(path); err == nil && old.Job == i.Job { // of a job that is taken over
		i = old
	}
	if err := agent.WriteJSON(path, i); err != nil {
		return executor.Job{}, err
	}
	h.mu.Lock()
	join := agent.Join{Format: agent.BootstrapFormat, Job: i.Job, Token: i.Token, Addresses: h.addresses,
		Authority: h.authority.pair.Certificate, Patience: connectPatience}
	h.mu.Unlock()
	input, err := json.Marshal(join)
	if err != nil {
		return executor.Job{}, err
	}
	return s.describeStaged(h.id, string(input)+"\n", i.ticket(), join.Addresses...)
}

// describeStaged is the job of a block whose agent joins: with the addresses of the engine, when they are known.
func (s Spec) describeStaged(run, input, ticket string, engine ...string) (executor.Job, error) {
	digest, err := programDigest()
	if err != nil {
		return executor.Job{}, fmt.Errorf("read this program, which the agent is: %w", err)
	}
	how, err := s.Executor.files()
	if err != nil {
		return executor.Job{}, err
	}
	if len(engine) == 0 {
		engine = []string{"ENGINE:PORT"}
	}
	argv := append([]string{"/bin/bash", "-c", fetchScript, "recipe-agent", how.Scratch, digest, ticket}, engine...)
	return executor.Job{Key: executor.Key{Run: run, Block: s.Block, Attempt: s.Attempt}, Argv: argv, Input: input,
		Resources: s.Resources}, nil
}

// program is this program's path: that of the running one, also when its file was replaced.
func program() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// programDigest is its digest, which is computed once: a plan names it for each job.
var programDigest = sync.OnceValues(func() (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	digest, _, err := digestOf(path)
	return digest, err
})

// The exit statuses of fetchScript.
const (
	noScratch = 80
	noProgram = 81
)

// fetchScript needs bash and coreutils. Its arguments are the folder for staged files, the digest of the program, the
// ticket for it, and the addresses of the engine.
const fetchScript = `umask 077
scratch=$1 digest=$2 ticket=$3; shift 3
[ -w "${HOME:-/none}" ] || export HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
case $scratch in
  "~"*) scratch=$HOME${scratch#"~"} ;;
  "$"*) name=${scratch%%/*}; name=${name#"$"}; scratch=${!name:?is not set on this machine}${scratch#"\$$name"} ;;
esac
mkdir -p "$scratch/blobs/sha256" && [ -O "$scratch" ] && chmod 700 "$scratch" || exit 80
program=$scratch/blobs/sha256/$digest
good() { [ "$(sha256sum <"$1" | cut -d" " -f1)" = "$digest" ]; }
fetch() { # HOST PORT: what is missing of the program
  timeout 10 bash -c "exec 3<>/dev/tcp/$1/$2" || return
  exec 3<>"/dev/tcp/$1/$2" || return
  echo "program $digest $(stat -c %s "$part") $ticket" >&3
  timeout 120 cat <&3 >>"$part"
  exec 3<&-
}
if ! { [ -f "$program" ] && good "$program"; }; then
  part=$(mktemp "$program.XXXXXX") || exit 80
  trap "rm -f $(printf %q "$part")" EXIT
  for try in {1..60}; do
    for at in "$@"; do
      host=${at%:*}; host=${host#[}
      fetch "${host%]}" "${at##*:}" 2>/dev/null
      good "$part" && break 2
    done
    [ $((try % 20)) = 0 ] && : >"$part" # damaged
    sleep 1
  done
  good "$part" || { echo "the recipe program was not fetched from any of: $*" >&2; exit 81; }
  chmod 500 "$part" && mv -f "$part" "$program" || exit 80
fi
trap - EXIT
exec -a recipe "$program" agent --bootstrap - --scratch "$scratch"`

// why explains an exit status of fetchScript; empty for another.
func why(status *int) string {
	switch {
	case status == nil:
		return ""
	case *status == noScratch:
		return "; its machine has no folder for staged files: scratch of the executor names another"
	case *status == noProgram:
		return "; it could not fetch the recipe program: a firewall may keep its machine from the engine's port"
	}
	return ""
}

func readInvitation(path string) (i invitation, err error) {
	data, err := private.ReadFile(path, 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &i)
	}
	return i, err
}

// admit gives an agent its bootstrap.
func (h *Hub) admit(c *tls.Conn) error {
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	r, err := agent.ReadJoin(c)
	if err != nil {
		return err
	}
	b, err := h.admitted(r)
	if err != nil {
		return agent.AnswerJoin(c, agent.JoinResponse{Error: err.Error()})
	}
	return agent.AnswerJoin(c, agent.JoinResponse{Bootstrap: b})
}

// admitted checks the token of an agent, which is good for the first that shows it on each machine.
func (h *Hub) admitted(r agent.JoinRequest) (*agent.Bootstrap, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, dir := h.peers[agent.NameOf(r.Job, r.Node)], h.dirs[r.Job]
	refused := fmt.Errorf("no agent of job %s is expected, or its token is another", r.Job)
	if p == nil || p.node != r.Node || dir == "" { // a negative number is in no name
		return nil, refused
	}
	path := filepath.Join(dir, joinName)
	i, err := readInvitation(path)
	if err != nil || subtle.ConstantTimeCompare([]byte(i.Token), []byte(r.Token)) != 1 || i.Job != r.Job {
		return nil, refused
	}
	if other := i.Instances[r.Node]; other != "" && other != r.Instance {
		return nil, errors.New("the token of the job was used by another agent: was the job started twice?")
	}
	i.Instances[r.Node] = r.Instance
	if err := agent.WriteJSON(path, i); err != nil {
		return nil, err
	}
	own, err := h.authority.issue(p.name)
	if err != nil {
		return nil, err
	}
	b := &agent.Bootstrap{Format: agent.BootstrapFormat, Job: r.Job, Node: r.Node, Credentials: own,
		Addresses: h.addresses, Patience: connectPatience, Folder: "blocks/" + filepath.Base(dir), Grace: i.Grace}
	if i.Near {
		b.Listen = "127.0.0.1"
	}
	return b, nil
}

// announce writes down where a later engine reaches an agent that cannot do so itself.
func (h *Hub) announce(p *peer) error {
	via, err := p.via()
	if err != nil {
		return err
	}
	path := agent.AddressFile(filepath.Join(h.run, addressFile), p.name)
	if err := private.Dir(filepath.Dir(path)); err != nil {
		return err
	}
	return agent.WriteJSON(path, agent.Addresses{Format: agent.BootstrapFormat, Addresses: via})
}

// listenAgain listens where an earlier engine did, if the port is free: the scripts of jobs in the queue name it.
func (h *Hub) listenAgain(near bool) (net.Listener, error) {
	host := ""
	if near {
		host = "127.0.0.1"
	}
	var old agent.Addresses
	data, err := private.ReadFile(filepath.Join(h.run, addressFile), 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil {
		for _, address := range old.Addresses {
			at, port, err := net.SplitHostPort(address)
			if err != nil || (at == "127.0.0.1") != near {
				continue
			}
			if l, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
				return l, nil
			}
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// peeked is a connection of which the first bytes were read with a buffer.
type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 0x16

// peek tells agents from scripts that ask for the program, which it answers.
func (h *Hub) peek(raw net.Conn) (c net.Conn, asks bool, err error) {
	_ = raw.SetReadDeadline(time.Now().Add(helloTimeout))
	in := bufio.NewReaderSize(raw, 4096)
	first, err := in.Peek(1)
	if err != nil {
		return nil, false, err
	}
	if first[0] == tlsHandshake {
		_ = raw.SetReadDeadline(time.Time{})
		return peeked{raw, in}, false, nil
	}
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, false, err
	}
	f, err := h.program(string(line))
	if err != nil {
		return nil, false, err
	}
	select {
	case h.programs <- struct{}{}:
	default:
		return nil, false, errors.Join(errors.New("too many agents fetch the program at a time"), f.Close())
	}
	h.group.Go(func() {
		defer func() { <-h.programs }()
		defer func() { _, _ = raw.Close(), f.Close() }()
		_, _ = io.Copy(steady{raw}, f)
	})
	return nil, true, nil
}

// ticket lets the script of a job fetch the program. It travels in the clear and stands in the job's arguments, so it
// is
// not the token, nor does it tell the token.
func (i invitation) ticket() string {
	mac := hmac.New(sha256.New, []byte(i.Token))
	_, _ = mac.Write([]byte(programRequest))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// invited reports whether a ticket belongs to a job whose agent is expected.
func (h *Hub) invited(ticket string) bool {
	h.mu.Lock()
	dirs := slices.Collect(maps.Values(h.dirs))
	h.mu.Unlock()
	return slices.ContainsFunc(dirs, func(dir string) bool {
		i, err := readInvitation(filepath.Join(dir, joinName))
		return err == nil && i.Token != "" && subtle.ConstantTimeCompare([]byte(i.ticket()), []byte(ticket)) == 1
	})
}

// program opens this program at the offset that a script with a ticket asks for.
func (h *Hub) program(line string) (*os.File, error) {
	var digest, ticket string
	var offset int64
	if _, err := fmt.Sscanf(line, programRequest+" %s %d %s", &digest, &offset, &ticket); err != nil || offset < 0 {
		return nil, errors.New("neither TLS nor a request for the program")
	}
	if !h.invited(ticket) {
		return nil, fs.ErrPermission
	}
	path, err := program()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err == nil {
		if _, err = f.Seek(offset, io.SeekStart); err != nil {
			_ = f.Close()
		}
	}
	return f, err
}

// steady writes to a connection until nothing is taken for helloTimeout.
type steady struct{ net.Conn }

func (s steady) Write(b []byte) (int, error) {
	_ = s.SetWriteDeadline(time.Now().Add(helloTimeout))
	return s.Conn.Write(b)
}
