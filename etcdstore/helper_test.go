package etcdstore_test

import (
	"testing"

	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

var (
	wantKind    = etcdtest.WantKind
	wantSays    = etcdtest.WantSays
	newInstance = etcdtest.NewInstance
	waitFor     = patient.Until
)

func must[T any](v T, err error) func(testing.TB) T { return etcdtest.Must(v, err) }
