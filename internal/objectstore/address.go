// Package objectstore reads and writes a bucket of a store with Amazon's S3 interface: AWS itself, MinIO, Ceph, R2, GCS
// and others.
package objectstore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Form is what an address looks like.
const Form = "s3://BUCKET/FOLDER, for another store than AWS with ?endpoint=https://HOST[:PORT] and, where it has " +
	"several, &region=REGION"

// Address is where objects are. The zero value is invalid.
type Address struct {
	Bucket   string
	Folder   string // without slashes at its ends; may be empty
	Endpoint string // HOST[:PORT]; empty: that of the environment, or AWS
	Region   string // empty: that of the environment, or the store's own
	Plain    bool   // without TLS
}

var bucketName = lazyregexp.New(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Parse reads an address. It asks nobody.
func Parse(text string) (Address, error) {
	wrong := func(why string) (Address, error) {
		return Address{}, &sdk.Error{Summary: fmt.Sprintf("%q is not the address of a store: %s", redacted(text), why),
			Remedy: "write " + Form}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return wrong("it is no URL")
	case u.Scheme != "s3":
		return wrong("it does not begin with s3://")
	case u.User != nil:
		return wrong("keys have no place in it; they come from the environment (AWS_ACCESS_KEY_ID), ~/.aws/credentials " +
			"or the machine's role")
	case !bucketName.MatchString(u.Host):
		return wrong(fmt.Sprintf("%q is not the name of a bucket", u.Host))
	case u.Fragment != "":
		return wrong("it has a fragment (#)")
	}
	a := Address{Bucket: u.Host, Folder: strings.Trim(u.Path, "/")}
	for name, values := range u.Query() {
		switch name {
		case "endpoint":
			if err := a.at(values[0]); err != nil {
				return wrong(err.Error())
			}
		case "region":
			a.Region = values[0]
		default:
			return wrong(fmt.Sprintf("it has the unknown parameter %q", name))
		}
	}
	return a, nil
}

// redacted is an address without what may be keys that someone has put into it.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(no URL)"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

// at sets the endpoint. Without TLS keys are not sent, but whoever listens reads and changes what is: so it must be
// this machine, or a network of one's own.
func (a *Address) at(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("endpoint must be https://HOST[:PORT], and is %q", redacted(endpoint))
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && private(u.Hostname()):
		a.Plain = true
	case u.Scheme == "http":
		return fmt.Errorf("endpoint %s has no TLS, which is for this machine and private networks only", u.Host)
	default:
		return fmt.Errorf("endpoint must begin with https://, and is %q", redacted(endpoint))
	}
	a.Endpoint = u.Host
	return nil
}

// private says whether a host is this machine, or has an address that no one reaches from outside of its network. A
// name without a dot is one of such a network, like that of a service of Kubernetes.
func private(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate()
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")
}

// Foreign says whether the address itself names whom keys are shown to: not AWS, and not what the environment names.
func (a Address) Foreign() bool {
	if a.Endpoint == "" {
		return false
	}
	own, err := Address{}.resolved()
	return err != nil || own.Endpoint != a.Endpoint || own.Plain != a.Plain
}

// resolved is the address with what the environment says about endpoint and region, as for AWS's own tools.
func (a Address) resolved() (Address, error) {
	if a.Endpoint == "" {
		for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
			if value := os.Getenv(name); value != "" {
				if err := a.at(value); err != nil {
					return a, fmt.Errorf("environment variable %s: %w", name, err)
				}
				break
			}
		}
	}
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if a.Region == "" {
			a.Region = os.Getenv(name)
		}
	}
	if a.Endpoint == "" {
		a.Endpoint = "s3.amazonaws.com"
		if a.Region != "" {
			a.Endpoint = "s3." + a.Region + ".amazonaws.com"
		}
	}
	if _, _, err := net.SplitHostPort(a.Endpoint); err != nil && strings.Count(a.Endpoint, ":") == 1 {
		return a, fmt.Errorf("endpoint %q has no port after its colon", a.Endpoint)
	}
	return a, nil
}

// String is the address without parameters, for people.
func (a Address) String() string { return strings.TrimSuffix("s3://"+a.Bucket+"/"+a.Folder, "/") }

// Problems are those of an address, at the path of its attribute. Empty: there is none.
func Problems(address string, path cty.Path) []spec.Problem {
	if address == "" {
		return nil
	}
	_, err := Parse(address)
	var wrong *sdk.Error
	if !errors.As(err, &wrong) {
		return nil
	}
	return []spec.Problem{{Path: path, Summary: "Not the address of a store",
		Detail: wrong.Summary + ". The form is " + Form + "."}}
}
