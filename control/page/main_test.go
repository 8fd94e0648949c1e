package page_test

import (
	"testing"

	"croft/etcdstore/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }
