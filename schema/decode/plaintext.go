package decode

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// plaintext warns of a credential that would be sent unencrypted: to an external server on another machine with an
// http:// address. outputs says which values are credentials.
func plaintext(label string, x *External, outputs *spec.Schema, at hcl.Range) *hcl.Diagnostic {
	credential := ""
	for _, name := range slices.Sorted(maps.Keys(x.Values)) {
		v, _ := x.Values[name].Unmark()
		if a := outputs.Attribute(name); a != nil && a.Sensitive &&
			!(v.IsKnown() && (v.IsNull() || v.AsString() == "")) {
			credential = name
			break
		}
	}
	if credential == "" {
		return nil
	}
	for _, name := range append([]string{"endpoint"}, slices.Sorted(maps.Keys(x.Values))...) {
		v := x.Endpoint
		if name != "endpoint" {
			v = x.Values[name]
		}
		if host := plainHost(v); host != "" {
			return diagnostic.Warning(at, "Credential sent unencrypted", fmt.Sprintf(
				"%s sends %s over http to %s: anyone on the network path can read it and all other traffic. Use "+
					"https in %s, or a tunnel that ends on this machine.",
				label, credential, host, name))
		}
	}
	return nil
}

// plainHost is the host of an http:// URL that is not this machine; empty for everything else, unknown values too.
func plainHost(v cty.Value) string {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return ""
	}
	u, err := url.Parse(v.AsString())
	if err != nil || !strings.EqualFold(u.Scheme, "http") {
		return ""
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") {
		return ""
	}
	return host
}
