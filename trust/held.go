package trust

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"croft"
	"croft/trust/pki"
)

// States of a certificate in a state directory.
const (
	Good        = "good"
	Expired     = "ran out"
	NotYetValid = "of the future"
	Overdue     = "runs out soon" // it should have been renewed
)

// Held is a certificate in a state directory.
type Held struct {
	File      string        `json:"file"`
	Authority pki.Authority `json:"authority"`
	Of        string        `json:"of"`
	Since     time.Time     `json:"since"`
	Until     time.Time     `json:"until"`
	State     string        `json:"state"`
}

// AllHeld lists the certificates in a state directory, valid or not, and the authority if the host has it.
func AllHeld(stateDir string) (all []Held, err error) {
	ca, err := pki.FindCA(CADir(stateDir))
	if errors.Is(err, croft.NotFound) {
		ca, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, a := range pki.Authorities {
		if ca == nil {
			break
		}
		current, old, err := ca.Certificates(a)
		if err != nil {
			return all, err
		}
		file := filepath.Join(ca.Dir, string(a)+".pem")
		all = append(all, Held{file, a, "the authority", current.NotBefore, current.NotAfter,
			stateOf(current.NotBefore, current.NotAfter)})
		if old != nil {
			all = append(all, Held{file, a, "the authority before it", old.NotBefore, old.NotAfter,
				"trusted until croft ca rotate --finish"})
		}
	}
	var errs []error
	for _, dir := range []string{"tls", filepath.Join("tls", "operator")} {
		for _, a := range pki.Authorities {
			held, err := heldIn(pki.Files{Dir: filepath.Join(stateDir, dir), Authority: a})
			all, errs = append(all, held...), append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// heldIn returns the certificate in files, if there is one.
func heldIn(f pki.Files) ([]Held, error) {
	if !f.Exists() {
		return nil, nil
	}
	pair, err := f.Load()
	if err != nil {
		return nil, err
	}
	id, err := pki.IdentityOf(pair.Leaf)
	c := pair.Leaf
	return []Held{{
		f.Pair(), f.Authority, string(id.Kind) + " " + id.ID, c.NotBefore, c.NotAfter, stateOf(c.NotBefore, c.NotAfter),
	}}, err
}

// stateOf returns the state of a certificate.
func stateOf(since, until time.Time) string {
	switch now := time.Now(); {
	case now.After(until):
		return Expired
	case now.Before(since):
		return NotYetValid
	case pki.Overdue(since, until):
		return Overdue
	}
	return Good
}

// OverdueOf names a certificate of a joined host that has expired or was not renewed in time; empty: none exists.
func OverdueOf(j Joined) string {
	for _, a := range pki.Authorities {
		stamp, has := j.Certificates[string(a)]
		switch {
		case !has || !pki.Overdue(stamp.Made, stamp.Until):
			continue
		case time.Now().After(stamp.Until):
			return fmt.Sprintf(
				"its certificate of %s ran out on %s: let it join again, with a token of croft token create --host NAME",
				a, stamp.Until.Local().Format(time.DateOnly))
		}
		return fmt.Sprintf("its certificate of %s runs out on %s and is not renewed: does it reach the join server?",
			a, stamp.Until.Local().Format(time.DateOnly))
	}
	return ""
}
