package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/recipe-rl/recipe/sdk"
)

const (
	// small bounds a request that carries little.
	small = time.Minute
	// slowest is the rate in bytes a second that a file may be moved at; below it the store counts as away.
	slowest = 1 << 20
	// parts of a file are sent beside each other.
	parts = 4
	// tries of one request; who calls repeats the whole.
	tries = 3
)

// Bucket is one folder of a bucket. Its names are relative to the folder. It is safe for concurrent use.
type Bucket struct {
	client  *minio.Client
	address Address
}

// Open prepares the access to a store. Keys come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN), the shared file of AWS's tools (AWS_SHARED_CREDENTIALS_FILE, AWS_PROFILE), or the role of the
// machine, container or service account. It asks nobody yet.
func Open(a Address) (*Bucket, error) {
	a, err := a.resolved()
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(!a.Plain)
	if err == nil {
		err = trust(transport)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a, err)
	}
	client, err := minio.New(a.Endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}}),
		Secure: !a.Plain, Transport: limited{transport}, Region: a.Region, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a, err)
	}
	return &Bucket{client: client, address: a}, nil
}

// trust adds the certificates of AWS_CA_BUNDLE, as AWS's own tools do.
func trust(t *http.Transport) error {
	path := os.Getenv("AWS_CA_BUNDLE")
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path) //nolint:gosec // the user's own choice
	if err != nil {
		return fmt.Errorf("read AWS_CA_BUNDLE: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("AWS_CA_BUNDLE %s holds no certificate", path)
	}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = pool
	return nil
}

// String is the address of the folder.
func (b *Bucket) String() string { return b.address.String() }

func (b *Bucket) key(name string) string {
	return strings.TrimPrefix(b.address.Folder+"/"+name, "/")
}

// Put writes a small object.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	_, err := b.client.PutObject(ctx, b.address.Bucket, b.key(name), bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{})
	return b.failed(doesWrite, name, err)
}

// PutFile writes an object of a file's content, in parts if it is large. The store checks each part by a checksum.
func (b *Bucket) PutFile(ctx context.Context, name, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read %s for %s: %w", path, b, err)
	}
	ctx, cancel := context.WithTimeout(ctx, allowed(info.Size()))
	defer cancel()
	_, err = b.client.FPutObject(ctx, b.address.Bucket, b.key(name), path, minio.PutObjectOptions{
		ContentType: "application/octet-stream", NumThreads: parts})
	return b.failed(doesWrite, name, err)
}

// PutSection writes an object of the first bytes of a file, which may be growing, in parts if they are many.
func (b *Bucket) PutSection(ctx context.Context, name string, from io.ReaderAt, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, allowed(size))
	defer cancel()
	_, err := b.client.PutObject(ctx, b.address.Bucket, b.key(name), io.NewSectionReader(from, 0, size), size,
		minio.PutObjectOptions{ContentType: "application/octet-stream", NumThreads: parts})
	return b.failed(doesWrite, name, err)
}

func allowed(size int64) time.Duration { return small + time.Duration(size/slowest)*time.Second }

// Get reads a small object. The error is fs.ErrNotExist when there is none.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	o, err := b.client.GetObject(ctx, b.address.Bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.failed(doesRead, name, err)
	}
	defer func() { _ = o.Close() }()
	content, err := io.ReadAll(io.LimitReader(o, 64<<20))
	return content, b.failed(doesRead, name, err)
}

// ErrDamaged is the error of an object that is not what was written.
var ErrDamaged = errors.New("is damaged")

// GetFile writes an object of so many bytes to a new file, whose content must have the SHA-256 digest.
func (b *Bucket) GetFile(ctx context.Context, name, path string, size int64, digest string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, allowed(size))
	defer cancel()
	o, err := b.client.GetObject(ctx, b.address.Bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return b.failed(doesRead, name, err)
	}
	defer func() { _ = o.Close() }()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the caller's path
	if err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("fetch %s: %w", name, e)
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(o, size+1))
	if err != nil {
		return b.failed(doesRead, name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != size || got != digest {
		return fmt.Errorf("%s/%s %w: expected %d bytes with SHA-256 %s, got %d with %s", b, name, ErrDamaged, size,
			digest, n, got)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	return nil
}

// List returns the names of all objects that begin with a text, in their order.
func (b *Bucket) List(ctx context.Context, start string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	var names []string
	taken := 0
	for o := range b.client.ListObjects(ctx, b.address.Bucket, minio.ListObjectsOptions{
		Prefix: b.key(start), Recursive: true}) {
		if o.Err != nil {
			return nil, b.failed(doesList, start, o.Err)
		}
		if taken += len(o.Key); taken > maxNames {
			return nil, b.failed(doesList, start, errManyNames)
		}
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(o.Key, b.address.Folder), "/"))
	}
	return names, nil
}

// Remove removes an object; it may be gone already.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	err := b.client.RemoveObject(ctx, b.address.Bucket, b.key(name), minio.RemoveObjectOptions{})
	return b.failed(doesRemove, name, err)
}

// RemoveParts removes what uploads that were cut off have left of objects that begin with a text, which takes room and
// is seen by nobody.
func (b *Bucket) RemoveParts(ctx context.Context, start string) error {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	return b.listParts(ctx, start, func(key string) error {
		return b.failed(doesAbort, key, b.client.RemoveIncompleteUpload(ctx, b.address.Bucket, key))
	})
}

// denied is the code of S3's for keys that may not do something.
const denied = "AccessDenied"

// refusals are the codes of S3's that a repetition does not change, with what to do.
var refusals = map[string]string{
	"NoSuchBucket":                 "make the bucket, or mend its name or the endpoint",
	denied:                         "there are no keys where this runs, or they lack the right %s; they need " + allRights,
	"InvalidAccessKeyId":           "the store does not know the access key: is it the one of this store?",
	"SignatureDoesNotMatch":        "the secret key is not that of the access key",
	"ExpiredToken":                 "the keys have expired: renew them where the block runs",
	"PermanentRedirect":            "the bucket is in another region: add &region=REGION",
	"AuthorizationHeaderMalformed": "the bucket is in another region, or the store wants one: add &region=REGION",
}

// failed explains an error of the store.
func (b *Bucket) failed(what, name string, err error) error {
	if err == nil {
		return nil
	}
	did := fmt.Sprintf("%s %s/%s at %s", what, b, name, b.address.Endpoint)
	answer := minio.ToErrorResponse(err)
	if answer.Code == "NoSuchKey" {
		return fmt.Errorf("%s: %w", did, fs.ErrNotExist)
	}
	if remedy, ok := refusals[answer.Code]; ok {
		if answer.Code == denied {
			remedy = fmt.Sprintf(remedy, rights[what])
		}
		return &sdk.Error{Summary: did + ": the store refuses it", Remedy: remedy,
			Err: Refused{Code: answer.Code, Message: answer.Message}}
	}
	var tls *tls.CertificateVerificationError
	if errors.As(err, &tls) {
		return &sdk.Error{Summary: did + ": " + err.Error(), Remedy: "AWS_CA_BUNDLE names a file with the store's authority"}
	}
	return fmt.Errorf("%s: %w", did, err)
}

// Refused is an answer of the store that a repetition does not change.
type Refused struct{ Code, Message string }

func (r Refused) Error() string { return r.Code + ": " + r.Message }

// IsRefused reports whether an error is one.
func IsRefused(err error) bool {
	var r Refused
	return errors.As(err, &r)
}
