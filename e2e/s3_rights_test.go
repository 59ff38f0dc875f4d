//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/sdk"
)

// TestS3Rights gives keys of a real store each right but one, by a policy of the bucket.
func TestS3Rights(t *testing.T) {
	s := newS3(t)
	at := net.JoinHostPort(s.ip, s.port)
	command(t, os.Getenv("RECIPE_S3"), "admin", "--access", "researcher", "--secret", "the-key-that-nobody-prints",
		"--endpoint-url", "http://"+at, "create-user", "--access", "limited", "--secret", "limited-secret", "--role", "user")
	owner, err := minio.New(at, &minio.Options{Region: "us-east-1",
		Creds: credentials.NewStaticV4("researcher", "the-key-that-nobody-prints", "")})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "limited")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "limited-secret")
	all := []string{"PutObject", "GetObject", "DeleteObject", "ListBucket", "AbortMultipartUpload",
		"ListBucketMultipartUploads"}
	for _, lacks := range append(all, "") {
		actions := []string{}
		for _, right := range slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == lacks }) {
			actions = append(actions, "s3:"+right)
		}
		policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{
			map[string]any{"Effect": "Allow", "Principal": "limited", "Action": actions,
				"Resource": []string{"arn:aws:s3:::runs", "arn:aws:s3:::runs/*"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.SetBucketPolicy(t.Context(), "runs", string(policy)); err != nil {
			t.Fatal(err)
		}
		a, err := objectstore.Parse(s.address())
		if err != nil {
			t.Fatal(err)
		}
		bucket, err := objectstore.Open(a)
		if err != nil {
			t.Fatal(err)
		}
		err = bucket.Try(t.Context(), "rights/")
		if lacks == "" {
			if err != nil {
				t.Errorf("with all rights: %v", err)
			}
			continue
		}
		var told *sdk.Error
		if !objectstore.IsRefused(err) || !errors.As(err, &told) || !strings.Contains(told.Remedy, "the right "+lacks+";") {
			t.Errorf("without %s: %v", lacks, err)
		} else {
			t.Log(told.Summary, told.Remedy)
		}
	}
}
