package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Kubeconfig files are read here and not by client-go, which would add 84 packages and 2,700 allocations to every start
// of the program for the five requests of an executor.

// kubeconfig is a kubeconfig file, as far as it matters here.
type kubeconfig struct {
	Current  string         `yaml:"current-context"`
	Contexts []namedContext `yaml:"contexts"`
	Clusters []namedCluster `yaml:"clusters"`
	Users    []namedUser    `yaml:"users"`
}

type namedContext struct {
	Name    string `yaml:"name"`
	Context struct {
		Cluster   string `yaml:"cluster"`
		User      string `yaml:"user"`
		Namespace string `yaml:"namespace"`
	} `yaml:"context"`
}

type namedCluster struct {
	Name    string       `yaml:"name"`
	Cluster clusterEntry `yaml:"cluster"`
}

type clusterEntry struct {
	Server     string `yaml:"server"`
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	ServerName string `yaml:"tls-server-name"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Proxy      string `yaml:"proxy-url"`
}

type namedUser struct {
	Name string    `yaml:"name"`
	User userEntry `yaml:"user"`
}

type userEntry struct {
	Token    string   `yaml:"token"`
	File     string   `yaml:"tokenFile"`
	CertFile string   `yaml:"client-certificate"`
	CertData string   `yaml:"client-certificate-data"`
	KeyFile  string   `yaml:"client-key"`
	KeyData  string   `yaml:"client-key-data"`
	Username string   `yaml:"username"`
	Provider any      `yaml:"auth-provider"`
	As       string   `yaml:"as"`
	Exec     *program `yaml:"exec"`
}

// program prints credentials.
type program struct {
	APIVersion string                         `yaml:"apiVersion"`
	Command    string                         `yaml:"command"`
	Args       []string                       `yaml:"args"`
	Hint       string                         `yaml:"installHint"`
	Env        []struct{ Name, Value string } `yaml:"env"`
	Cluster    bool                           `yaml:"provideClusterInfo"`
}

// inPod is where a pod finds its service account.
const inPod = "/var/run/secrets/kubernetes.io/serviceaccount"

// connect reads where the cluster is and who asks.
func connect(c Config) (*client, error) {
	path, err := kubeconfigPath(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return connectInPod(c)
	}
	data, err := regular.FollowFile(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("%w: read the kubeconfig file: %w", executor.ErrUnreachable, err)
	}
	var file kubeconfig
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read the kubeconfig file %s: %w", path, err)
	}
	out, err := file.open(c, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig file %s: %w", path, err)
	}
	return out, nil
}

// Bounds of a kubeconfig file, of which YAML makes a hundred times as much in memory, and of what it names: a recipe
// names both.
const (
	maxConfig = 2 << 20
	maxText   = 16 << 20
)

// kubeconfigPath is the file to read; empty in a pod without one.
func kubeconfigPath(named string) (string, error) {
	home, _ := os.UserHomeDir()
	if named != "" {
		if rest, ok := strings.CutPrefix(named, "~/"); ok {
			named = filepath.Join(home, rest)
		}
		return named, nil
	}
	if files := filepath.SplitList(os.Getenv("KUBECONFIG")); len(files) > 1 {
		return "", fmt.Errorf("KUBECONFIG names %d files, expected one: make one of them by `kubectl config view "+
			"--flatten`, and name it by `kubeconfig` of the executor", len(files))
	} else if len(files) == 1 && files[0] != "" {
		return files[0], nil
	}
	path := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return "", nil
	}
	return "", fmt.Errorf("%w: there is no %s, and neither `kubeconfig` of the executor nor KUBECONFIG names another file",
		executor.ErrUnreachable, path)
}

// Reads implements executor.Reader: the kubeconfig file that the recipe names, unless it is the user's own, and the
// program in it that prints credentials.
func (k *kubernetes) Reads() []string {
	if k.config.Kubeconfig == "" {
		return nil
	}
	path, err := kubeconfigPath(k.config.Kubeconfig)
	if err != nil || isStandard(path) {
		return nil // it is not used, or the user's
	}
	reads := []string{path}
	data, err := regular.FollowFile(path, maxConfig)
	if err != nil {
		return reads
	}
	var file kubeconfig
	if yaml.Unmarshal(data, &file) != nil {
		return reads
	}
	for _, u := range file.Users {
		if u.User.Exec != nil && strings.ContainsRune(u.User.Exec.Command, filepath.Separator) {
			reads = append(reads, within(filepath.Dir(path), u.User.Exec.Command))
		}
	}
	return reads
}

// isStandard reports whether a path is the default one, or one that the user's environment names.
func isStandard(path string) bool {
	home, _ := os.UserHomeDir()
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, own := range append(filepath.SplitList(os.Getenv("KUBECONFIG")), filepath.Join(home, ".kube", "config")) {
		if i, err := os.Stat(own); err == nil && filepath.IsAbs(own) && os.SameFile(i, info) {
			return true
		}
	}
	return false
}

func connectInPod(c Config) (*client, error) {
	server := "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	namespace, err := os.ReadFile(filepath.Join(inPod, "namespace"))
	if err != nil {
		return nil, fmt.Errorf("read the service account of this pod: %w", err)
	}
	return newClient(cmp.Or(c.Namespace, strings.TrimSpace(string(namespace))), inPod,
		clusterEntry{Server: server, CAFile: "ca.crt"}, userEntry{File: "token"})
}

// open makes the client of a context. Paths in the file are relative to its folder.
func (f kubeconfig) open(c Config, dir string) (*client, error) {
	name := cmp.Or(c.Context, f.Current)
	var known []string
	for _, x := range f.Contexts {
		if known = append(known, x.Name); x.Name != name {
			continue
		}
		for _, cluster := range f.Clusters {
			if cluster.Name != x.Context.Cluster {
				continue
			}
			var user userEntry
			for _, u := range f.Users {
				if u.Name == x.Context.User {
					user = u.User
				}
			}
			return newClient(cmp.Or(c.Namespace, x.Context.Namespace, "default"), dir, cluster.Cluster, user)
		}
		return nil, fmt.Errorf("context %q names the cluster %q, which is not there", name, x.Context.Cluster)
	}
	return nil, fmt.Errorf("there is no context %q; there are %q", name, known)
}

// content is what a kubeconfig file says inline, in base64, or by the name of a file.
func content(inline, file, dir string) ([]byte, error) {
	if inline != "" {
		return base64.StdEncoding.DecodeString(inline)
	}
	if file == "" {
		return nil, nil
	}
	return regular.FollowFile(within(dir, file), maxText)
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func newClient(namespace, dir string, cluster clusterEntry, user userEntry) (*client, error) {
	if user.Provider != nil || user.Username != "" || user.As != "" {
		return nil, errors.New("its user has auth-provider, username or as, which recipe does not know: expected a token, " +
			"a certificate or exec")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.ServerName,
		InsecureSkipVerify: cluster.Insecure} //nolint:gosec // the user's own file says so
	ca, err := content(cluster.CAData, cluster.CAFile, dir)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of the cluster: %w", err)
	}
	if ca != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate authority of the cluster cannot be read; expected PEM")
		}
	}
	who := &credentials{user: user, dir: dir}
	config.GetClientCertificate = who.certificate
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	if cluster.Proxy != "" {
		proxy, err := url.Parse(cluster.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return &client{server: strings.TrimSuffix(cluster.Server, "/"), namespace: namespace, who: who,
		http: &http.Client{Transport: transport, CheckRedirect: stay}}, nil
}

// stay follows no redirect: an API server sends none, and what is asked holds the token and the Secrets of jobs.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// credentials are who asks.
type credentials struct {
	user userEntry
	dir  string

	mu      sync.Mutex
	printed printed // by the program of exec
}

// printed is the status of an ExecCredential.
type printed struct {
	Token   string    `json:"token"`
	Cert    string    `json:"clientCertificateData"`
	Key     string    `json:"clientKeyData"`
	Expires time.Time `json:"expirationTimestamp"`
}

// token is the bearer token; empty when a certificate says who asks. Files and programs are asked again, as tokens end.
func (c *credentials) token(ctx context.Context) (string, error) {
	switch {
	case c.user.Exec != nil:
		p, err := c.fromProgram(ctx)
		return p.Token, err
	case c.user.File != "":
		data, err := regular.FollowFile(within(c.dir, c.user.File), maxText)
		if err != nil {
			return "", fmt.Errorf("read the token for the cluster: %w", err)
		}
		return strings.TrimSpace(string(data)), nil
	}
	return c.user.Token, nil
}

// certificate is that of the client; an empty one when a token says who asks.
func (c *credentials) certificate(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var cert, key []byte
	var err error
	if c.user.Exec != nil {
		p, failed := c.fromProgram(request.Context())
		cert, key, err = []byte(p.Cert), []byte(p.Key), failed
	} else {
		cert, err = content(c.user.CertData, c.user.CertFile, c.dir)
		if err == nil {
			key, err = content(c.user.KeyData, c.user.KeyFile, c.dir)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	if len(cert) == 0 {
		return &tls.Certificate{}, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &pair, err
}

// programTimeout bounds a program that prints credentials.
const programTimeout = 30 * time.Second

// fromProgram returns what the program of exec has printed, until it expires.
func (c *credentials) fromProgram(ctx context.Context) (printed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.printed.Token+c.printed.Cert != "" &&
		(c.printed.Expires.IsZero() || time.Until(c.printed.Expires) > time.Minute) {
		return c.printed, nil
	}
	p := c.user.Exec
	if p.Cluster {
		return printed{}, fmt.Errorf("%s requires provideClusterInfo, which recipe does not support", p.Command)
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	command := p.Command
	if strings.ContainsRune(command, filepath.Separator) {
		command = within(c.dir, command)
	}
	cmd := exec.CommandContext(ctx, command, p.Args...)
	out, said := bounded.Buffer{Limit: maxText}, bounded.Buffer{Limit: maxText}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	info := fmt.Sprintf(`{"apiVersion":%q,"kind":"ExecCredential","spec":{"interactive":false}}`, p.APIVersion)
	cmd.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+info)
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	err := cmd.Run()
	if more := cmp.Or(out.Err(), said.Err()); more != nil {
		return printed{}, fmt.Errorf("ask %s for credentials: what it printed is %w", p.Command, more)
	}
	if err != nil {
		return printed{}, fmt.Errorf("ask %s for credentials: %w: %s %s", p.Command, cmp.Or(ctx.Err(), err),
			strings.TrimSpace(said.String()), p.Hint)
	}
	var answer struct{ Status printed }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Status.Token+answer.Status.Cert == "" {
		return printed{}, fmt.Errorf("%s has printed no credentials (kind ExecCredential, %s)", p.Command, p.APIVersion)
	}
	c.printed = answer.Status
	return c.printed, nil
}

// forget has the program of exec asked again.
func (c *credentials) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.printed = printed{}
}
