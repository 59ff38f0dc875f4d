package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/minio/minio-go/v7"
)

// rights are those that the keys need, by what is done with them.
var rights = map[string]string{
	doesWrite:     "PutObject",
	doesRead:      "GetObject",
	doesRemove:    "DeleteObject",
	doesList:      "ListBucket",
	doesListParts: "ListBucketMultipartUploads",
	doesAbort:     "AbortMultipartUpload",
}

const (
	doesWrite     = "write"
	doesRead      = "read"
	doesRemove    = "remove"
	doesList      = "list"
	doesListParts = "list unfinished uploads of"
	doesAbort     = "end an unfinished upload of"
)

const allRights = "PutObject, GetObject, DeleteObject, ListBucket, AbortMultipartUpload and ListBucketMultipartUploads"

// Try uses each right that copies of checkpoints need, on a small object whose name begins with a text and that it
// removes again. The error names the right that is missing, or says why the store does not answer.
func (b *Bucket) Try(ctx context.Context, start string) error {
	name := start + ".rights-" + strings.ToLower(rand.Text()[:8])
	want := []byte("recipe tries whether it may write, read and remove here\n")
	if err := b.Put(ctx, name, want); err != nil {
		return err
	}
	got, err := b.Get(ctx, name)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s/%s %w: what was written is not what is read", b, name, ErrDamaged)
	}
	if e := b.Remove(ctx, name); err == nil { // in any case
		err = e
	}
	if err == nil {
		_, err = b.List(ctx, name)
	}
	if err == nil {
		err = b.tryParts(ctx, name)
	}
	return err
}

// tryParts begins an upload in parts, and ends it.
func (b *Bucket) tryParts(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, small)
	defer cancel()
	core := minio.Core{Client: b.client}
	id, err := core.NewMultipartUpload(ctx, b.address.Bucket, b.key(name), minio.PutObjectOptions{})
	if err != nil {
		return b.failed(doesWrite, name, err)
	}
	listed := b.listParts(ctx, name, func(string) error { return nil })
	if err := core.AbortMultipartUpload(ctx, b.address.Bucket, b.key(name), id); err != nil {
		return b.failed(doesAbort, name, err)
	}
	return listed
}

// listParts calls f for the key of each upload that has not ended, of objects that begin with a text.
func (b *Bucket) listParts(ctx context.Context, start string, f func(key string) error) error {
	for u := range b.client.ListIncompleteUploads(ctx, b.address.Bucket, b.key(start), true) {
		if u.Err != nil {
			return b.failed(doesListParts, start, u.Err)
		}
		if err := f(u.Key); err != nil {
			return err
		}
	}
	return nil
}
