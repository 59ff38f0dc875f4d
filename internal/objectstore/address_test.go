package objectstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/sdk"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]objectstore.Address{
		"s3://runs":              {Bucket: "runs"},
		"s3://runs/":             {Bucket: "runs"},
		"s3://runs/me/my%20sums": {Bucket: "runs", Folder: "me/my sums"},
		"s3://runs/me?endpoint=https://minio.example:9000&region=eu": {Bucket: "runs", Folder: "me",
			Endpoint: "minio.example:9000", Region: "eu"},
		"s3://runs?endpoint=http://127.0.0.1:9000": {Bucket: "runs", Endpoint: "127.0.0.1:9000", Plain: true},
		"s3://runs?endpoint=http://10.1.2.3":       {Bucket: "runs", Endpoint: "10.1.2.3", Plain: true},
		"s3://runs?endpoint=http://minio:9000":     {Bucket: "runs", Endpoint: "minio:9000", Plain: true},
		"s3://runs?endpoint=http://minio.rl.svc":   {Bucket: "runs", Endpoint: "minio.rl.svc", Plain: true},
	} {
		if got, err := objectstore.Parse(text); err != nil || got != want {
			t.Errorf("%s is %+v, %v; expected %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"/shared/runs":                             "does not begin with s3://",
		"https://bucket.s3.amazonaws.com":          "does not begin with s3://",
		"s3://":                                    "not the name of a bucket",
		"s3://My_Runs":                             "not the name of a bucket",
		"s3://key:secret@runs":                     "keys have no place in it",
		"s3://runs?acl=public":                     `unknown parameter "acl"`,
		"s3://runs#x":                              "fragment",
		"s3://runs?endpoint=minio:9000":            "endpoint must be https://HOST",
		"s3://runs?endpoint=ftp://minio":           "must begin with https://",
		"s3://runs?endpoint=http://minio.example":  "has no TLS",
		"s3://runs?endpoint=http://8.8.8.8":        "has no TLS",
		"s3://runs?endpoint=https://k:s@minio.org": "endpoint must be https://HOST",
	} {
		_, err := objectstore.Parse(text)
		var told *sdk.Error
		if !errors.As(err, &told) || !strings.Contains(err.Error(), want) || !strings.Contains(told.Remedy, "s3://BUCKET") {
			t.Errorf("%s: %v; expected %q and what to write", text, err, want)
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "k:s") {
			t.Errorf("the error holds the key: %v", err)
		}
	}
}

// FuzzParse: no text makes it panic, and what is accepted names a bucket and an endpoint without slashes.
func FuzzParse(f *testing.F) {
	f.Add("s3://runs/a?endpoint=https://h:1&region=x")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := objectstore.Parse(text)
		if err == nil && (a.Bucket == "" || strings.Contains(a.Endpoint, "/") || strings.HasPrefix(a.Folder, "/")) {
			t.Errorf("%q is %+v", text, a)
		}
	})
}
