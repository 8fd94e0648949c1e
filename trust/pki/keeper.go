package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"croft"
)

// Issuer is who signs for a Keeper: the CA of this machine, or the control process.
type Issuer interface {
	// Trusted are the certificates of an authority to be trusted, in PEM, first the
	// one that signs now.
	Trusted(ctx context.Context, a Authority) ([]byte, error)
	// Issue makes a certificate for the key of a request (PKCS #10, DER).
	Issue(ctx context.Context, a Authority, csr []byte) (Issued, error)
}

// Keeper keeps files from running out: it has a certificate made where there is none,
// and a new one after two thirds of its life, where its authority has been followed by
// another, or where it is not for what it should be.
type Keeper struct {
	Files  Files
	Issuer Issuer
	Log    *slog.Logger
}

const (
	// every is how often it looks: clocks are set, machines sleep, and authorities are
	// followed by others.
	every = 10 * time.Minute
	// retry is how long it waits after a first failure, and at least.
	retry = time.Second
)

// Run looks after the files until ctx ends.
func (k Keeper) Run(ctx context.Context) error {
	wait, failing := time.Duration(0), ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(jittered(wait)):
		}
		due, err := k.Ensure(ctx)
		if err == nil {
			wait, failing = max(min(time.Until(due), every), retry), ""
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != failing { // once, not at every try
			k.Log.Warn("the certificate is not renewed; trying again", "authority", k.Files.Authority, "err", err)
			failing = err.Error()
		}
		wait = min(max(2*wait, retry), every)
	}
}

// jittered takes up to a tenth off, so that hosts do not come all at once.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d/10)+1))
}

// Ensure does now what has to be done, and says when that will be needed again.
func (k Keeper) Ensure(ctx context.Context) (due time.Time, err error) {
	trusted, err := k.Issuer.Trusted(ctx, k.Files.Authority)
	if err != nil {
		return due, err
	}
	have, reason, err := k.look(trusted)
	if err != nil {
		return due, err
	}
	if reason == "" {
		return renewal(have), k.Files.Trust(trusted)
	}
	return k.Renew(ctx, reason)
}

// Renew has another certificate made now, for a reason that is logged.
func (k Keeper) Renew(ctx context.Context, reason string) (due time.Time, err error) {
	key, csr, err := Request()
	if err != nil {
		return due, err
	}
	issued, err := k.Issuer.Issue(ctx, k.Files.Authority, csr)
	if err != nil {
		return due, err
	}
	if err := k.Files.Keep(key, issued); err != nil {
		return due, err
	}
	pair, err := k.Files.Load()
	if err != nil {
		return due, err
	}
	k.Log.Info("certificate made", "authority", k.Files.Authority, "reason", reason, "until", pair.Leaf.NotAfter)
	return renewal(pair.Leaf), nil
}

// look returns the certificate that there is, and why another one is needed, if so.
func (k Keeper) look(trusted []byte) (c *x509.Certificate, reason string, err error) {
	pair, err := k.Files.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "there is none", nil
	case errors.Is(err, errDamaged):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	signers, _, err := parsePEM(trusted)
	if err != nil || len(signers) == 0 {
		return nil, "", croft.Errorf(croft.Invalid, "whom to trust cannot be read: %w", err)
	}
	now, mine := time.Now(), pair.Leaf
	local, isLocal := k.Issuer.(own)
	switch {
	case now.After(renewal(mine)):
		return nil, fmt.Sprintf("the last one is good until %s", mine.NotAfter.Format(time.DateTime)), nil
	case now.Before(mine.NotBefore):
		return nil, "the last one is of the future", nil
	case !bytes.Equal(mine.AuthorityKeyId, signers[0].SubjectKeyId):
		return nil, "its authority has changed", nil
	case isLocal && !local.fits(mine):
		return nil, "it is for other names", nil
	}
	return mine, "", nil
}

// renewal is when two thirds of a certificate's life are over.
func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// Overdue tells whether a certificate that has counted since one time, and does until
// another, should have been renewed by now.
func Overdue(since, until time.Time) bool {
	return time.Now().After(since.Add(until.Sub(since) * 4 / 5))
}

// Remaining is how long the certificate counts, below zero where it has run out.
func (f Files) Remaining() (time.Duration, error) {
	pair, err := f.Load()
	if err != nil {
		return 0, err
	}
	return time.Until(pair.Leaf.NotAfter), nil
}

// Forget removes the files.
func (f Files) Forget() error {
	var errs []error
	for _, name := range []string{f.Pair(), f.CA()} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
