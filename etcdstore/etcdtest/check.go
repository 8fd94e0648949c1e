package etcdtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/internal/testing/patient"
)

// Main runs the tests of a package, six at once where they allow it, and fails if they leave goroutines behind.
func Main(m *testing.M) {
	patient.SideBySide(6)
	code := m.Run()
	if err := leaks(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaks finds goroutines that tests left behind. Connections between stopped servers remain for some seconds, until
// their next deadline.
func leaks() (err error) {
	for range 10 {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// WantKind ends the test unless an error has the kind.
func WantKind(t testing.TB, err error, kind croft.Kind) {
	t.Helper()
	if croft.KindOf(err) != kind {
		t.Fatalf("got error %v of kind %q, want kind %q", err, croft.KindOf(err), kind)
	}
}

// WantSays fails the test unless all words are in the text.
func WantSays(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("it says %q, want %q in it", text, word)
		}
	}
}

// Must returns a function that returns v, and ends the test on an error: Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// NewInstance returns an instance as from a request, with user-data.
func NewInstance(name string) croft.Instance {
	return croft.Instance{
		ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: name,
		Spec: croft.Spec{Resources: croft.Resources{croft.VCPU: 1}, Image: "file:///x",
			GuestSettings: croft.GuestSettings{UserData: []byte("#!/bin/sh\n")}},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}
