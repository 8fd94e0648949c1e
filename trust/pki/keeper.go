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
	"croft/internal/delay"
)

// Issuer signs for a Keeper: the CA of this machine, or a join server.
type Issuer interface {
	// Trusted returns the trusted certificates of an authority, in PEM, the signing one first.
	Trusted(ctx context.Context, a Authority) ([]byte, error)
	// Issue issues a certificate for the key of a request (PKCS #10, DER).
	Issue(ctx context.Context, a Authority, csr []byte) (Issued, error)
}

// Keeper renews the certificate in files: if none exists, after two thirds of its life, if its authority has a
// successor, or if its content is not as required.
type Keeper struct {
	Files  Files
	Issuer Issuer
	Log    *slog.Logger
}

const (
	// every is the interval of checks. They are frequent because clocks are set, machines sleep, and authorities are
	// rotated.
	every = 10 * time.Minute
	// retry is the pause after a first failure, and the minimum pause.
	retry = time.Second
)

// Run keeps the files renewed until ctx ends.
func (k Keeper) Run(ctx context.Context) error {
	wait, failing := time.Duration(0), ""
	for {
		if delay.For(ctx, jittered(wait)) != nil {
			return nil
		}
		due, err := k.Ensure(ctx)
		if err == nil {
			wait, failing = max(min(time.Until(due), every), retry), ""
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != failing { // once, not at every retry
			k.Log.Warn("the certificate is not renewed; trying again", "authority", k.Files.Authority, "err", err)
			failing = err.Error()
		}
		wait = min(max(2*wait, retry), every)
	}
}

// jittered subtracts up to a tenth, so that hosts do not ask all at once.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d/10)+1))
}

// Ensure requests a certificate if one is due, and returns when the next renewal is due.
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

// Renew requests another certificate now; the reason is logged.
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

// look returns the present certificate, if any, and why another one is needed, if so.
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
		return nil, "", croft.Errorf(croft.Invalid, "the trusted authorities cannot be read: %w", err)
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

// renewal returns when two thirds of a certificate's life are over.
func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// Overdue reports whether a certificate that is valid from since to until should have been renewed by now: four fifths
// of its life are over.
func Overdue(since, until time.Time) bool {
	return time.Now().After(since.Add(until.Sub(since) * 4 / 5))
}

// Remaining returns how long the certificate is valid, below zero if it has expired.
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
